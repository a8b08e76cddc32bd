"""What the door counts of itself, in Prometheus' text form.

Belongs here: requests by route and status, bytes, deltas, and what is under way. The only labels are words of this
program: one by producer or token would grow without bound.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from tidemark.gateway.http.writes.outcomes import WriteAnswer

Gauge = Callable[[], int]


class Counters:
    """Counts since the door was started."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # (route, status)
        self.deltas: Counter[str] = Counter()  # by outcome, as answers told it
        self.body_bytes = 0
        self.running: Counter[str] = Counter()  # requests under way, by route
        self._gauges: dict[str, tuple[str, Gauge]] = {}

    def gauge(self, name: str, text: str, value: Gauge) -> None:
        """Show a value that is asked for when it is shown."""
        self._gauges[name] = (text, value)

    def answered(self, answer: WriteAnswer) -> None:
        """Count the deltas of an answer."""
        for outcome, count in (
            ("accepted", answer.accepted),
            ("duplicate", answer.duplicate),
            ("refused", answer.refused_count),
            ("not_taken", len(answer.not_taken)),
        ):
            if count:
                self.deltas[outcome] += count

    def text(self) -> str:
        """All of it."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _head("tidemark_http_requests_total", "counter", "Requests that were answered.")
        for (route, status), count in sorted(self.requests.items()):
            yield f'tidemark_http_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _head("tidemark_http_deltas_total", "counter", "Deltas by the outcome that answers told.")
        for outcome, count in sorted(self.deltas.items()):
            yield f'tidemark_http_deltas_total{{outcome="{outcome}"}} {count}'
        yield from _head("tidemark_http_body_bytes_total", "counter", "Bytes of the bodies of writes, unpacked.")
        yield f"tidemark_http_body_bytes_total {self.body_bytes}"
        yield from _head("tidemark_http_running", "gauge", "Requests under way.")
        for route, count in sorted(self.running.items()):
            yield f'tidemark_http_running{{route="{route}"}} {count}'
        for name, (text, value) in sorted(self._gauges.items()):
            yield from _head(f"tidemark_http_{name}", "gauge", text)
            yield f"tidemark_http_{name} {value()}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
