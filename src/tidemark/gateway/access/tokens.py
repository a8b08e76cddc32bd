"""Who may speak to a platform: tokens and names of certificates, and what each may do (W10).

Belongs here: making, keeping, checking and revoking them. Does not belong here: encryption (`tls.py`), how many
connections there may be (`connection_limits.py`), or who sends which frames.

A token is 256 random bits. It is shown when it is made and kept nowhere: the file has its SHA-256, which is enough for
what nobody can guess. No token is in an error, a log or what an object shows of itself.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct

from tidemark.event_time.clock import Clock, shown, system_clock
from tidemark.model.errors import ConfigurationError, DamageError, TidemarkError
from tidemark.model.settings import is_name
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home
from tidemark.storage.json_files import read_json
from tidemark.storage.privacy import make_owners, make_owners_directory
from tidemark.wire.errors import NackReason

# Scanners of source code find what begins like this.
PREFIX = "tdm_"
# All namespaces.
ALL = "*"
_SECRET_BYTES = 32
# Base64 without its padding, as it may stand in URLs and headers.
_TOKEN = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
_ID_DIGITS = 8
# Names of tokens, and common names in certificates: of services, machines, people.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
# Whoever else changes tokens needs milliseconds for it.
_LOCK_SECONDS = 10.0
_WAY_OUT = "Put back a copy; or delete it, and make new tokens for everybody."


class AccessError(TidemarkError):
    """Somebody may not do what they asked for; `reason` is the word for programs."""

    reason: NackReason


class UnauthenticatedError(AccessError):
    """It is not known who asks."""

    reason = NackReason.UNAUTHENTICATED


class NotAllowedError(AccessError):
    """It is known who asks, and they may not do this."""

    reason = NackReason.NOT_ALLOWED


class Scopes(NamedTuple):
    """What somebody may do; `ALL` stands for every namespace. An admin may do everything."""

    writes: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    is_admin: bool = False

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Scopes":
        """Scopes as they are written: `write:shop`, `read:*`, `admin`."""
        found: dict[str, set[str]] = {"write": set(), "read": set(), "admin": set()}
        for text in texts:
            verb, _, namespace = text.partition(":")
            is_scope = text == "admin" or (verb in {"write", "read"} and (namespace == ALL or is_name(namespace)))
            if not is_scope:
                raise ConfigurationError(
                    f"{text!r} is no scope. Scopes are write:NAMESPACE and read:NAMESPACE, with * for all, and admin."
                )
            found[verb].add(namespace)
        return cls(frozenset(found["write"]), frozenset(found["read"]), bool(found["admin"]))

    def texts(self) -> tuple[str, ...]:
        """As they are written, in order."""
        texts = [*(f"write:{name}" for name in sorted(self.writes)), *(f"read:{name}" for name in sorted(self.reads))]
        return (*texts, "admin") if self.is_admin else tuple(texts)


class Grant(NamedTuple):
    """What one caller may do, and for how long."""

    name: str  # of the token or the certificate
    scopes: Scopes
    id: str | None = None  # None: nobody had to say who they are
    expires_us: int | None = None  # None: never

    @property
    def is_admin(self) -> bool:
        """Whether everything is allowed, also what concerns the platform as a whole."""
        return self.scopes.is_admin

    def may_write(self, namespace: str) -> bool:
        """Whether deltas of this namespace are taken from here; `ALL` asks about every namespace."""
        return self.is_admin or not self.scopes.writes.isdisjoint((namespace, ALL))

    def may_read(self, namespace: str) -> bool:
        """Whether deltas and tables of this namespace are shown here; `ALL` asks about every namespace."""
        return self.is_admin or not self.scopes.reads.isdisjoint((namespace, ALL))

    def require_write(self, namespace: str) -> None:
        """Raise if deltas of this namespace are not taken from here."""
        if not self.may_write(namespace):
            raise self._refusal(f"write to {_named(namespace)}", f"write:{namespace}")

    def require_read(self, namespace: str) -> None:
        """Raise if deltas and tables of this namespace are not shown here."""
        if not self.may_read(namespace):
            raise self._refusal(f"read {_named(namespace)}", f"read:{namespace}")

    def require_admin(self) -> None:
        """Raise if this is not an admin."""
        if not self.is_admin:
            raise self._refusal("do what is for operators", "admin")

    def _refusal(self, what: str, scope: str) -> NotAllowedError:
        return NotAllowedError(
            f"{self.name!r} may not {what}; its scopes are {', '.join(self.scopes.texts()) or 'none'}. "
            f"Ask the operator for a token with the scope {scope}."
        )


# On this machine, where no token is required: the file system says who may be here.
OPEN = Grant("loopback", Scopes(is_admin=True))


class StoredToken(Struct, frozen=True, omit_defaults=True):
    """What is kept of one token, or of the name of a certificate."""

    id: str  # of a token: how its SHA-256 begins, so that the owner of one that was found can be looked up
    name: str
    scopes: tuple[str, ...]
    created_us: int
    sha256: str | None = None  # None: whoever has a certificate of this name
    expires_us: int | None = None

    @property
    def is_certificate(self) -> bool:
        """Whether a certificate is shown instead of a secret."""
        return self.sha256 is None

    def is_expired(self, now_us: int) -> bool:
        """Whether its time is over."""
        return self.expires_us is not None and now_us >= self.expires_us


class _TokenFile(Struct, frozen=True):
    tokens: tuple[StoredToken, ...] = ()


class _Known(NamedTuple):
    """What the file said when it was last read, and which file that was."""

    file: tuple[int, int, int] | None
    by_id: dict[str, StoredToken]
    scopes: dict[str, Scopes]


class TokenStore:
    """The tokens of a home. Any process may have one, and each follows the changes of the others at its next check."""

    def __init__(
        self, home: Home, *, clock: Clock = system_clock, random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self.path: Path = home.door / "tokens.json"
        self._home = home
        self._clock, self._random_bytes = clock, random_bytes
        self._known = _Known(None, {}, {})

    def check(self, token: str | None, *, is_loopback: bool, certificate: str | None = None) -> Grant:
        """What a caller may do; raises `UnauthenticatedError` if they have to say who they are, or are not known.

        `certificate` is the common name in a client's certificate that TLS has verified. A token counts before it.
        """
        try:
            if token is not None:
                return self._grant(self._of_token(token))
            if certificate is not None:
                return self._grant(self._of_certificate(certificate))
        except (DamageError, OSError) as error:
            raise UnauthenticatedError(
                "The tokens of this server cannot be read. Its operator sees why with ./tidemark token list."
            ) from error
        if is_loopback and not self._home.settings.serve.require_token:
            return OPEN
        raise UnauthenticatedError(
            "A token is needed here, and none was given. The operator makes one with ./tidemark token create."
        )

    def check_again(self, grant: Grant) -> None:
        """Raise if a grant no longer counts, because it was revoked or has expired: for connections that stay."""
        if grant.id is None:
            return
        try:
            found = self._read().get(grant.id)
        except (DamageError, OSError):
            return  # who came in by it may stay until it can be read again; nobody else comes in
        if found is None:
            raise UnauthenticatedError(f"{grant.name!r} was revoked. Ask the operator for a new token.")
        self._grant(found)

    def tokens(self) -> list[StoredToken]:
        """All of them, by name and then by age."""
        return sorted(self._read().values(), key=lambda each: (each.name, each.created_us, each.id))

    def create(
        self, name: str, scopes: Iterable[str], *, expires_us: int | None = None, is_certificate: bool = False
    ) -> tuple[str | None, StoredToken]:
        """Make a token, and return it: this is the only time that it is seen. A name may have several.

        With `is_certificate` there is no secret: whoever has a certificate of this name gets what is granted here.
        """
        texts = Scopes.parse(scopes).texts()
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"{name!r} is no name for a token. Use up to 64 letters, digits and . _ @ -, beginning with a letter "
                "or a digit."
            )
        if not texts:
            raise ConfigurationError("A token without a scope may do nothing. Give it --write, --read or --admin.")
        now_us = self._clock()
        if expires_us is not None and expires_us <= now_us:
            raise ConfigurationError(f"{shown(expires_us)} is over: the token would never count. Let it expire later.")
        secret = None if is_certificate else _secret(self._random_bytes(_SECRET_BYTES))
        sha256 = None if secret is None else _sha256(secret)
        made = StoredToken(
            id=self._random_bytes(_ID_DIGITS // 2).hex() if sha256 is None else sha256[:_ID_DIGITS],
            name=name,
            scopes=texts,
            created_us=now_us,
            sha256=sha256,
            expires_us=expires_us,
        )
        with self._lock():
            there = self._read()
            if made.id in there:
                raise ConfigurationError(f"By chance there is a token with the id {made.id} already. Make another one.")
            if is_certificate and any(each.is_certificate and each.name == name for each in there.values()):
                raise ConfigurationError(
                    f"Certificates named {name!r} are granted something already. Revoke that first, or change nothing."
                )
            self._replace((*there.values(), made))
        return secret, made

    def revoke(self, name_or_id: str) -> StoredToken:
        """Forget a token: it counts no more, and connections that came in by it end within a second."""
        with self._lock():
            there = self._read()
            found = [each for each in there.values() if name_or_id in (each.name, each.id)]
            if not found:
                # Somebody may well paste the token itself: it is looked up, and not repeated on a screen.
                known = there.get(_sha256(name_or_id)[:_ID_DIGITS]) if _TOKEN.fullmatch(name_or_id) else None
                if known is None:
                    raise ConfigurationError("There is no such token. ./tidemark token list shows all of them.")
                found = [known]
            if len(found) > 1:
                ids = ", ".join(each.id for each in found)
                raise ConfigurationError(f"{name_or_id!r} has several tokens: {ids}. Say which by its id.")
            self._replace(tuple(each for each in there.values() if each is not found[0]))
        return found[0]

    def _of_token(self, token: str) -> StoredToken:
        if not _TOKEN.fullmatch(token):
            raise UnauthenticatedError(
                f"This is no token: one begins with {PREFIX} and has {len(PREFIX) + 43} letters, digits, - and _. "
                "Was all of it copied?"
            )
        sha256 = _sha256(token)
        found = self._read().get(sha256[:_ID_DIGITS])
        # The rest of the digest takes the same time to compare, however much of it is right.
        if found is None or found.sha256 is None or not hmac.compare_digest(found.sha256, sha256):
            raise UnauthenticatedError(
                "This token is not known here: it was revoked, or is for another server. Ask the operator for one."
            )
        return found

    def _of_certificate(self, name: str) -> StoredToken:
        for each in self._read().values():
            if each.is_certificate and each.name == name:
                return each
        raise UnauthenticatedError(
            f"Certificates named {name!r} are granted nothing here. The operator does so with "
            "./tidemark token create NAME --certificate."
        )

    def _grant(self, stored: StoredToken) -> Grant:
        if stored.is_expired(self._clock()):
            raise UnauthenticatedError(
                f"The {'grant' if stored.is_certificate else 'token'} {stored.name!r} expired at "
                f"{shown(stored.expires_us or 0)}. Ask the operator for a new one."
            )
        return Grant(stored.name, self._known.scopes[stored.id], stored.id, stored.expires_us)

    def _read(self) -> dict[str, StoredToken]:
        """What the file says now. It is read again when another one is there: every change replaces it."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return {}
        file = (now.st_ino, now.st_mtime_ns, now.st_size)
        if file != self._known.file:
            self._known = self._load(file)
        return self._known.by_id

    def _load(self, file: tuple[int, int, int]) -> _Known:
        found = read_json(self.path, _TokenFile, way_out=_WAY_OUT) or _TokenFile()
        try:
            scopes = {each.id: Scopes.parse(each.scopes) for each in found.tokens}
        except ConfigurationError as error:
            raise DamageError(f"{self.path} is damaged ({error}). {_WAY_OUT}") from error
        return _Known(file, {each.id: each for each in found.tokens}, scopes)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        make_owners_directory(self.path.parent)
        lock = FileLock(self.path.with_suffix(".lock"), mode=0o600)
        try:
            lock.acquire(timeout=_LOCK_SECONDS)
        except Timeout:
            raise ConfigurationError(
                f"Another process has been changing tokens for {_LOCK_SECONDS:.0f} s. Try again when it is done."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _replace(self, tokens: tuple[StoredToken, ...]) -> None:
        """Replace the file at once and durably; it is its owner's alone also where a group may read the home."""
        new = self.path.with_suffix(".new")
        new.unlink(missing_ok=True)
        with open(new, "xb", opener=make_owners) as file:
            file.write(msgspec.json.format(msgspec.json.encode(_TokenFile(tokens)), indent=2))
            file.flush()
            os.fsync(file.fileno())
        disk = RealDisk()
        disk.rename(new, self.path)
        disk.sync_directory(self.path.parent.parent)


def _secret(random: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode()


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _named(namespace: str) -> str:
    return "all namespaces" if namespace == ALL else f"the namespace {namespace!r}"
