"""A shared Spark server: one JVM for all runs that the daemon starts, reached through Spark Connect.

Belongs here: how the server is started, who may use it, and how a run finds it. A run of seconds would otherwise spend
half a minute on a JVM of its own. A run that finds no server starts its own JVM: the server saves time, and nothing
depends on it. It finishes the request of a run that was killed: `lake.py` tells that commit from the next run's.
"""

import os
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from resources.session import FAST_START_SETTINGS, SERVER_VARIABLE, session_settings, start_session
from resources.spark_internals import limit_retries
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's own name for it, read by server and client: no other user of this machine may run anything there.
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name, not the token
# The server needs about ten seconds to start, and many more on a busy machine, where a second JVM would be the worst.
PATIENCE_S = 90.0
# Within ten seconds or so it is clear that a server is gone.
RETRIES, RETRY_MS = 8, 2_000
SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
SERVER_OPTIONS = (
    # Tables are deleted and restored behind its back: it must look at the disk each time.
    "-Ddelta.log.cacheSize=0"
)


def server_address() -> dict[str, str]:
    """Variables for a new server and for its clients: a free port, and a secret."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    # The client sends a token without TLS only to a host of this name.
    return {SERVER_VARIABLE: f"sc://localhost:{port}", TOKEN_VARIABLE: secrets.token_urlsafe(32)}


def server_command(
    home: Home,
    address: Mapping[str, str],
    *,
    is_fast_start: bool = False,
    overrides: Mapping[str, str] | None = None,
) -> list[str]:
    """The command that starts the server; its environment must have the variables of the address."""
    import pyspark

    settings = {**session_settings(home, is_fast_start=is_fast_start), **(overrides or {})}
    settings["spark.driver.extraJavaOptions"] += f" {SERVER_OPTIONS}"
    settings["spark.connect.grpc.binding.address"] = "127.0.0.1"
    settings["spark.connect.grpc.binding.port"] = str(urlparse(address[SERVER_VARIABLE]).port)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    return [str(submit), *options, "--class", SERVER_CLASS, "spark-internal"]


def connect(*, is_fast_start: bool = False, patience_s: float = PATIENCE_S) -> "SparkSession | None":
    """A session on the server of this process's environment; None if it names none or does not answer."""
    url = os.environ.get(SERVER_VARIABLE)
    if not url or not _answers(url, patience_s):
        return None
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(url).getOrCreate()
    # By default it would retry for ten minutes. A server that died has forgotten this session: it is better to fail the
    # run, and start it again.
    limit_retries(session, retries=RETRIES, longest_pause_ms=RETRY_MS)
    for name, value in FAST_START_SETTINGS.items() if is_fast_start else ():
        session.conf.set(name, value)
    return session


def find_session(home: Home, *, is_fast_start: bool, overrides: dict[str, str] | None = None) -> "SparkSession":
    """A session on the server of this process's environment, or else in a JVM of its own.

    Overrides always need a JVM of their own.
    """
    shared = None if overrides else connect(is_fast_start=is_fast_start)
    return shared or start_session(home, is_fast_start=is_fast_start, overrides=overrides)


def _answers(url: str, patience_s: float) -> bool:
    port, deadline = urlparse(url).port, time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.2)
        else:
            return True
