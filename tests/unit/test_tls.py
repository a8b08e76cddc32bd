"""TLS 1.3 at the door, certificates of clients, and where it may listen without either (W10)."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme

from tidemark.gateway.access.tls import (
    certificate_name,
    check_exposure,
    is_loopback,
    parse_listen,
    server_context,
)
from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import ServeSettings
from tidemark.storage.home import Home
from tidemark.wire.tls import client_context


class Files(NamedTuple):
    """A CA, and what it has signed, as files in a home."""

    home: Path
    ca: trustme.CA

    def issue(self, stem: str, *names: str, common_name: str | None = None, by: trustme.CA | None = None) -> None:
        """A certificate and its key."""
        issued = (by or self.ca).issue_cert(*names, common_name=common_name)
        issued.cert_chain_pems[0].write_to_path(str(self.home / f"{stem}.pem"))
        issued.private_key_pem.write_to_path(str(self.home / f"{stem}.key"))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    home = Home(tmp_path / "home").create("").root
    made = Files(home, trustme.CA())
    made.ca.cert_pem.write_to_path(str(home / "ca.pem"))
    made.issue("server", "localhost")
    return made


def with_settings(files: Files, *lines: str) -> Home:
    text = "\n".join(("[serve]", 'tls_cert = "server.pem"', 'tls_key = "server.key"', *lines))
    (files.home / "platform.toml").write_text(text)
    return Home(files.home)


async def converse(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[str, Mapping[str, Any] | None]:
    """What TLS the two agree on, and the certificate that the server saw; raises what either side raises."""
    seen: asyncio.Future[Mapping[str, Any] | None] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("peercert"))
        writer.write(await reader.readexactly(2))
        writer.close()

    door = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server)
    async with door:
        port = door.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost")
        writer.write(b"hi")
        assert await reader.readexactly(2) == b"hi"
        version = writer.get_extra_info("ssl_object").version()
        writer.close()
        return version, await seen


def talk(server: ssl.SSLContext | None, client: ssl.SSLContext) -> tuple[str, Mapping[str, Any] | None]:
    assert server is not None
    return asyncio.run(asyncio.wait_for(converse(server, client), 30))


def test_without_certificates_there_is_no_tls(tmp_path: Path) -> None:
    assert server_context(Home(tmp_path).create("")) is None


def test_a_client_that_trusts_the_ca_speaks_tls_1_3(files: Files) -> None:
    version, shown = talk(server_context(with_settings(files)), client_context(files.home / "ca.pem"))
    assert version == "TLSv1.3"
    assert not shown


def test_an_older_tls_is_not_spoken(files: Files) -> None:
    old = ssl.create_default_context(cafile=str(files.home / "ca.pem"))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        talk(server_context(with_settings(files)), old)


def test_a_client_that_trusts_another_ca_does_not_go_on(files: Files) -> None:
    trustme.CA().cert_pem.write_to_path(str(files.home / "other.pem"))
    with pytest.raises(ssl.SSLCertVerificationError):
        talk(server_context(with_settings(files)), client_context(files.home / "other.pem"))


def test_the_common_name_of_a_clients_certificate_is_who_it_is(files: Files) -> None:
    files.issue("client", "billing.internal", common_name="billing")
    server = server_context(with_settings(files, 'tls_client_ca = "ca.pem"'))
    client = client_context(files.home / "ca.pem", cert=files.home / "client.pem", key=files.home / "client.key")
    _, shown = talk(server, client)
    assert certificate_name(shown) == "billing"


def test_with_a_ca_for_clients_none_comes_in_without_a_certificate_or_with_anothers(files: Files) -> None:
    server = server_context(with_settings(files, 'tls_client_ca = "ca.pem"'))
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        talk(server, client_context(files.home / "ca.pem"))
    files.issue("forged", "billing.internal", common_name="billing", by=trustme.CA())
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        talk(
            server, client_context(files.home / "ca.pem", cert=files.home / "forged.pem", key=files.home / "forged.key")
        )


def test_a_certificate_with_no_name_or_several_is_nobodys() -> None:
    assert certificate_name(None) is None
    assert certificate_name({}) is None
    assert certificate_name({"subject": ((("commonName", "a"),), (("commonName", "b"),))}) is None
    assert certificate_name({"subject": ((("organizationName", "o"),), (("commonName", "a"),))}) == "a"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("server.pem", None, r"server\.pem should hold a certificate and cannot be read: No such file"),
        ("server.key", None, r"server\.key should hold a key and cannot be read: No such file"),
        ("server.pem", "", r"server\.pem holds no certificate"),
        ("server.key", "secret", r"server\.key holds no private key"),
        (
            "server.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            r"server\.pem and .*server\.key",
        ),
        ("ca.pem", None, r"ca\.pem should hold certificates"),
        ("ca.pem", "nothing", r"ca\.pem holds no certificates in PEM form"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(files: Files, name: str, content: str | None, why: str) -> None:
    path = files.home / name
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=why) as refused:
        server_context(with_settings(files, 'tls_client_ca = "ca.pem"'))
    assert "secret" not in str(refused.value)


def test_the_key_of_another_certificate_is_told(files: Files) -> None:
    files.issue("other", "localhost")
    (files.home / "other.key").rename(files.home / "server.key")
    with pytest.raises(
        ConfigurationError, match=r"server\.key is not the key of the first certificate in .*server\.pem"
    ):
        server_context(with_settings(files))


# Made by `openssl genpkey -algorithm ED25519 -aes256 -pass pass:x`, for nothing but this.
ENCRYPTED = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAiYdzsoZTvrLgICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEELginrXVG2EvazEOyTWQFeEEQKlw
WMN9e21LoseUd8eaJzJUERU4085ni+K20OEYljZDxXiGIC+Ek0Fl/h1Ag23nfUH0
20gk7QusVuERcDJ5cSU=
-----END ENCRYPTED PRIVATE KEY-----
"""


def test_an_encrypted_key_asks_nobody_at_the_terminal(files: Files) -> None:
    (files.home / "server.key").write_text(ENCRYPTED)
    with pytest.raises(ConfigurationError, match="is encrypted, and nobody is there"):
        server_context(with_settings(files))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:7433", ("127.0.0.1", 7433, True)),
        ("127.9.9.9:0", ("127.9.9.9", 0, True)),
        ("localhost:80", ("localhost", 80, True)),
        ("[::1]:7433", ("::1", 7433, True)),
        ("0.0.0.0:7433", ("0.0.0.0", 7433, False)),  # noqa: S104 - nothing listens here
        ("[::]:7433", ("::", 7433, False)),
        ("10.1.2.3:7433", ("10.1.2.3", 7433, False)),
        ("localhost.example.com:7433", ("localhost.example.com", 7433, False)),
    ],
)
def test_an_address_says_whether_others_can_reach_it(text: str, expected: tuple[str, int, bool]) -> None:
    listen = parse_listen(text)
    assert (listen.host, listen.port, listen.is_loopback) == expected
    assert str(listen) == text


@pytest.mark.parametrize("text", ["", "7433", ":7433", "::1:7433", "a:b", "a:70000", "a:-1", "a:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address to listen at"):
        parse_listen(text)


def test_a_peer_of_this_machine_is_one_however_it_is_written() -> None:
    assert [is_loopback(each) for each in ("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::1", "10.0.0.1")] == [
        True,
        False,
        True,
        False,
    ]


ADDRESSES = {"[serve] listen": "0.0.0.0:7433", "[serve] http_listen": "127.0.0.1:7480"}


def test_nothing_listens_beyond_this_machine_without_tls_unless_the_operator_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"listen is 0\.0\.0\.0:7433.*tls_cert.*allow_plain = true"):
        check_exposure(ServeSettings(), ADDRESSES, has_tokens=True)
    with pytest.raises(ConfigurationError):
        check_exposure(ServeSettings(allow_plain=False), {"--http": "[::]:7480"}, has_tokens=True)
    [told] = check_exposure(ServeSettings(allow_plain=True), ADDRESSES, has_tokens=True)
    assert "unencrypted to 0.0.0.0:7433" in told


def test_with_tls_it_may_and_is_told_if_nobody_has_a_token() -> None:
    serve = ServeSettings(tls_cert="a", tls_key="b")
    assert check_exposure(serve, ADDRESSES, has_tokens=True) == []
    [told] = check_exposure(serve, ADDRESSES, has_tokens=False)
    assert "There are no tokens" in told


def test_on_this_machine_nothing_has_to_be_set() -> None:
    serve = ServeSettings()
    addresses = {"[serve] listen": serve.listen, "[serve] http_listen": serve.http_listen, "none": ""}
    assert check_exposure(serve, addresses, has_tokens=False) == []
