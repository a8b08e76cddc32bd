"""How the tree of watermarks looks: the platform at its root, and below each table its inputs.

Belongs here: drawing the tree. Its contents come from `tidemark/observe/watermark_tree.py`.
"""

from rich.table import Table

from tidemark.cli.output import at, duration, table
from tidemark.observe.home_status import seconds_between
from tidemark.observe.watermark_tree import Node, WatermarkTree


def watermark_tree_table(tree: WatermarkTree, *, now_us: int) -> Table:
    """Rows of a tree. Each table shows its inputs once; where it comes again it is only named."""
    rows = table("Watermarks", "table or source", "no older event is expected, UTC", "lag", "", numbers=("lag",))
    rows.add_row("the platform", at(tree.watermark_us), _lag(tree.watermark_us, now_us), _held(tree.held_by))
    shown: set[str] = set()
    ends = [name for name in tree.sinks if tree.nodes[name].watermark_us is not None]
    _add(rows, tree, ends, "", shown, now_us)
    if rest := sorted(name for name, node in tree.nodes.items() if not node.inputs and name not in shown):
        _add(rows, tree, rest, "", shown, now_us)
    return rows


def _add(rows: Table, tree: WatermarkTree, names: list[str], indent: str, shown: set[str], now_us: int) -> None:
    for name in names:
        node, is_last = tree.nodes[name], name == names[-1]
        is_again = name in shown and bool(node.inputs)
        shown.add(name)
        label = f"{indent}{'└─ ' if is_last else '├─ '}{name}{' …' if is_again else ''}"
        rows.add_row(label, at(node.watermark_us), _lag(node.watermark_us, now_us), _note(node))
        if not is_again:
            _add(rows, tree, list(node.inputs), indent + ("   " if is_last else "│  "), shown, now_us)


def _note(node: Node) -> str:
    if not node.inputs:
        silent = f"idle since {at(node.idle_from_us)}" if node.is_idle else ""
        return ", ".join(each for each in (node.held_by if node.is_counted else None, silent) if each)
    if node.waits_for and len(node.inputs) > 1:
        return _held(node.waits_for)
    return ""


def _held(name: str | None) -> str:
    return f"held back by {name}" if name else ""


def _lag(watermark_us: int | None, now_us: int) -> str:
    return "" if watermark_us is None else duration(seconds_between(watermark_us, now_us))
