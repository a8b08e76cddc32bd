"""`./tidemark serve` as an operator has it: processes of its own, on free ports of this machine."""

import signal
import socket
import subprocess
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.running import READY_LIMIT_S, STOP_LIMIT_S, TIDEMARK, environment, wait_until
from tidemark.storage.home import Home


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Serving:
    """A served home, from when it listens until it is told to end; it may be started again on the same ports."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._log = home.root.parent / f"{home.root.name}-serve.log"
        self.w1_port, self.http_port = free_port(), free_port()

    def __enter__(self) -> Self:
        addresses = ("--listen", f"127.0.0.1:{self.w1_port}", "--http-listen", f"127.0.0.1:{self.http_port}")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(TIDEMARK), "serve", *addresses, "--home", str(self._home.root)],
                env=environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        for port in (self.w1_port, self.http_port):
            wait_until(f"{port} is listened at ({self._log})", partial(self._answers, port), limit_s=READY_LIMIT_S)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(STOP_LIMIT_S) == 0, self.said()

    def said(self) -> str:
        """What it has printed."""
        return Path(self._log).read_text()

    def _answers(self, port: int) -> bool:
        assert self.process.poll() is None, f"serve ended by itself: {self.said()[-4_000:]}"
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return True
        except OSError:
            return False
