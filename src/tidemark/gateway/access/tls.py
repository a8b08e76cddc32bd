"""The server's side of TLS 1.3, and where it may listen without it (W10).

Belongs here: the context that the settings ask for, whose certificate a client has shown, and which addresses other
machines can reach. Does not belong here: tokens (`tokens.py`).
"""

import ipaddress
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import ServeSettings
from tidemark.storage.home import Home
from tidemark.wire.tls import load_ca, load_own


class Listen(NamedTuple):
    """Where to listen."""

    host: str
    port: int  # 0: any that is free

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def parse_listen(text: str) -> Listen:
    """An address such as 127.0.0.1:7433, localhost:0 or [::1]:7433."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535 or (":" in host and not is_bracketed):
        raise ConfigurationError(
            f"{text!r} is no address to listen at. Write a host and a port, such as 127.0.0.1:7433 or [::1]:7433."
        )
    return Listen(host.strip("[]"), int(port))


def is_loopback(host: str) -> bool:
    """Whether an address, of a peer or to listen at, is this machine's alone. A name is not looked up."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def server_context(home: Home) -> ssl.SSLContext | None:
    """The TLS that the settings ask for; None without. Paths in the settings count from the home."""
    serve = home.settings.serve
    if not serve.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    load_own(context, home.root / serve.tls_cert, home.root / serve.tls_key)
    if serve.tls_client_ca:
        load_ca(context, home.root / serve.tls_client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def certificate_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The common name in a client's certificate that TLS has verified (`peercert` of a transport); None if it has none.

    One with several names has none: which of them would count is nothing to guess.
    """
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else None


def check_exposure(serve: ServeSettings, addresses: Mapping[str, str], *, has_tokens: bool) -> list[str]:
    """What to tell the operator of these addresses by their setting; raises if secrets could be read on the way."""
    exposed = {name: text for name, text in addresses.items() if text and not parse_listen(text).is_loopback}
    if not exposed:
        return []
    if not serve.tls_cert and not serve.allow_plain:
        name, address = next(iter(exposed.items()))
        raise ConfigurationError(
            f"{name} is {address}, which other machines can reach, and there is no TLS: whoever is on the way could "
            "read tokens and deltas. Name tls_cert and tls_key under [serve] in platform.toml; or listen at 127.0.0.1; "
            "or say allow_plain = true there, if the network encrypts what it carries."
        )
    notes = []
    if not serve.tls_cert:
        notes.append(
            f"Tokens and deltas cross the network unencrypted to {', '.join(exposed.values())}: [serve] allow_plain."
        )
    if not has_tokens:
        notes.append(
            "There are no tokens, so no other machine can come in. ./tidemark token create NAME --write NAMESPACE "
            "makes one."
        )
    return notes
