"""Which rules and decisions are cited where: comments, docstrings and prose, and nothing that only looks like a rule.

Belongs here: finding citations in texts, and the files to look at. What must hold for them is in
`tests/unit/test_specification.py`.

A rule is a letter and a number as a whole word: `C7`, not `Q2x`, `v1.C7`, `S101` or `UTF-8`. In Python it counts in
comments and docstrings; in any other string only in parentheses, "(C7)", at its start, "C7: …", or as all of it, as the
harness in `chaos/` names the rule that was broken. In Markdown, code blocks do not count. "K1 to K5" and "V1-V3" cite
every rule from the first to the last.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LETTERS = "ACDKNOPQRSTVW"

_RULE = re.compile(rf"(?<![\w.#/-])([{LETTERS}])(\d{{1,2}})(?:(?:-| to )\1(\d{{1,2}}))?(?![\w/]|[.]\d)")
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_AT_THE_START = re.compile(rf"[{LETTERS}]\d{{1,2}}(?=:|$)")
_CODE_BLOCK = re.compile(r"^```.*?^```|^ {4}[^\n]*$", re.DOTALL | re.MULTILINE)
_DECISION = re.compile(r"\bdecisions?\s+(\d+(?:(?:,\s*|\s+and\s+|,\s*and\s+|\s+to\s+)\d+)*)\b", re.IGNORECASE)
_IN_A_NAME = re.compile(rf"(?<=_)[{LETTERS.lower()}]\d{{1,2}}(?=_|$)")
_NOT_OURS = {"build", "dist", "node_modules"}


def our_files(*suffixes: str) -> list[Path]:
    """All files of the project with such a suffix; what is made by tools lies in folders that begin with a dot."""
    return sorted(
        path
        for top in ROOT.iterdir()
        if not top.name.startswith(".") and top.name not in _NOT_OURS
        for path in ([top] if top.is_file() else top.rglob("*"))
        if path.suffix in suffixes and path.is_file() and "__pycache__" not in path.parts
    )


def rules_in_text(text: str) -> set[str]:
    """The rules that a piece of prose cites."""
    return {
        f"{letter}{number}"
        for letter, first, last in _RULE.findall(text)
        for number in range(int(first), int(last or first) + 1)
    }


def rules_in_python(source: str) -> set[str]:
    """The rules that a Python file cites."""
    docstrings = {(text.lineno, text.col_offset) for text in _docstrings(ast.parse(source))}
    found = set[str]()
    for kind, text, start, _, _ in tokenize.generate_tokens(io.StringIO(source).readline):
        if kind == tokenize.COMMENT or (kind == tokenize.STRING and start in docstrings):
            found |= rules_in_text(text)
        elif kind == tokenize.STRING:
            value = text.lstrip("rbfRBF").strip("\"'")
            at_the_start = _AT_THE_START.match(value)
            found |= rules_in_text(" ".join(_IN_PARENTHESES.findall(value)))
            found |= rules_in_text(at_the_start[0]) if at_the_start else set()
    # A name may say it, too: `test_a_log_is_sealed_by_age_c5`.
    names = re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE)
    return found | {word.upper() for name in names for word in _IN_A_NAME.findall(name)}


def rules_cited() -> Mapping[Path, set[str]]:
    """The rules that each file of the project cites; files that cite none are left out."""
    readers = {".py": rules_in_python, ".md": rules_in_prose, ".yaml": rules_in_text}
    cited = {path: readers[path.suffix](path.read_text()) for path in our_files(*readers)}
    return {path: rules for path, rules in cited.items() if rules}


def rules_in_prose(text: str) -> set[str]:
    """The rules that a Markdown file cites outside of its code blocks."""
    return rules_in_text(_CODE_BLOCK.sub("", text))


def decisions_in_text(text: str) -> set[str]:
    """The numbers of decisions that a text cites, as they are written; lines of a comment are one text."""
    joined = re.sub(r"\s*\n\s*(?:#\s*)?", " ", text)
    return {number for found in _DECISION.findall(joined) for number in re.findall(r"\d+", found)}


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value
