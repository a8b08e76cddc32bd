"""The layout of a home: one directory holds all state of a platform.

Belongs here: the layout, and how a home is found and opened. Deleting the directory is a complete reset; copying
it while everything is stopped is a backup.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import TEMPLATE, Settings, read_settings
from tidemark.storage import privacy

HOME_VARIABLE = "TIDEMARK_HOME"
DEFAULT_HOME = ".tidemark"


def checkout() -> Path | None:
    """The project's folder, if this package is used from one; None if it was installed by itself."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "workspace.yaml").is_file() else None


class HasRoot(Protocol):
    """What lies in one folder."""

    @property
    def root(self) -> Path: ...


class Below:
    """A file or folder of something by its name below the root, and what is in it."""

    def __init__(self, name: str, content: str) -> None:
        self._name, self.__doc__ = name, content

    def __get__(self, owner: HasRoot, _: object) -> Path:
        return owner.root / self._name


@dataclass(frozen=True)
class Home:
    """The paths of one platform, and its settings."""

    root: Path

    settings_file = Below("platform.toml", "The operator's settings.")
    plans = Below("plans", "Plans of the next commits to tables, fixed before the first try.")
    lake = Below("lake", "Delta tables, one folder each, and nothing else: VACUUM deletes files that it does not know.")
    quarantine = Below("quarantine", "Folders of unreadable tables, as they were found; nothing reads them.")
    dagster = Below("dagster", "The orchestrator's own storage.")
    reports = Below("reports", "Reports for people.")
    host = Below("host", "Socket, lock and log of the process that keeps everything imported for commands and runs.")
    door = Below("door", "What the network door keeps: its sockets, its tokens, and where its subscribers are.")
    reads = Below(
        "reads",
        "How often each vector was read, a file for each day: a hint for compaction, and nothing depends on it.",
    )
    work = Below(
        "work", "Files that tasks of a run leave for others of the same run; when none is running, they may all go."
    )

    @classmethod
    def locate(cls, option: str | Path | None = None) -> "Home":
        """The chosen home: the option, else `TIDEMARK_HOME`, else `.tidemark/` of the checkout or of this directory."""
        chosen = option or os.environ.get(HOME_VARIABLE)
        root = Path(chosen) if chosen else (checkout() or Path.cwd()) / DEFAULT_HOME
        return cls(root.expanduser().resolve())

    def create(self, settings_text: str = TEMPLATE) -> "Home":
        """Create missing directories and the settings file; change nothing that exists.

        With one exception: a home that others can look into is closed to them (`privacy.py`).
        """
        self.root.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.root.mkdir(mode=0o700)
        except FileExistsError:
            if self.settings_file.exists() or not any(self.root.iterdir()):
                privacy.tighten(self.root)
        privacy.follow(self.root)
        for folder in (self.root / "log", self.root / "segments", self.plans, self.lake, self.dagster, self.reports):
            privacy.make_directory(folder)
        if not self.settings_file.exists():
            with open(self.settings_file, "w", opener=privacy.make_private) as file:
                file.write(settings_text)
        return self

    @property
    def exists(self) -> bool:
        """Whether a platform is here: its settings, or what it has acknowledged."""
        return self.settings_file.is_file() or any((self.root / name).is_dir() for name in ("log", "segments"))

    def require(self) -> "Home":
        """This home, if a platform is here: an empty answer about a mistyped directory would look healthy."""
        if not self.exists:
            raise ConfigurationError(
                f"There is no home at {self.root}. Correct --home or {HOME_VARIABLE}; or make one: './tidemark send' "
                "puts your deltas into a new home, and './tidemark demo' fills one with a made-up day."
            )
        return self

    @cached_property
    def settings(self) -> Settings:
        """The settings, read once on first use."""
        return read_settings(self.settings_file)

    def log(self, shard: int) -> Path:
        """Log files, reservation and state of one shard."""
        return self.root / "log" / f"shard-{shard:04d}"

    def segments(self, shard: int) -> Path:
        """Sealed segments of one shard, and the manifest that names them."""
        return self.root / "segments" / f"shard-{shard:04d}"
