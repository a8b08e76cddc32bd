"""Where the door of a home is: its sockets, and the note of the process that serves it.

Belongs here: paths below `HOME/door`, and whether a process serves this home now.
"""

import os
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from tidemark.storage.home import Home
from tidemark.storage.privacy import make_owners, make_owners_directory


class Serving(Struct, frozen=True):
    """The process that serves a home, as it wrote it down."""

    pid: int
    started_us: int
    w1: list[str]  # addresses for clients: tidemark://…, tidemarks://…
    http: list[str]  # http://…, https://…


def w1_socket(home: Home) -> Path:
    """Where W1 is spoken on this machine."""
    return home.door / "w1.sock"


def control_socket(home: Home) -> Path:
    """Where commands and doors ask the serving process."""
    return home.door / "control.sock"


def subscribers(home: Home) -> Path:
    """The cursors of durable subscribers."""
    return home.door / "subscribers"


def open_door(home: Home) -> Path:
    """The folder, made if it is not there; only the home's owner may look into it."""
    make_owners_directory(home.door)
    return home.door


def platform_id(home: Home) -> str:
    """A random name of this platform, made once: clients notice when an address leads to another one."""
    path = open_door(home) / "id"
    try:
        with open(path, "x", opener=make_owners) as file:
            file.write(secrets.token_hex(8))
    except FileExistsError:
        pass
    return path.read_text().strip()


def note_serving(home: Home, serving: Serving | None) -> None:
    """Write down that this process serves the home; None: that none does any more."""
    path = open_door(home) / "serve.json"
    if serving is None:
        path.unlink(missing_ok=True)
        return
    temporary = path.with_suffix(".new")
    with open(temporary, "wb", opener=make_owners) as file:
        file.write(msgspec.json.encode(serving))
    temporary.replace(path)


def read_serving(home: Home) -> Serving | None:
    """The process that serves this home now; None if none does."""
    try:
        serving = msgspec.json.decode((home.door / "serve.json").read_bytes(), type=Serving)
        os.kill(serving.pid, 0)
    except PermissionError:  # it runs, and belongs to somebody else
        return serving
    except (OSError, msgspec.MsgspecError):
        return None
    return serving
