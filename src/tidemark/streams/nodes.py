"""YAML with line numbers, so that an error can point to its place.

Belongs here: a mapping of a file as values with their lines, and errors in its form. Does not belong here: what the
names mean (`load.py`).
"""

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

import yaml

from tidemark.streams.errors import StreamError


class Value:
    """A value in a file (text, a list or a mapping) and its place."""

    def __init__(self, path: Path, node: yaml.Node, name: str) -> None:
        self._path, self._node, self.name = path, node, name

    @property
    def line(self) -> int:
        """Its line, from 1."""
        return self._node.start_mark.line + 1

    def refuse(self, problem: str) -> NoReturn:
        """Report an error here."""
        raise StreamError(self._path, self.line, problem)

    @property
    def is_text(self) -> bool:
        """Whether it is a word or number, and not a list or a mapping."""
        return isinstance(self._node, yaml.ScalarNode)

    def text(self, instead: str) -> str:
        """As text; `instead` says what to write if it is not text."""
        if not isinstance(self._node, yaml.ScalarNode) or self._node.tag == "tag:yaml.org,2002:null":
            self.refuse(f"{self.name} has no value that can be used. Write {instead}.")
        return str(self._node.value)

    def whole_number(self) -> int | None:
        """As a number, if it was written in decimal digits. YAML's other forms (010, 0x1f, 12:30) are text."""
        if isinstance(self._node, yaml.ScalarNode) and re.fullmatch(r"[+-]?(0|[1-9][0-9_]*)", self._node.value):
            return int(self._node.value.replace("_", ""))
        return None

    def items(self, instead: str) -> list["Value"]:
        """As a list."""
        if not isinstance(self._node, yaml.SequenceNode):
            self.refuse(f"{self.name} is not a list. Write {instead}.")
        return [Value(self._path, node, self.name) for node in self._node.value]

    def mapping(self, instead: str, known: Collection[str] | None = None) -> "Mapping":
        """As names and values; `known` are the allowed names."""
        if not isinstance(self._node, yaml.MappingNode):
            self.refuse(f"{self.name} is not a mapping of names to values. Write {instead}.")
        return Mapping(self, self._path, self._node, known)


class Mapping:
    """Names and values, each name once and, if the allowed names are given, no others."""

    def __init__(self, own: Value, path: Path, node: yaml.MappingNode, known: Collection[str] | None) -> None:
        self._own = own
        self._values: dict[str, Value] = {}
        for key, value in node.value:
            name = Value(path, key, "a name")
            text = name.text("plain text as a name")
            if text in self._values:
                name.refuse(f"{text} stands here twice. Keep one of them.")
            if known is not None and text not in known:
                name.refuse(f"there is no {text!r}{_of(own.name)}. {_advice(text, known)}")
            self._values[text] = Value(path, value, text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, name: str) -> Value | None:
        """The value under a name, if there is one."""
        return self._values.get(name)

    def values(self) -> Iterator[Value]:
        """All of them, in the order of the file."""
        return iter(self._values.values())

    def require(self, name: str, instead: str) -> Value:
        """The value under a required name."""
        found = self._values.get(name)
        if found is None:
            self._own.refuse(f"{name} is missing{_of(self._own.name)}. Add '{instead}'.")
        return found


def read_file(path: Path) -> Value:
    """The whole file as one value."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise StreamError(path, mark.line + 1 if mark else 1, f"this is not YAML: {error.problem}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise StreamError(path, 1, f"this is not YAML: {error}.") from error
    if node is None:
        raise StreamError(path, 1, "the file is empty. Compare with the examples in streams/.")
    return Value(path, node, "")


def _of(name: str) -> str:
    return f" in {name}" if name else ""


def _advice(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f"Did you mean {close[0]}?" if close else f"Write one of {', '.join(known)}."
