"""Watermarks along the graph of tables: what is refused, how far a table has got, and what status shows of it (T3)."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from assets.watermarks import input_watermarks, record_watermarks
from orchestration.cli.watermark_view import watermark_tree_table
from resources.record import Record
from tests.support.live import TEN_O_CLOCK, HandClock, new_home, open_platform, signal
from tidemark.model.errors import DamageError
from tidemark.model.timegrid import MINUTE_US, SECOND_US
from tidemark.observe.sealed_log import SourceWatermark
from tidemark.observe.status import read_status
from tidemark.observe.watermark_graph import LATE_DELTAS, Graph, GraphError, order, table_graph
from tidemark.observe.watermark_tree import build_tree, read_watermark_tree, tree_as_json
from tidemark.streams import Streams, load_streams
from tidemark.tables.table_watermarks import TableWatermark, TableWatermarkFile, least_watermark, read_table_watermarks

EXAMPLES = Path(__file__).resolve().parents[2] / "streams"


def record(table: str, watermark_us: int | None, held_by: str = "shard 0, shop/signal") -> Record:
    return Record(
        asset=table, partition=None, generation=1, table_version=1, table_id="t", watermark_us=watermark_us,
        held_by=held_by, recorded_us=TEN_O_CLOCK,
    )  # fmt: skip


def test_a_circle_and_an_unknown_input_are_refused_with_their_names_t3() -> None:
    with pytest.raises(GraphError, match=r"a from b from a|b from a from b"):
        order({"a": ["b"], "b": ["a"]}, [])
    with pytest.raises(GraphError, match="views is made from veiws"):
        order({"views": ["veiws"]}, ["shop/signal"])


def test_the_examples_form_a_graph_whose_sinks_nothing_is_made_from() -> None:
    graph = table_graph(load_streams(EXAMPLES), ["shop/signal"])
    assert {"views_and_buys", "windowed_counts", "dead_letters"} <= set(graph.sinks)
    assert not {"deltas", "item_views", "minute_counts"} & set(graph.sinks)
    assert graph.sources_of("views_and_buys") == {"shop/signal"}
    names = list(graph.inputs)
    assert all(
        names.index(name) < names.index(table) for table in names for name in graph.inputs[table] if name in names
    )


def test_watermarks_see_the_tables_that_there_are() -> None:
    """Their names are written out, so that the tree costs no Arrow: none is forgotten, and none is made up."""
    from assets.rollups.schema import CHAIN
    from assets.tables import TABLES
    from assets.vectors.schema import VECTOR_CHECKPOINTS

    found = table_graph(Streams(), ["shop/vector"]).inputs
    # Checkpoints follow when they are due, and nobody waits for them: they hold nothing back.
    assert found.keys() == TABLES.keys() - {LATE_DELTAS, VECTOR_CHECKPOINTS.name}
    assert {target.name: (source.name,) for source, target in CHAIN}.items() <= found.items()


def test_a_tables_watermark_is_the_least_of_its_inputs_and_never_falls_t3(tmp_path: Path) -> None:
    record_watermarks(
        tmp_path, [record("views", 20), record("views", 30, "shard 1, shop/signal"), record("buys", None)]
    )
    record_watermarks(tmp_path, [record("views", 10)])
    marks = read_table_watermarks(tmp_path, ["views", "buys", "nothing"])
    assert marks["views"] == TableWatermark(30, "shard 1, shop/signal", TEN_O_CLOCK)
    assert marks["buys"].watermark_us is None
    assert "nothing" not in marks
    # Made from tables: held by the least of these, and by one that has promised nothing.
    record_watermarks(tmp_path, [record("both", 99)], input_watermarks(tmp_path, ["views", "buys"]))
    assert read_table_watermarks(tmp_path, ["both"])["both"] == TableWatermark(None, "buys", TEN_O_CLOCK)
    record_watermarks(tmp_path, [record("buys", 25)])
    record_watermarks(tmp_path, [record("both", 99)], input_watermarks(tmp_path, ["views", "buys"]))
    assert read_table_watermarks(tmp_path, ["both"])["both"] == TableWatermark(25, "buys", TEN_O_CLOCK)
    (tmp_path / "views" / "watermark.json").write_text("{")
    with pytest.raises(DamageError, match="Delete it"):
        TableWatermarkFile(tmp_path, "views").read()


def test_the_least_input_holds_back_and_idle_ones_do_not_count_t3() -> None:
    assert least_watermark({"a": 5, "b": 3}) == (3, "b")
    assert least_watermark({"a": 5, "b": 3}, idle={"b"}) == (5, "a")
    assert least_watermark({"a": 5, "b": 3}, idle={"a", "b"}) == (3, "b"), "with no others, idle ones count"
    assert least_watermark({"a": 5, "b": None}) == (None, "b"), "one that has promised nothing holds back all"
    assert least_watermark({"a": 5, "b": None}, idle={"b"}) == (5, "a")
    assert least_watermark({}) == (None, None)


def small_graph() -> Graph:
    return order(
        {
            "deltas": ["fleet/sample", "shop/signal"],
            "views": ["shop/signal"],
            "vans": ["fleet/sample"],
            "both": ["views", "vans"],
        },
        ["fleet/sample", "shop/signal"],
    )


# One that goes on, and one that has stopped.
SOURCES = {
    "shop/signal": SourceWatermark(
        TEN_O_CLOCK, "shard 0, shop/signal", is_idle=False, idle_from_us=TEN_O_CLOCK + MINUTE_US
    ),
    "fleet/sample": SourceWatermark(
        TEN_O_CLOCK - MINUTE_US, "shard 0, fleet/sample", is_idle=True, idle_from_us=TEN_O_CLOCK
    ),
}


def test_the_platform_is_as_far_as_its_least_sink_and_a_stopped_source_is_shown_as_idle_t3() -> None:
    marks = {
        "deltas": TableWatermark(TEN_O_CLOCK),
        "views": TableWatermark(TEN_O_CLOCK),
        "vans": TableWatermark(TEN_O_CLOCK - MINUTE_US),
        "both": TableWatermark(TEN_O_CLOCK - SECOND_US),
    }
    tree = build_tree(small_graph(), SOURCES, marks, now_us=TEN_O_CLOCK + SECOND_US)
    assert (tree.watermark_us, tree.held_by) == (TEN_O_CLOCK - SECOND_US, "both")
    assert {name for name, node in tree.nodes.items() if node.is_idle} == {"fleet/sample", "vans"}
    assert tree.nodes["both"].waits_for == "views", "the vans are idle and hold nothing back"
    answer = tree_as_json(tree, now_us=TEN_O_CLOCK + SECOND_US)
    assert answer["platform"]["lag_s"] == 2.0
    assert answer["nodes"]["fleet/sample"]["is_idle"] is True

    page = io.StringIO()
    Console(file=page, width=120).print(watermark_tree_table(tree, now_us=TEN_O_CLOCK + SECOND_US))
    lines = [line.strip() for line in page.getvalue().splitlines()]
    begun = [line.split("  ")[0] for line in lines if line.startswith(("the platform", "├─", "└─"))]
    assert begun == ["the platform", "├─ both", "└─ deltas", "├─ fleet/sample", "└─ shop/signal"]
    assert [line for line in lines if line.startswith("│  ├─ views")]
    assert "idle since 2026-03-02 10:00:00" in page.getvalue()
    assert "held back by both" in page.getvalue()


def test_when_all_have_stopped_the_one_that_spoke_last_is_where_the_tables_are_t3() -> None:
    """A drain may take longer than an idle timeout: it must not look as if the silent one held back, then."""
    marks = {"deltas": TableWatermark(TEN_O_CLOCK), "both": TableWatermark(TEN_O_CLOCK)}
    later_us = TEN_O_CLOCK + 10 * MINUTE_US
    tree = build_tree(small_graph(), SOURCES, marks, now_us=later_us)
    assert all(tree.nodes[name].is_idle for name in SOURCES)
    assert [tree.nodes[name].is_counted for name in ("shop/signal", "fleet/sample", "vans")] == [True, False, False]
    assert (tree.nodes["deltas"].waits_for, tree.nodes["both"].waits_for) == ("shop/signal", "views")
    assert tree.watermark_us == TEN_O_CLOCK

    page = io.StringIO()
    Console(file=page, width=140).print(watermark_tree_table(tree, now_us=later_us))
    assert "shard 0, shop/signal, idle since 2026-03-02 10:01:00" in page.getvalue()
    assert "shard 0, fleet/sample" not in page.getvalue()


def test_nobody_is_called_idle_by_the_readers_clock_while_something_sent_is_not_sealed(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path / "home", "shards = 1\n"), HandClock()
    with open_platform(home, clock) as platform:
        producer = platform.producer("p")
        producer.write([signal("a")]).wait()
        platform.seal()
        clock.advance(100)
        producer.write([signal("b", at=clock.now_us)]).wait()
        tree = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
        assert not tree.nodes["shop/signal"].is_idle
    clock.advance(100)
    tree = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    assert tree.nodes["shop/signal"].is_idle


def test_a_home_in_which_nothing_was_made_yet_shows_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMARK_STREAMS", raising=False)  # it comes before the home's own
    home, clock = new_home(tmp_path / "home", "shards = 1\n"), HandClock()
    (home.root / "streams").mkdir()
    with open_platform(home, clock) as platform:
        platform.producer("p").write([signal("a")]).wait()
    tree = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    assert tree.watermark_us is None
    assert tree.nodes["shop/signal"].watermark_us == TEN_O_CLOCK - 5 * SECOND_US
    (home.root / "streams" / "wrong.yaml").write_text("namespace: shop\n")
    wrong = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    assert "wrong.yaml" in (wrong.error or "")
    assert wrong.nodes.keys() == tree.nodes.keys()
