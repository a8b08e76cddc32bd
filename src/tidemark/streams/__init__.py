"""Streams as their users define them: views of a namespace and kind, cut into windows, and joins of them (N1, T5).

Belongs here: what a definition may contain, how its file is read, and the error about a wrong one. Does not belong
here: how windows are computed (`assets/windows`, `assets/joins`). Importing this needs neither Spark nor Dagster.
"""

from tidemark.streams.errors import StreamError
from tidemark.streams.late_policies import Lateness, LatePolicy
from tidemark.streams.load import find_streams, load_streams
from tidemark.streams.model import Aggregate, Function, Join, JoinForm, Stream, Streams
from tidemark.streams.windows import WindowSpec, WindowType

__all__ = [
    "Aggregate",
    "Function",
    "Join",
    "JoinForm",
    "LatePolicy",
    "Lateness",
    "Stream",
    "StreamError",
    "Streams",
    "WindowSpec",
    "WindowType",
    "find_streams",
    "load_streams",
]
