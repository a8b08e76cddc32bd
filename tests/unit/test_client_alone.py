"""What a program that sends needs: msgspec, zstandard and a CRC, and nothing else; what it gives is copied (C14)."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidemark
from tests.support.served import home_at, served
from tidemark import Delta, Signal
from tidemark.client import connect_async
from tidemark.client.encoding import encode_columns, encode_rows
from tidemark.client.errors import AddressError, ClientError, EncodingError, ForkedError, NotYetError, TooLargeError
from tidemark.client.handles import Sent
from tidemark.testing import server

ROOT = Path(__file__).resolve().parents[2]
SOON_S = 30.0
NOT_NEEDED = "pyarrow numpy pandas polars numba click rich yaml duckdb deltalake filelock uvloop starlette uvicorn"

ALONE = f"""
import sys
import time
from importlib.abc import MetaPathFinder

class NotInstalled(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {NOT_NEEDED.split()!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)

sys.meta_path.insert(0, NotInstalled())
import tempfile, tidemark, tidemark.testing
with tidemark.testing.server() as server, tempfile.TemporaryDirectory() as spool:
    with tidemark.connect(server.url, producer="shop", spool=spool, compress=True) as client:
        delta = tidemark.Delta("shop", "signal", "o-1", 1, signal=tidemark.Signal("item", "buy"))
        print(client.send([delta, {{"n": 1}}] * 100).wait(timeout=30).accepted, len(server.deltas))
        class Columns:
            def __arrow_c_stream__(self): ...
        try:
            client.send(Columns())
        except tidemark.client.ClientError as error:
            print(error)
"""


def test_the_client_needs_neither_arrow_nor_numpy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts, error = done.stdout.splitlines()
    assert counts == "200 200"
    assert "PyArrow must be installed" in error


ROWS = [{"namespace": "shop", "kind": "signal", "delta_id": f"o-{n}", "event_ts": n} for n in range(10)]
TABLE = pa.Table.from_pylist(ROWS)


@pytest.mark.parametrize(
    "deltas",
    [
        ROWS,
        tuple(ROWS),
        (row for row in ROWS),
        TABLE,
        TABLE.to_batches()[0],
        pl.DataFrame(ROWS),
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=range(5, 15)),
    ],
    ids=lambda deltas: type(deltas).__module__.partition(".")[0] + "." + type(deltas).__name__,
)
def test_rows_and_tables_of_every_library_arrive_as_the_same_deltas(deltas: Any) -> None:
    with server() as found, tidemark.connect(found.url, producer="shop", rows=4) as client:
        assert client.send(deltas).wait(timeout=SOON_S).accepted == 10
        assert found.deltas == ROWS
        assert len(found.writes("shop")) == 3


@pytest.mark.parametrize("kind", [pa.table, pl.DataFrame, pd.DataFrame])
def test_columns_reach_a_real_server(tmp_path: Path, kind: Any) -> None:
    """As structs of the envelope and a payload, whatever library made them."""
    signals = [{"entity_id": "a", "signal": "buy", "count": 1, "weight": 0.5}] * 10
    table = TABLE.set_column(3, "event_ts", pa.array(range(10**15 * 1_763 // 1_000, 10**15 * 1_763 // 1_000 + 10)))
    table = table.append_column("signal", pa.array(signals))
    columns = {name: table[name].to_pylist() for name in table.column_names}
    deltas = table if kind is pa.table else kind(columns)
    with (
        served(home_at(tmp_path / "home")) as found,
        tidemark.connect(found.url, producer="shop", spool=tmp_path / "spool") as client,
    ):
        outcome = client.send(deltas).wait(timeout=SOON_S)
        assert (outcome.accepted, outcome.refusals) == (10, ())


def test_what_the_caller_does_afterwards_changes_nothing() -> None:
    """C14: deltas are encoded before `send` returns."""
    numbers = np.arange(3)
    delta = {"n": 1, "list": [1, 2], "array": numbers}
    column = np.arange(4)
    with server() as found, tidemark.connect(found.url, producer="shop", linger_s=0.05) as client:
        client.send([delta])
        client.send(pa.table({"n": pa.array(column)}))
        delta["n"], numbers[:], column[:] = 2, 9, 9
        client.flush(SOON_S)
        assert found.deltas == [{"n": 1, "list": [1, 2], "array": [0, 1, 2]}, *({"n": n} for n in range(4))]


def test_what_json_cannot_say_is_said_as_python_does_and_not_as_null() -> None:
    """The server has a word for NaN, `not_finite`; a null would be a missing field."""
    [line] = encode_rows([{"value": float("nan"), "none": None, "array": np.array([1.5, np.inf])}], 1_000)
    assert line == b'{"value":NaN,"none":null,"array":[1.5,Infinity]}'
    [line] = encode_rows([Delta("a", "signal", "é", 1, signal=Signal("x", "y", weight=float("-inf")))], 1_000)
    assert line.endswith(
        '"delta_id":"é","event_ts":1,"signal":{"entity_id":"x","signal":"y","weight":-Infinity}}'.encode()
    )
    assert encode_rows(['{"a":\n1}', b'{"a":\r\n1}', bytearray(b"{}")], 100) == [b'{"a": 1}', b'{"a":  1}', b"{}"]


@pytest.mark.parametrize(
    ("deltas", "why"),
    [
        (3, "A int cannot be sent"),
        ([3], "Delta 0 is a int"),
        ([{}, {"a": object()}], "Delta 1 cannot be written as JSON"),
        ([{("a", "b"): 1}], "Delta 0 cannot be written as JSON"),
        (pd.DataFrame({"a": [1, "x", object()]}), "cannot be read as columns"),
    ],
)
def test_what_cannot_be_sent_is_told_at_once_and_nothing_of_it_is_taken(deltas: Any, why: str) -> None:
    with server() as found, tidemark.connect(found.url, producer="shop") as client:
        with pytest.raises(EncodingError, match=why):
            client.send(deltas)
        assert client.stats.waiting_bytes == 0


def test_large_tables_are_split_and_rows_that_fit_nowhere_are_told() -> None:
    table = pa.table({"text": ["x" * 1_000] * 100})
    pieces = encode_columns(table, 1_000, 20_000, 30_000)
    assert sum(piece.rows for piece in pieces) == 100
    assert max(len(piece.payload) for piece in pieces) <= 20_000
    with pytest.raises(TooLargeError, match="One row has"):
        encode_columns(table, 1_000, 500, 600)
    with pytest.raises(TooLargeError, match="Delta 1 has"):
        encode_rows([{}, {"a": "x" * 100}], 50)
    with server() as found, tidemark.connect(found.url, producer="shop", memory_bytes=1_000) as client:
        with pytest.raises(TooLargeError, match="several calls"):
            client.send([{"a": "x" * 600}] * 2)
        assert client.send([]).wait(timeout=SOON_S).deltas == 0


@pytest.mark.parametrize(
    "address",
    ["", "localhost", "http://localhost", "tidemark://", "tidemark://a:b", "tidemark://a/x", "unix:", "tidemark://t@a"],
)
def test_an_address_that_is_none_is_told(address: str) -> None:
    with pytest.raises(AddressError, match="is no address of a server"):
        tidemark.connect(address, producer="shop")


@pytest.mark.parametrize(
    "options",
    [{"producer": "No name"}, {"levels": ["solid"]}, {"levels": ["applied"]}, {"spool": "x", "from_start": True}],
)
def test_options_that_mean_nothing_are_told(options: dict[str, Any]) -> None:
    with pytest.raises(ClientError):
        tidemark.connect("tidemark://localhost", **{"producer": "shop", **options})


def test_a_client_belongs_to_the_process_that_made_it(tmp_path: Path) -> None:
    with (
        server() as found,
        tidemark.connect(found.url, producer="shop", spool=tmp_path / "spool") as client,
    ):
        sent = client.send([{"n": 1}])
        sent.wait(timeout=SOON_S)
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (lambda: client.send([{}]), sent.wait, client.close, client.flush):
                try:
                    use()
                except ForkedError:
                    refused += 1
            os._exit(refused)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 4
        assert client.send([{"n": 2}]).wait(timeout=SOON_S).accepted == 1
        assert found.deltas == [{"n": 1}, {"n": 2}]


AT_EXIT = """
import sys, tidemark
client = tidemark.connect(sys.argv[1], producer="shop", linger_s=60, exit_s=float(sys.argv[2]))
client.send([{"n": 1}])
"""


@pytest.mark.parametrize("is_there", [True, False])
def test_the_end_of_a_program_sends_what_lingers_or_says_what_it_could_not(is_there: bool) -> None:
    with server() as found:
        if not is_there:
            found.stop()
        done = subprocess.run(
            [sys.executable, "-c", AT_EXIT, found.url, "20" if is_there else "0.1"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(found.deltas) == is_there
        assert ("1 deltas were not acknowledged" in done.stderr) != is_there


def test_coroutines_send_and_await_and_wait_for_room() -> None:
    async def conversation(url: str) -> None:
        async with await connect_async(url, producer="shop", rows=2, linger_s=0.0, memory_bytes=60) as client:
            sent = await asyncio.gather(*(send(client, number) for number in range(40)))
            assert [outcome.accepted for outcome in sent] == [1] * 40
            assert await client.flush()
            found.stop()
            handles: list[Sent] = []
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(send_for_ever(client, handles), 0.2)
            found.start()
            await asyncio.gather(*handles)
            assert len(found.deltas) == 40 + len(handles)

    async def send_for_ever(client: Any, handles: list[Sent]) -> None:
        while True:
            handles.append(await client.send([{"n": 99}]))

    async def send(client: Any, number: int) -> Any:
        return await (await client.send([{"n": number}]))

    with server() as found:
        asyncio.run(conversation(found.url))
        assert {delta["n"] for delta in found.deltas} == {*range(40), 99}


def test_threads_share_a_client() -> None:
    """Each thread's deltas arrive in its own order."""
    from concurrent.futures import ThreadPoolExecutor

    with server() as found, tidemark.connect(found.url, producer="shop", rows=7, memory_bytes=2_000) as client:

        def work(thread: int) -> None:
            for number in range(100):
                client.send([{"t": thread, "n": number}], timeout=SOON_S)

        with ThreadPoolExecutor(5) as pool:
            list(pool.map(work, range(5)))
        assert client.flush(SOON_S)
        for thread in range(5):
            assert [each["n"] for each in found.deltas if each["t"] == thread] == list(range(100))


def test_who_waits_for_the_tables_hears_of_it_on_a_later_connection_too(tmp_path: Path) -> None:
    """W4: what an earlier connection has sent is acknowledged as durable, without being sent again."""
    durable = {0: 0}
    now_us = 1_763_199_001_000_000
    signal = {"entity_id": "a", "signal": "buy"}
    delta = {"namespace": "shop", "kind": "signal", "delta_id": "o-1", "event_ts": now_us, "signal": signal}
    with served(home_at(tmp_path / "home"), clock=lambda: now_us, durable_epochs=lambda: durable) as door:
        client = tidemark.connect(door.url, producer="shop", levels=("durable",), longest_wait_s=0.05)
        sent = client.send(delta)
        assert sent.wait(timeout=SOON_S).accepted == 1
        with pytest.raises(NotYetError, match="Not durable"):
            sent.wait("durable", timeout=0.05)
        for connection in list(door.door._connections):
            door.call(_ended(connection))
        while client.stats.connections < 2:
            time.sleep(0.01)
        durable[0] = 1
        assert sent.wait("durable", timeout=SOON_S).accepted == 1
        client.close()


async def _ended(connection: Any) -> None:
    connection.end()
