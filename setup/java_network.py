"""Prints the options that let Java download like the other tools here: `java_network.py JAVA_HOME FOLDER`.

Java reads neither the proxy variables nor the machine's certificates. A Java of the machine was set up for it by
somebody. One that came as a wheel knows only the public authorities, and could download nothing where a company's
proxy signs with its own certificate: it gets the certificates that Python trusts, as a key store in FOLDER.
"""

import ssl
import struct
import sys
import urllib.parse
import urllib.request
from pathlib import Path


def key_store(certificates: list[bytes]) -> bytes:
    """Return the certificates as a Java key store (format "JKS", version 2)."""
    parts = [struct.pack(">III", 0xFEEDFEED, 2, len(certificates))]
    for number, der in enumerate(certificates):
        alias = str(number).encode()
        parts.append(struct.pack(">IH", 2, len(alias)) + alias)  # 2: an entry that is a trusted certificate
        parts.append(struct.pack(">QH", 0, 5) + b"X.509" + struct.pack(">I", len(der)) + der)
    # The digest at the end is keyed by a password. Public certificates need none, and without one Java skips it.
    return b"".join(parts) + bytes(20)


def trust_options(folder: Path) -> list[str]:
    """Make Java trust what Python trusts; nothing where Python has no certificates of its own."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    store = folder / "certificates.jks"
    store.write_bytes(key_store(certificates))
    return [f'-Djavax.net.ssl.trustStore="{store}"', "-Djavax.net.ssl.trustStoreType=JKS"]


def proxy_options() -> list[str]:
    """Pass on the proxy that the environment names."""
    proxy = urllib.parse.urlsplit(urllib.request.getproxies().get("https", ""))
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 80}"]


if __name__ == "__main__":
    java_home, folder = map(Path, sys.argv[1:])
    came_as_wheel = folder.parent in java_home.parents
    sys.stdout.write(" ".join((trust_options(folder) if came_as_wheel else []) + proxy_options()))
