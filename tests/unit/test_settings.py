"""The settings of a home: what is read, what is refused, and what the refusal says."""

import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import NAME_PATTERN, TEMPLATE, Settings, is_name, read_settings
from tidemark.storage.home import Home


def test_a_new_home_has_every_default(tmp_path: Path) -> None:
    assert Home(tmp_path).create().settings == Settings()


def test_the_template_shows_each_setting_with_its_default() -> None:
    shown = tomllib.loads(
        "\n".join(line.removeprefix("# ") for line in TEMPLATE.splitlines() if " = " in line or "[" in line)
    )
    namespaces, streams = shown.pop("namespaces"), shown["admission"].pop("streams")
    defaults = msgspec.to_builtins(Settings(), builtin_types=(type(Settings().earliest_event_ts),))
    defaults["counts"]["half_lives"] = list(defaults["counts"]["half_lives"])
    assert defaults["admission"].pop("streams") == {}
    assert streams == {"shop/signal": {"class": "gold", "rate": 1_000.0}}
    assert namespaces == {"shop": {"dimension": 384}}
    assert shown["spark"].items() <= defaults["spark"].items()
    assert {name: value for name, value in shown.items() if name != "spark"} == {
        name: value for name, value in defaults.items() if name not in {"spark", "namespaces"}
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("shards = 0", "shards"),
        ("shard = 1", "shard"),
        ("shards = ", "Invalid value"),
        ("clock_skew_ms = -1", "clock_skew_ms"),
        ("earliest_event_ts = 2026-01-01T00:00:00", "time zone"),
        ("[batch]\nmin_ms = 0", "min_ms"),
        ("[batch]\nrate_change = 1.0", "rate_change"),
        ("[batch]\nmin_ms = 100\nmax_ms = 50", "above max_ms"),
        ('[counts]\nhalf_lives = ["1w"]', "half_lives"),
        ('[counts]\nhalf_lives = ["1h", "1h"]', "twice"),
        ('[compaction]\nstrategy = "all"', "strategy"),
        ("[compaction]\nthreshold = 0", "threshold"),
        ("[compaction]\nthreshold = 2000", "below threshold"),
        ("[compaction]\nkeep_recent = 1000", "not above keep_recent"),
        ('[counts]\nhalf_lives = ["1h\\n"]', "half_lives"),
        ('[namespaces."a/b"]', "plain name"),
        ('[namespaces."shop\\n"]', "plain name"),
        ("[namespaces.shop]\ndimension = 0", "dimension"),
        ('[serve]\nlisten = "7433"', "listen"),
        ('[serve]\nhttp_listen = "::1:7480"', "http_listen"),
        ('[serve]\ntls_cert = "a.pem"', "names tls_cert and no tls_key"),
        ('[serve]\ntls_key = "a.pem"', "names tls_key and no tls_cert"),
        ('[serve]\ntls_client_ca = "a.pem"', "needs TLS"),
        ("[serve]\nconnections = 0", "connections"),
        ("[admission]\nmin_rate = 3_000_000", "above max_rate"),
        ("[admission.classes.bronze]\nrate = 0", "rate"),
        ("[admission.classes.bronze]\nshare = 0.9", "add up to 1.75"),
        ("[admission.classes.iron]\nrate = 1", "iron"),
        ('[admission.streams."shop/signal"]\nclass = "iron"', "iron"),
        ('[admission.streams."shop/signal"]\nburst = 5', "neither class nor rate"),
        ('[admission.streams."shop"]\nclass = "gold"', "no stream"),
        ('[admission.streams."shop/thing"]\nclass = "gold"', "no stream"),
        ('[admission.streams."Shop/signal"]\nclass = "gold"', "plain name"),
        ('[admission.streams."/signal"]\nclass = "gold"', "no stream"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "platform.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        read_settings(path)
    assert str(path) in str(refused.value)


@given(st.from_regex(NAME_PATTERN, fullmatch=True).map(str.rstrip), st.text(max_size=2))
def test_a_plain_name_is_plain_to_its_very_end(name: str, added: str) -> None:
    assert is_name(name)
    assert is_name(name + added) == (
        set(added) <= set("abcdefghijklmnopqrstuvwxyz0123456789_") and len(name + added) < 64
    )


@pytest.mark.parametrize("text", ["", "a\n", "\na", "a\n\n", "a\r", "a\x00", "A", "_a", "1a", "ä", "a" * 64, "a\u0660"])
def test_what_only_looks_like_a_plain_name_is_none(text: str) -> None:
    assert not is_name(text)


def test_opening_a_home_again_changes_no_setting(tmp_path: Path) -> None:
    home = Home(tmp_path).create("shards = 2\n")
    assert Home(tmp_path).create().settings.shards == home.settings.shards == 2
