"""What the orchestrator knows: the last runs, open backfills, and every table's check results.

Belongs here: the typed answers, and whether there is an orchestrator to ask. Does not belong here: how runs and check
results are queried (`run_history.py`, `check_status.py`), and how the answers are shown (`cli/status_view.py`). Dagster
is imported only if there is a storage to read.
"""

from msgspec import Struct

from orchestration.instance import SETTINGS_FILE, has_storage
from orchestration.reasons import shortened
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import Home


class RunsUnreadableError(TidemarkError):
    """The orchestrator's storage is there and cannot be read."""


class RunStatus(Struct, frozen=True):
    """One run."""

    run_id: str
    what: str  # its assets, or the name of its job
    from_partition: str | None  # both ends are in the range; the same for a single partition
    to_partition: str | None
    status: str  # the orchestrator's word, in small letters
    is_open: bool
    at_us: int  # when it started, or was requested if it has not started
    seconds: float | None  # so far, if it is still running
    error: str | None = None  # the step, and the class and first line of the innermost error
    more_partitions: tuple[str, ...] = ()  # its partitions outside of that range


class FailingStatus(Struct, frozen=True):
    """A request that fails again and again, and has not succeeded since."""

    what: str
    from_partition: str | None
    to_partition: str | None
    times: int
    since_us: int  # when the first of these runs began
    at_us: int  # and the last
    error: str | None = None


class BackfillStatus(Struct, frozen=True):
    """One unfinished backfill."""

    backfill_id: str
    what: str
    status: str
    at_us: int


class FailedCheck(Struct, frozen=True):
    """A partition that failed its check, and why."""

    partition: str
    message: str


class CheckStatus(Struct, frozen=True):
    """The check results of a table's partitions as they are now; a result for earlier rows does not count."""

    passed: int
    failed: list[FailedCheck]  # newest partition first
    unjudged: int


class OrchestratorStatus(Struct, frozen=True):
    """Everything that is read in one look."""

    runs: list[RunStatus] = []  # open ones first, each group newest first
    backfills: list[BackfillStatus] = []
    checks: dict[str, CheckStatus] = {}
    failing: list[FailingStatus] = []  # latest failure first


def read_run_status(home: Home, *, now_us: int) -> OrchestratorStatus:
    """Runs, backfills and check results; empty if the orchestrator has never run in this home."""
    if not has_storage(home):
        return OrchestratorStatus()
    from orchestration.run_history import read_history

    try:
        return read_history(home, now_us=now_us)
    except Exception as error:
        # Any error: the settings name a storage, and each storage raises its own kinds.
        raise RunsUnreadableError(
            f"The orchestrator's storage, which {home.dagster / SETTINGS_FILE} names, cannot be read: {_briefly(error)}"
        ) from error


def _briefly(error: Exception) -> str:
    """Its kind and its first two lines: for a settings file, the second names the mistake."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shortened(" ".join([f"{type(error).__name__}:", *lines[:2]]))
