"""Who asks, and what they may do (W10).

Belongs here: from the headers of a request to a grant. Tokens themselves are in `gateway/access/tokens.py`.

Without a token only this machine may ask, and that needs care: a browser on it shows pages of strangers. So a request
without a token has to name this machine in `Host`, which a page that was resolved to it by a trick does not, and one
that comes from a page has to come from this door's own.
"""

from collections.abc import Iterable
from typing import Any

from tidemark.gateway.access.connection_limits import ConnectionLimits
from tidemark.gateway.access.tls import is_loopback as is_loopback_address
from tidemark.gateway.access.tokens import AccessError, Grant, TokenStore
from tidemark.gateway.http.errors import RETRY_AFTER_MS, HttpError
from tidemark.wire.errors import NackReason

_BEARER = b"bearer "


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The value of a header; the first one if there are several."""
    return next((value for key, value in headers if key == name), None)


class Place:
    """One connection among all: it has said nothing yet, or is known by its first token."""

    __slots__ = ("_limits", "certificate", "is_known")

    def __init__(self, limits: "ConnectionLimits[Place]", certificate: str | None) -> None:
        self._limits = limits
        self.certificate = certificate  # the name in the client's, that TLS has verified
        self.is_known = False

    def greet(self, grant: Grant) -> None:
        """It has said who it is; raises if there are too many of these."""
        self._limits.greeted(self, grant.id)
        self.is_known = True

    def leave(self) -> None:
        """The connection has ended."""
        self._limits.closed(self)


# Where a request has its connection's place.
PLACE = "place"


class Access:
    """The check at the start of every request."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens

    def grant(self, scope: Any) -> Grant:
        """What the caller of a request may do; raises `HttpError`."""
        token, is_loopback = self.token(scope)
        place: Place | None = scope.get("state", {}).get(PLACE)
        certificate = None if place is None else place.certificate
        grant = self.check(token, is_loopback=is_loopback, certificate=certificate)
        if place is not None and not place.is_known:
            try:
                place.greet(grant)
            except AccessError as error:
                raise refused(error) from error
        return grant

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
        is_loopback = client is None or is_loopback_address(client[0])
        if token is None and is_loopback and not _is_local_name(host):
            raise HttpError(
                403,
                str(NackReason.NOT_ALLOWED),
                "Without a token this door is reached as localhost or 127.0.0.1, and not under another name.",
                closes=True,
            )
        return token, is_loopback

    def check(self, token: str | None, *, is_loopback: bool, certificate: str | None = None) -> Grant:
        """What the owner of a token, or of a certificate of this name, may do."""
        try:
            return self._tokens.check(token, is_loopback=is_loopback, certificate=certificate)
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
    if error.reason is NackReason.TOO_MANY_CONNECTIONS:
        return HttpError(503, str(error.reason), str(error), retry_after_ms=RETRY_AFTER_MS, closes=True)
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
    return is_loopback_address(name.strip("[]"))
