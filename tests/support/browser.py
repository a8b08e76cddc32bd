"""A real browser: the system's chromium, spoken to over its own debugging protocol; nothing is downloaded.

Clicks and keys are the browser's own input events, so that a page is used as a person uses it. What is looked for is
given as a CSS selector and the text that it shows.
"""

import base64
import itertools
import json
import shutil
import subprocess
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

import psutil
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.support.running import wait_until

START_LIMIT_S = 60.0
SHOWN_LIMIT_S = 60.0
# Nothing but the page: no updates, no suggestions, no first-run pages; inside containers there is no sandbox to have.
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-port=0",
    "--window-size=1600,1400",
)
# Of the elements that a selector finds and that can be seen, the innermost whose text fits.
FIND = """
((selector, text) => {
  const found = [...document.querySelectorAll(selector)].filter(element => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && (element.innerText || element.value || '').trim().match(new RegExp(text));
  });
  const innermost = found.filter(element => !found.some(other => other !== element && element.contains(other)));
  return innermost[0];
})
"""


def find_chromium() -> str:
    """The browser, or a skipped test."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return found or pytest.skip("there is no chromium here; CONTRIBUTING.md says how to get it")


class Browser:
    """One page in a browser of its own, with a profile under `folder`."""

    def __init__(self, folder: Path) -> None:
        self._program, self._folder = find_chromium(), folder
        self._numbers = itertools.count(1)
        self._connection = ExitStack()
        self._errors: list[str] = []

    def __enter__(self) -> Self:
        profile = self._folder / "profile"
        with (self._folder / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, *SWITCHES, f"--user-data-dir={profile}", "about:blank"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        port_file = profile / "DevToolsActivePort"
        port = wait_until(
            "chromium listens", lambda: port_file.read_text() if port_file.exists() else "", limit_s=START_LIMIT_S
        ).split()[0]
        self._page = self._connection.enter_context(self._connect(int(port)))
        self._ask("Runtime.enable")
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._connection.close()
        family = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
        self._process.terminate()
        _, alive = psutil.wait_procs(family, START_LIMIT_S)
        for process in alive:
            process.kill()

    def _connect(self, port: int) -> AbstractContextManager[ClientConnection]:
        with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=START_LIMIT_S) as answer:
            [page] = [target for target in json.load(answer) if target["type"] == "page"]
        return connect(page["webSocketDebuggerUrl"], max_size=None)

    def _ask(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._page.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self._page.recv(SHOWN_LIMIT_S))).get("id") != number:
            if answer.get("method") == "Runtime.exceptionThrown":
                self._errors.append(str(answer["params"]["exceptionDetails"]))
        assert "error" not in answer, f"{method}: {answer}"
        return answer["result"]

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        result = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def open(self, url: str) -> None:
        """Go to an address."""
        self._ask("Page.navigate", url=url)

    def text(self) -> str:
        """What the page shows, as text."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def see(self, *words: str, limit_s: float = SHOWN_LIMIT_S) -> str:
        """Wait until the page shows all of the words."""
        return wait_until(
            f"the page shows {words}", self.text, lambda text: all(word in text for word in words), limit_s=limit_s
        )

    def click(self, selector: str, text: str = "", *, limit_s: float = SHOWN_LIMIT_S) -> None:
        """Click into the middle of what is found, once it is there and does not move any more."""
        box = f"(element => element && JSON.stringify(element.getBoundingClientRect()))({_find(selector, text)})"
        seen: list[Any] = [None]

        def look() -> Any:
            seen.append(self.evaluate(f"{_find(selector, text)}?.scrollIntoView({{block: 'center'}}), {box}"))
            return seen[-1] if seen[-1] == seen[-2] else None

        place = json.loads(wait_until(f"{selector} {text!r} can be clicked", look, limit_s=limit_s))
        at = {"x": place["x"] + place["width"] / 2, "y": place["y"] + place["height"] / 2}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def write(self, selector: str, text: str) -> None:
        """Put text into a field in place of what is in it, and say so with the Enter key."""
        self.click(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        self._ask("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)

    def errors(self) -> list[str]:
        """What went wrong in the page's own program, so far."""
        self._ask("Runtime.getIsolateId")
        return self._errors

    def prefer(self, theme: str) -> None:
        """Dark or light, as a person's system says."""
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def screenshot(self, name: str) -> Path:
        """The page as it is seen, as a file; its path is printed."""
        path = self._folder / f"{name}.png"
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))
        print(f"screenshot: {path}")  # noqa: T201
        return path


def _find(selector: str, text: str) -> str:
    return f"{FIND}({json.dumps(selector)}, {json.dumps(text)})"
