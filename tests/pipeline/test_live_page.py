"""The live page in a real browser: it moves when deltas come, says when the server is gone, and asks for a token."""

import json
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.support.browser import Browser, find_chromium
from tests.support.running import tidemark
from tests.support.serving import Serving
from tidemark.storage.home import Home

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path) -> Home:
    find_chromium()
    return Home(tmp_path / "home").create("")


def send(port: int, first: int, count: int) -> None:
    """By HTTP, as anybody would: signals, and one delta that is refused."""
    event_ts = datetime.now(UTC).isoformat()
    deltas = [
        {
            "namespace": "shop",
            "kind": "signal",
            "delta_id": f"d{number}",
            "event_ts": event_ts,
            "signal": {"entity_id": f"item-{number}", "signal": "view"},
        }
        for number in range(first, first + count)
    ]
    deltas.append({**deltas[0], "delta_id": "old", "event_ts": "2001-01-01T00:00:00Z"})
    body = "\n".join(json.dumps(delta) for delta in deltas).encode()
    request = Request(f"http://127.0.0.1:{port}/v1/deltas", data=body, headers={"content-type": "application/x-ndjson"})
    with urlopen(request, timeout=30) as answer:  # noqa: S310 - our own address
        assert answer.status == 200


def shown(browser: Browser, theme: str, name: str) -> None:
    """A picture for whoever wants to look (`-s`)."""
    browser.prefer(theme)
    browser.screenshot(f"{name} {theme}")


def test_the_page_follows_the_server_and_says_when_it_is_gone(home: Home, tmp_path: Path) -> None:
    serving = Serving(home)
    with Browser(tmp_path) as browser:
        with serving:
            browser.open(f"http://127.0.0.1:{serving.http_port}/")
            browser.see("live", str(home.root), "none yet: ./tidemark drain makes them")
            send(serving.http_port, 0, 500)
            browser.see("accepted\t500", "refused\t1", "shop/signal")
            # A shard shows itself twice a second, so its epochs may be on the page a look after the outcomes.
            browser.see("applied\n1\nflushed\n1\ndurable\n0")
            for theme in ("dark", "light"):
                shown(browser, theme, "live")
            send(serving.http_port, 500, 500)
            browser.see("accepted\t1,000")
            assert browser.evaluate("document.querySelector('.curve').getAttribute('d')").count(" L ") > 1
            width = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            assert browser.evaluate(width), "nothing sticks out"
        browser.see("trying again")
        shown(browser, "dark", "gone")
        with serving:
            browser.see("live")
            assert "trying again" not in browser.text()
            browser.see("accepted\t0", "flushed\n2")
        assert browser.errors() == []


def test_the_page_asks_for_a_token_where_one_is_required(home: Home, tmp_path: Path) -> None:
    home.settings_file.write_text("[serve]\nrequire_token = true\n")
    token = tidemark(home, "token", "create", "screen", "--read", "*")["token"]
    with Serving(home) as serving, Browser(tmp_path) as browser:
        browser.open(f"http://127.0.0.1:{serving.http_port}/")
        browser.see("a token is needed", "A token is needed here, and none was given.")
        shown(browser, "light", "asking")
        browser.write("#token", "tdm_no")
        browser.click("button", "^Show$")
        browser.see("This is no token")
        browser.write("#token", token)
        browser.click("button", "^Show$")
        browser.see("live", str(home.root))
        tidemark(home, "token", "revoke", "screen")
        browser.see("This token is not known here")
