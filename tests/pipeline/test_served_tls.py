"""A served home with TLS: both doors are encrypted, tokens and certificates count, and what is revoked ends (W10)."""

import asyncio
import json
import ssl
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import trustme

from tests.support.running import tidemark
from tests.support.serving import Serving
from tidemark.client.connection import Connection
from tidemark.client.errors import ConnectionLostError, NackedError
from tidemark.storage.home import Home
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import FrameType
from tidemark.wire.messages import Hello
from tidemark.wire.tls import client_context

LIMIT_S = 60.0


@pytest.fixture
def ca(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made


@pytest.fixture
def home(tmp_path: Path, ca: trustme.CA) -> Home:
    home = Home(tmp_path / "home").create("")
    issued = ca.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(str(home.root / "server.pem"))
    issued.private_key_pem.write_to_path(str(home.root / "server.key"))
    settings = '[serve]\ntls_cert = "server.pem"\ntls_key = "server.key"\nrequire_token = true\n'
    home.settings_file.write_text(settings)
    return home


def delta(number: int) -> bytes:
    return json.dumps(
        {
            "namespace": "shop",
            "kind": "signal",
            "delta_id": f"d{number}",
            "event_ts": datetime.now(UTC).isoformat(),
            "signal": {"entity_id": "a", "signal": "view"},
        }
    ).encode()


async def opened(serving: Serving, context: ssl.SSLContext, token: str | None = None) -> Connection:
    hello = Hello(producer="checkout", token=token)
    return await Connection.open(f"tidemarks://localhost:{serving.w1_port}", hello, ssl=context)


def test_both_doors_are_encrypted_and_a_revoked_token_ends_what_came_in_by_it(home: Home, tmp_path: Path) -> None:
    context = client_context(tmp_path / "ca.pem")
    token = tidemark(home, "token", "create", "checkout", "--write", "shop")["token"]

    async def speak(serving: Serving) -> None:
        with pytest.raises(NackedError) as refused:
            await opened(serving, context)
        assert refused.value.nack.reason is NackReason.UNAUTHENTICATED
        connection = await opened(serving, context, token)
        written = await connection.write(connection.welcome.mark + 1, FrameType.DELTA, delta(1), rows=1)
        assert written.accepted == 1
        await asyncio.to_thread(tidemark, home, "token", "revoke", "checkout")
        ended = await asyncio.wait_for(connection.closed, LIMIT_S)
        assert isinstance(ended, ConnectionLostError)
        assert "was revoked" in str(ended)
        with pytest.raises(NackedError, match="not known here"):
            await opened(serving, context, token)

    with Serving(home) as serving:
        asyncio.run(speak(serving))
        host = f"localhost:{serving.http_port}"
        with urlopen(f"https://{host}/-/healthy", context=context, timeout=LIMIT_S) as answer:
            assert answer.status == 200
        with pytest.raises((URLError, ConnectionError)):
            urlopen(f"http://{host}/-/healthy", timeout=LIMIT_S)
        token = tidemark(home, "token", "create", "reader", "--read", "*")["token"]
        asked = Request(f"https://{host}/v1/watermarks", headers={"authorization": f"Bearer {token}"})
        with urlopen(asked, context=context, timeout=LIMIT_S) as answer:  # noqa: S310 - our own address
            assert answer.status == 200
        assert token not in serving.said()


def test_a_certificate_is_enough_for_whom_it_was_granted_to(home: Home, tmp_path: Path, ca: trustme.CA) -> None:
    with home.settings_file.open("a") as settings:
        settings.write(f'tls_client_ca = "{tmp_path / "ca.pem"}"\n')
    for name in ("billing", "stranger"):
        ca.issue_cert(f"{name}.internal", common_name=name).private_key_and_cert_chain_pem.write_to_path(
            str(tmp_path / f"{name}.pem")
        )
    tidemark(home, "token", "create", "billing", "--certificate", "--write", "shop")

    async def speak(serving: Serving) -> None:
        billing, stranger = (
            client_context(tmp_path / "ca.pem", cert=tmp_path / f"{name}.pem") for name in ("billing", "stranger")
        )
        connection = await opened(serving, billing)
        written = await connection.write(connection.welcome.mark + 1, FrameType.DELTA, delta(1), rows=1)
        assert written.accepted == 1
        await connection.close()
        with pytest.raises(NackedError, match="'stranger' are granted nothing"):
            await opened(serving, stranger)
        with pytest.raises((OSError, ConnectionLostError)):
            await opened(serving, client_context(tmp_path / "ca.pem"))

    with Serving(home) as serving:
        asyncio.run(speak(serving))
