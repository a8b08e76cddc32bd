"""The account: outcomes are disjoint, add up to what was received, and are compared with the tables."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from msgspec import to_builtins

from orchestration.cli.app import main
from tests.support.live import TEN_O_CLOCK, new_home, open_platform, signal
from tidemark.model.timegrid import from_us
from tidemark.observe import account
from tidemark.observe.account import take_account
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Six deltas received: three accepted, one copy, two refused."""
    home = new_home(tmp_path / "home", "shards = 2\n")
    with open_platform(home) as platform:
        deltas = [*(signal(f"d{n}", entity=f"item-{n}") for n in range(3)), signal("d0", entity="item-0")]
        platform.producer("shop_floor").write([*deltas, b"{", signal("", entity="item-5")]).wait()
    return home


def drained(monkeypatch: pytest.MonkeyPatch, home: Home, *, deltas: int, letters: list[tuple[str, str]]) -> None:
    """Put tables in place as a drain of everything would have left them."""
    monkeypatch.setattr(account, "durable_epochs", lambda _home: {0: 1_000, 1: 1_000})
    hour = [from_us(TEN_O_CLOCK)]
    rows = pa.table({"delta_id": [f"d{n}" for n in range(deltas)], "event_hour": hour * deltas})
    write_deltalake(home.lake / "deltas", rows, partition_by=["event_hour"])
    verdicts, reasons = [verdict for verdict, _ in letters], [reason for _, reason in letters]
    rows = pa.table({"verdict": verdicts, "reason": reasons, "received_hour": hour * len(letters)})
    write_deltalake(home.lake / "dead_letters", rows, partition_by=["received_hour"])


REFUSED = [("refused", "malformed"), ("refused", "empty_id")]


def outcomes(home: Home) -> dict[str, int]:
    found: dict[str, int] = to_builtins(take_account(home).outcomes)
    return found


def test_what_is_sealed_and_not_drained_is_waiting(home: Home) -> None:
    assert outcomes(home) == {
        "received": 6,
        "accepted": 0,
        "duplicate": 1,
        "refused": 2,
        "turned_away": 0,
        "waiting": 3,
    }
    assert take_account(home).reasons == {"malformed": 1, "empty_id": 1}


def test_what_is_drained_is_accepted(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    drained(monkeypatch, home, deltas=3, letters=REFUSED)
    assert outcomes(home) == {
        "received": 6,
        "accepted": 3,
        "duplicate": 1,
        "refused": 2,
        "turned_away": 0,
        "waiting": 0,
    }
    assert take_account(home).disagreements == []


def test_a_copy_that_only_the_drain_saw_is_a_duplicate_and_a_reused_id_is_refused(
    monkeypatch: pytest.MonkeyPatch, home: Home
) -> None:
    found = [("accepted", "duplicate"), ("accepted", "id_reuse")]
    drained(monkeypatch, home, deltas=1, letters=[*REFUSED, *found])
    assert outcomes(home) == {
        "received": 6,
        "accepted": 1,
        "duplicate": 2,
        "refused": 3,
        "turned_away": 0,
        "waiting": 0,
    }
    taken = take_account(home)
    assert taken.reasons["id_reuse"] == 1
    assert (taken.duplicates_at_arrival, taken.duplicates_at_drain) == (1, 1)
    assert taken.disagreements == []


@pytest.mark.parametrize(("deltas", "letters"), [(2, REFUSED), (4, REFUSED), (3, REFUSED[:1])])
def test_a_table_that_says_something_else_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    home: Home,
    capsys: pytest.CaptureFixture[str],
    deltas: int,
    letters: list[tuple[str, str]],
) -> None:
    drained(monkeypatch, home, deltas=deltas, letters=letters)
    assert main(["account", "--json", "--home", str(home.root)]) == 1
    assert len(json.loads(capsys.readouterr().out)["disagreements"]) == 1


def test_the_json_account_has_integers_only_and_adds_up(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["account", "--json", "--home", str(home.root)]) == 0
    found = json.loads(capsys.readouterr().out)["account"]
    assert all(type(number) is int for number in found.values())
    assert found.pop("received") == sum(found.values())
