"""The layout of a home: one directory holds all state of a platform.

Belongs here: the layout, and how a home is found and opened. Deleting the directory is a complete reset; copying
it while everything is stopped is a backup.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import TEMPLATE, Settings, read_settings
from tidemark.storage import privacy

HOME_VARIABLE = "TIDEMARK_HOME"
DEFAULT_HOME = ".tidemark"


def checkout() -> Path | None:
    """The project's folder, if this package is used from one; None if it was installed by itself."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "workspace.yaml").is_file() else None


@dataclass(frozen=True)
class Home:
    """The paths of one platform, and its settings."""

    root: Path

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

    @property
    def settings_file(self) -> Path:
        """The operator's settings."""
        return self.root / "platform.toml"

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

    @property
    def plans(self) -> Path:
        """Plans of the next commits to tables, fixed before the first try."""
        return self.root / "plans"

    @property
    def lake(self) -> Path:
        """Delta tables, one folder each, and nothing else: VACUUM deletes files that it does not know."""
        return self.root / "lake"

    @property
    def quarantine(self) -> Path:
        """Folders of unreadable tables, as they were found; nothing reads them."""
        return self.root / "quarantine"

    @property
    def dagster(self) -> Path:
        """The orchestrator's own storage."""
        return self.root / "dagster"

    @property
    def reports(self) -> Path:
        """Reports for people."""
        return self.root / "reports"

    @property
    def host(self) -> Path:
        """Socket, lock and log of the process that keeps everything imported for commands and runs."""
        return self.root / "host"

    @property
    def door(self) -> Path:
        """What the network door keeps: its sockets, its tokens, and where its subscribers are."""
        return self.root / "door"

    @property
    def reads(self) -> Path:
        """How often each vector was read, a file for each day: a hint for compaction, and nothing depends on it."""
        return self.root / "reads"

    @property
    def work(self) -> Path:
        """Files that tasks of a run leave for others of the same run; when none is running, they may all go."""
        return self.root / "work"
