"""Where a server is: an address as a person writes it.

Belongs here: reading it. Connecting is in `connection.py`.
"""

import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from tidemark.client.errors import AddressError

PORT = 7433


class Address(NamedTuple):
    """A Unix socket, or a host with its port."""

    text: str
    path: str | None
    host: str
    port: int
    is_tls: bool

    def tls(self, given: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """How to speak TLS with it; None: not at all."""
        if not self.is_tls:
            return None
        if given is not None:
            return given
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context


def parse_address(text: str) -> Address:
    """An address; the port is 7433 unless it says otherwise."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path:
            raise AddressError(text, "it names no socket")
        return Address(text, path, "", 0, is_tls=False)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise AddressError(text, str(error)) from error
    if parts.scheme not in {"tidemark", "tidemarks"}:
        raise AddressError(text, "it begins with none of tidemark://, tidemarks:// and unix:")
    if not parts.hostname:
        raise AddressError(text, "it names no host")
    if parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username or parts.password:
        raise AddressError(text, "it has more than a host and a port (a token is passed by itself, and no part of it)")
    return Address(text, None, parts.hostname, PORT if port is None else port, is_tls=parts.scheme == "tidemarks")
