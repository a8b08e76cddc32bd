"""Rule T2 read aloud, for one stream: every step one by one, every producer every time. Slow, and hard to get wrong."""

from copy import deepcopy

from tidemark.event_time.watermarks import FORGOTTEN_AFTER
from tidemark.model.settings import Settings


class ModelWatermark:
    """What `Watermarks` must say about one stream."""

    def __init__(self, settings: Settings) -> None:
        self.disorder, self.idle = settings.disorder_ms * 1_000, settings.idle_timeout_ms * 1_000
        self.step, self.events = settings.watermark_ms * 1_000, settings.watermark_events
        self.watermark: int | None = None
        self.logged: int | None = None
        self.newest: dict[str, int] = {}  # producer → greatest event time
        self.heard: dict[str, int] = {}  # producer → last time of receipt
        self.marks: dict[str, int] = {}  # active producer → what of it counts
        self.counts: dict[str, int] = {}
        self.last_step: int | None = None
        self.last_tick: int | None = None

    def write(self, producer: str, count: int, event: int, now: int) -> int | None:
        """One write; gives its stamp."""
        self._pass_steps(now)
        stamp = self.logged = self.watermark
        self.newest[producer] = max(event, self.newest.get(producer, event))
        self.heard[producer] = max(now, self.heard.get(producer, now))
        self.marks.setdefault(producer, self.newest[producer])
        self.counts[producer] = self.counts.get(producer, 0) + count
        if self.counts[producer] >= self.events or self.watermark is None:
            self.counts[producer] = 0
            self.marks[producer] = self.newest[producer]
            self._rise(min(*self.marks.values(), now) - self.disorder)
        return stamp

    def tick(self, now: int) -> int | None:
        """What has to be logged, if anything."""
        if self.last_tick is not None and now // self.step <= self.last_tick:
            return None
        self.last_tick = now // self.step
        ahead = deepcopy(self)
        if self.heard:
            ahead._pass_steps(now)
        self.watermark = ahead.watermark
        if self.watermark == self.logged:
            return None
        self.logged = self.watermark
        return self.logged

    def adopt(self, watermark: int, now: int) -> int | None:
        """What has to be logged, if anything."""
        watermark = min(watermark, now - self.disorder)
        if any(now - heard < self.idle for heard in self.heard.values()):
            return None
        if self.watermark is not None and watermark <= self.watermark:
            return None
        self.watermark = self.logged = watermark
        return watermark

    def restart(self) -> None:
        """Everything is in the log, except when the last tick was."""
        self.last_tick = None

    def _pass_steps(self, now: int) -> None:
        current = now // self.step
        for number in range(current if self.last_step is None else self.last_step + 1, current + 1):
            self._pass_step(number * self.step)
            self.last_step = number

    def _pass_step(self, time: int) -> None:
        self.counts = {}
        if self.heard:
            moment = min(time, max(self.heard.values()) + self.idle - 1)
            active = [name for name, heard in self.heard.items() if moment - heard < self.idle]
            self._rise(min(*(self.newest[name] for name in active), moment) - self.disorder)
            self.marks = {name: self.newest[name] for name in active} if moment == time else {}
            for name in [name for name, heard in self.heard.items() if moment - heard >= FORGOTTEN_AFTER * self.idle]:
                del self.heard[name], self.newest[name]

    def _rise(self, watermark: int) -> None:
        self.watermark = watermark if self.watermark is None else max(self.watermark, watermark)
