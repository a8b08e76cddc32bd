"""What is behind: one comparison, and two memories of what partitions were made from that agree (O2, R1)."""

from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.trust import found_wrong
from tests.support.recorded_lake import TIERS, RecordedLake
from tests.support.small_lake import SPECS
from tidemark.model.timegrid import DAY_US, HOUR_US, WEEK_US
from tidemark.storage.home import Home
from tidemark.tables.behind import Behind, find_behind
from tidemark.tables.lineage import FOREIGN, UNKNOWN, Made
from tidemark.tables.tiers import Tier

MONDAY = 4 * DAY_US  # the first after 1970 began
# Two hours of a day, another day of that week, and another week.
HOURS = (MONDAY, MONDAY + HOUR_US, MONDAY + 2 * DAY_US, MONDAY + WEEK_US)
NOTHING: dict[Tier, set[int]] = {tier: set() for tier in TIERS}


@pytest.mark.parametrize(
    ("made", "changed", "generation", "why"),
    [
        (None, -1, 1, None),
        (None, 0, 1, Behind.NEVER_MADE),
        (Made(5, 3, 1), -1, 1, None),
        (Made(5, 3, 1), 3, 1, None),
        (Made(5, 3, 1), 4, 1, Behind.CHANGED),
        (Made(5, 3, 1), 3, 2, Behind.REPLACED),
        (Made(-1, 3, 1), -1, 2, Behind.REPLACED),
        (Made(5, UNKNOWN, 0), -1, 1, Behind.NOT_KNOWN),
        (Made(5, FOREIGN, 0), 3, 1, Behind.NOT_KNOWN),
        (Made(-1, UNKNOWN, 1), 0, 1, Behind.CHANGED),
    ],
)
def test_a_partition_is_behind_what_its_input_has_for_it_now(
    made: Made | None, changed: int, generation: int, why: Behind | None
) -> None:
    assert find_behind(made, changed=changed, generation=generation) is why


some_hours = st.sets(st.sampled_from(HOURS), min_size=1)
steps = st.one_of(
    st.tuples(st.just("send"), some_hours),
    st.tuples(st.sampled_from(TIERS), some_hours),
    st.just(("begin_again", frozenset[int]())),
)


@settings(max_examples=15)
@given(history=st.lists(steps, min_size=3, max_size=9))
def test_the_orchestrators_records_and_the_lineage_of_tables_agree_on_what_is_behind(
    history: list[tuple[str, set[int]]],
) -> None:
    """After every step, whatever was computed and whatever was left behind."""
    with TemporaryDirectory() as folder, dg.DagsterInstance.ephemeral() as instance:
        platform = RecordedLake(Home(Path(folder) / "home").create(), instance)
        for what, hours in history:
            if what == "send":
                platform.send(hours)
            elif what == "begin_again":
                platform.begin_again()
            else:
                platform.roll_up(Tier(what), hours)
            assert platform.stale() == platform.behind()


def test_a_hand_edit_is_behind_for_exact_counts_and_blocks_what_the_orchestrator_would_make_of_it(
    tmp_path: Path,
) -> None:
    """Decision 0010: it is neither used nor carried on, and nothing is stale because of it."""
    with dg.DagsterInstance.ephemeral() as instance:
        platform = RecordedLake(Home(tmp_path / "home").create(), instance)
        platform.send(HOURS)
        for tier in TIERS:
            platform.roll_up(tier, HOURS)
        assert platform.stale() == platform.behind() == NOTHING
        platform.lake.tamper(Tier.HOUR, MONDAY)
        assert platform.stale() == NOTHING
        assert platform.behind()[Tier.HOUR] == {MONDAY}
        hourly = SPECS[Tier.HOUR]
        assert hourly.grain.key(MONDAY) in found_wrong(platform.home, instance, hourly.name)


def test_what_the_orchestrator_has_no_record_of_is_stale_whatever_lies_beside_the_tables(tmp_path: Path) -> None:
    """Its storage was deleted, or a run was killed between its commit and its record: it is made again, recorded."""
    with dg.DagsterInstance.ephemeral() as instance, dg.DagsterInstance.ephemeral() as new:
        platform = RecordedLake(Home(tmp_path / "home").create(), instance)
        platform.send(HOURS[:1])
        for tier in TIERS:
            platform.roll_up(tier, HOURS[:1])
        assert platform.behind() == NOTHING
        platform.instance = new
        assert platform.stale() == {tier: {SPECS[tier].grain.floor(HOURS[0])} for tier in TIERS}
