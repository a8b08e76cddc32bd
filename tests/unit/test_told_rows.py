"""What a producer is told of single deltas, against a plain look at the rows."""

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.served import home_at
from tidemark.coordinator.platform import Platform
from tidemark.verdicts.told_rows import MOST_TOLD

NOW_US = 1_800_000_000_000_000


def delta(name: str) -> object:
    """A delta of this id; one without a name is refused."""
    signal = {"entity_id": "e", "signal": "view"}
    return {"namespace": "shop", "kind": "signal", "delta_id": name, "event_ts": NOW_US, "signal": signal}


@settings(max_examples=25)
@given(writes=st.lists(st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=1, max_size=6), max_size=5))
def test_every_delta_that_was_not_accepted_is_told_with_its_place_w4(
    tmp_path_factory: pytest.TempPathFactory, writes: list[list[str]]
) -> None:
    home = home_at(tmp_path_factory.mktemp("told"))
    with Platform.open(home, clock=lambda: NOW_US) as platform:
        producer = platform.producer("web")
        handles = [next(iter(producer.write([delta(name) for name in names]).parts.values()))[0] for names in writes]
        for handle in handles:
            handle.wait()
        seen: set[str] = set()
        for names, handle in zip(writes, handles, strict=True):
            wanted: dict[str, list[int]] = defaultdict(list)
            for place, name in enumerate(names):
                if not name:
                    wanted["refused"].append(place)
                elif name in seen:
                    wanted["duplicate"].append(place)
                seen.add(name)
            assert [row.ordinal for row in handle.told.refused] == wanted["refused"]
            assert list(handle.told.duplicates) == wanted["duplicate"]


def test_of_one_write_only_the_first_are_told_w4(tmp_path: Path) -> None:
    with Platform.open(home_at(tmp_path / "home"), clock=lambda: NOW_US) as platform:
        [(handle, _)] = platform.producer("web").write([delta("")] * (MOST_TOLD + 5)).parts.values()
        handle.wait()
        assert [row.ordinal for row in handle.told.refused] == list(range(MOST_TOLD))
        assert {row.reason for row in handle.told.refused} == {"empty_id"}


def test_refused_deltas_are_counted_by_reason_c13(tmp_path: Path) -> None:
    with Platform.open(home_at(tmp_path / "home"), clock=lambda: NOW_US) as platform:
        platform.producer("web").write([delta(""), delta("a"), b"{", delta("")]).wait()
        platform.producer("web").write([delta("b")]).wait()
        assert platform.shards[0].metrics.reasons() == {"empty_id": 2, "malformed": 1}
        assert 'tidemark_refused_total{reason="empty_id",shard="0"} 2.0' in platform.metrics()
