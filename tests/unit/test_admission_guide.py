"""What the guide says of admission is what the program does."""

import re
from pathlib import Path

from tests.support.admission import SHOP, write
from tests.support.live import TEN_O_CLOCK
from tidemark.admission.arriving import Load
from tidemark.admission.decide import Decision, Rules, State, applied, decide
from tidemark.admission.shares import ClassKey, Held
from tidemark.admission.shedder import Shedder
from tidemark.model.admission_settings import AdmissionSettings, ClassName
from tidemark.model.deltas import Priority
from tidemark.model.settings import read_settings
from tidemark.model.timegrid import MINUTE_US, SECOND_US

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guide/admission.md").read_text()
NOW = TEN_O_CLOCK + SECOND_US


def state_of_the_page(path: Path) -> State:
    [settings] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path.write_text(settings)
    return State(Rules.of(read_settings(path).admission), since_us=TEN_O_CLOCK)


def test_the_classes_have_these_values() -> None:
    rows = re.findall(
        r"^\| (bronze|silver|gold|platinum) \| (\S+) \| (\S+) \| (\S+) s \| (\S+) \|$", PAGE, re.MULTILINE
    )
    classes = {name.value: getattr(AdmissionSettings().classes, name) for name in ClassName}
    assert {name: tuple(map(float, values)) for name, *values in rows} == {
        name: (each.rate, each.burst, each.lag_ms / 1_000, each.share) for name, each in classes.items()
    }


def test_the_settings_can_be_read_and_mean_what_is_said(tmp_path: Path) -> None:
    agreed = state_of_the_page(tmp_path / "platform.toml").rules.agreed
    rates = {
        "/".join(stream): (sla.rate // 1_000_000, sla.class_name, sla.policy.value) for stream, sla in agreed.items()
    }
    assert rates == {
        "shop/signal": (1_000, "gold", "prefer_throttle"),
        "fleet/sample": (10, "bronze", "prefer_throttle"),
        "shop/vector": (50, None, "strict"),
    }


def test_producers_see_these_sentences(tmp_path: Path) -> None:
    table = re.findall(r"^\| `(\w+)` \| ([A-Z].*?|shop/.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    told = {word: (sentence, again) for word, sentence, again in table}
    state = state_of_the_page(tmp_path / "platform.toml")
    state = applied(state, decide(state, write(5_000, SHOP, at=NOW), NOW))
    shedder = Shedder(above_since_us=NOW - SECOND_US, seen_us={Priority.HIGH: NOW})
    everything: dict[ClassKey, Held] = {ClassName.BRONZE: Held(deltas=50_000)}
    fresh = State(state.rules, since_us=TEN_O_CLOCK)
    found = [
        decide(state, write(at=NOW), NOW),
        decide(fresh, write(at=NOW - MINUTE_US), NOW),
        decide(
            fresh._replace(shedder=shedder, load=Load(waited_us=SECOND_US)),
            write(stream=("other", "signal"), priority=Priority.LOW),
            NOW,
        ),
        decide(fresh._replace(held=everything), write(1, ("fleet", "sample"), at=NOW), NOW),
    ]
    assert told == {str(decision.reason): (decision.message, _again(decision)) for decision in found}


def _again(decision: Decision) -> str:
    return "never" if decision.is_final else f"after {decision.retry_after_ms:,} ms"
