"""What a warm host was started from: when any of it changes, the host is replaced.

Belongs here: the list of what counts, and one word for its state. Files count by size and time of change: this is done
at the start of every command, and takes a few milliseconds.
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tidemark.storage.home import Home
from tidemark.tables.first_hour import FirstHourFile

PROJECT = Path(__file__).resolve().parents[2]
FOLDERS = ("assets", "expectations", "orchestration", "resources", "src", "streams")
# Streams decide which tables there are when these are first imported; this names the folder that defines them.
VARIABLES = ("TIDEMARK_STREAMS",)


def stamp_of(home: Home) -> str:
    """One word for the code, the settings and the definitions of streams."""
    chosen = [os.environ.get(name, "") for name in VARIABLES]
    folders = [*(PROJECT / name for name in FOLDERS), home.root / "streams", *(Path(each) for each in chosen if each)]
    files = [home.settings_file, Path(sys.prefix) / "share" / "tidemark" / "stamp"]
    # Not from which hour on, but how often that went back: definitions of before the first drain do as well.
    first = FirstHourFile(home).read()
    chosen.append(str(first.lowered if first else 0))
    digest = hashlib.blake2b(digest_size=16)
    for said in (sys.executable, str(home.root), *chosen):
        digest.update(f"{said}\0".encode(errors="surrogateescape"))
    for path, state in sorted([*_below(folders), *((str(file), _state(file)) for file in files)]):
        digest.update(f"{path}\0{state}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _below(folders: list[Path]) -> Iterator[tuple[str, str]]:
    """Every file of some folders. What Python compiled from them follows from them."""
    waiting = [str(folder) for folder in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir():
                        if entry.name != "__pycache__":
                            waiting.append(entry.path)
                    else:
                        yield entry.path, _state(entry)
        except OSError:
            continue  # a folder that is not there has no files


def _state(file: Path | os.DirEntry[str]) -> str:
    try:
        found = file.stat()
    except OSError:
        return "missing"
    return f"{found.st_size} {found.st_mtime_ns}"
