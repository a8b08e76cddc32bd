"""Who asks, and what they may do (W10).

Belongs here: from the headers of a request to a grant. Tokens themselves are in `gateway/tokens.py`.

Without a token only this machine may ask, and that needs care: a browser on it shows pages of strangers. So a request
without a token has to name this machine in `Host`, which a page that was resolved to it by a trick does not, and one
that comes from a page has to come from this door's own.
"""

from collections.abc import Iterable
from typing import Any

from tidemark.gateway.http.errors import HttpError
from tidemark.gateway.tokens import AccessError, Grant, TokenStore
from tidemark.wire.errors import NackReason

_LOOPBACK = ("127.", "::1", "::ffff:127.")
_LOCAL_NAMES = ("localhost", "[::1]")
_BEARER = b"bearer "


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The value of a header; the first one if there are several."""
    return next((value for key, value in headers if key == name), None)


class Access:
    """The check at the start of every request."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens

    def grant(self, scope: Any) -> Grant:
        """What the caller of a request may do; raises `HttpError`."""
        token, is_loopback = self.token(scope)
        return self.check(token, is_loopback=is_loopback)

    def token(self, scope: Any) -> tuple[str | None, bool]:
        """The token of a request, and whether it comes from this machine; raises `HttpError` for a stranger's page."""
        host = origin = authorization = None
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if origin is not None and not _is_own(origin, host):
            raise HttpError(
                403,
                str(NackReason.NOT_ALLOWED),
                f"Pages of {origin.decode('latin-1')} may not use this door; only its own may.",
                closes=True,
            )
        token = _token(authorization)
        client = scope.get("client")
        is_loopback = client is None or client[0].startswith(_LOOPBACK)
        if token is None and is_loopback and not _is_local_name(host):
            raise HttpError(
                403,
                str(NackReason.NOT_ALLOWED),
                "Without a token this door is reached as localhost or 127.0.0.1, and not under another name.",
                closes=True,
            )
        return token, is_loopback

    def check(self, token: str | None, *, is_loopback: bool) -> Grant:
        """What the owner of a token may do."""
        try:
            return self._tokens.check(token, is_loopback=is_loopback)
        except AccessError as error:
            raise refused(error) from error

    def check_again(self, grant: Grant) -> None:
        """Raise if a grant no longer counts: for answers that go on for long."""
        try:
            self._tokens.check_again(grant)
        except AccessError as error:
            raise refused(error) from error


def refused(error: AccessError) -> HttpError:
    """The answer for somebody who may not do what they asked for. The rest of their request is not read."""
    status = 401 if error.reason is NackReason.UNAUTHENTICATED else 403
    return HttpError(status, str(error.reason), str(error), closes=True)


def _token(authorization: bytes | None) -> str | None:
    if authorization is None:
        return None
    if authorization[: len(_BEARER)].lower() != _BEARER:
        raise HttpError(
            401,
            str(NackReason.UNAUTHENTICATED),
            "Only tokens are known here: send the header 'Authorization: Bearer TOKEN'.",
            closes=True,
        )
    return authorization[len(_BEARER) :].strip().decode("latin-1")


def _is_own(origin: bytes, host: bytes | None) -> bool:
    return host is not None and origin.lower() in {b"http://" + host.lower(), b"https://" + host.lower()}


def _is_local_name(host: bytes | None) -> bool:
    if host is None:
        return True  # HTTP/1.0, which no browser speaks
    name = host.decode("latin-1").lower()
    name = name if name.endswith("]") else name.rpartition(":")[0] or name
    return name in _LOCAL_NAMES or _is_address_of_this_machine(name)


def _is_address_of_this_machine(name: str) -> bool:
    parts = name.split(".")
    return parts[0] == "127" and len(parts) == 4 and all(part.isdigit() for part in parts)
