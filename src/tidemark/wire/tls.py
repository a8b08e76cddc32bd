"""TLS 1.3 on the wire: what both of its sides do alike, and the context of a client (W10).

Belongs here: reading certificates and keys, with errors that say which file is wrong and in what. The server's side is
in `gateway/access/tls.py`.
"""

import ssl
from pathlib import Path

from tidemark.model.errors import ConfigurationError


def client_context(
    ca: str | Path | None = None, *, cert: str | Path | None = None, key: str | Path | None = None
) -> ssl.SSLContext:
    """For a client: it trusts who is in the file `ca`, else whom this machine trusts; `cert` is its own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if ca is None:
        context.load_default_certs()
    else:
        load_ca(context, Path(ca))
    if cert is not None:
        load_own(context, Path(cert), Path(key) if key is not None else Path(cert))
    return context


def load_ca(context: ssl.SSLContext, ca: Path) -> None:
    """Trust whoever has a certificate signed by one of those in this file."""
    _must_be_readable(ca, "certificates")
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{ca} holds no certificates in PEM form ({_short(error)}). It must have a block BEGIN CERTIFICATE."
        ) from error


def load_own(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Show this certificate, and prove that it is one's own by its key."""
    _must_be_readable(cert, "a certificate")
    _must_be_readable(key, "a key")
    if b"BEGIN CERTIFICATE" not in cert.read_bytes():
        raise ConfigurationError(f"{cert} holds no certificate in PEM form. It must have a block BEGIN CERTIFICATE.")
    if b"PRIVATE KEY" not in key.read_bytes():
        raise ConfigurationError(f"{key} holds no private key in PEM form. It must have a block BEGIN PRIVATE KEY.")
    try:
        context.load_cert_chain(cert, key, password=lambda: _no_password(key))
    except ssl.SSLError as error:
        if "KEY_VALUES_MISMATCH" in str(error):
            raise ConfigurationError(
                f"The key in {key} is not the key of the first certificate in {cert}. Name the two that belong "
                "together; if the file has a chain, the server's own certificate comes first."
            ) from error
        raise ConfigurationError(f"{cert} and {key} cannot be used together: {_short(error)}.") from error


def _no_password(key: Path) -> str:
    """OpenSSL would ask at the terminal, where nobody is."""
    raise ConfigurationError(
        f"The key in {key} is encrypted, and nobody is there to type its password. Write it without one "
        "(openssl pkey -in KEY -out NEW), readable by its owner alone."
    )


def _must_be_readable(path: Path, what: str) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise ConfigurationError(f"{path} should hold {what} and cannot be read: {error.strerror}.") from error


def _short(error: ssl.SSLError) -> str:
    """OpenSSL's own words, without its place in C."""
    return (error.reason or str(error)).replace("_", " ").lower()
