"""The HTTP door as a program: `python -m tidemark.gateway.http --home DIR --listen HOST:PORT`.

Belongs here: its options. `./tidemark serve` starts it.
"""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


def main() -> int:
    """Serve; returns when a signal has come."""
    parser = argparse.ArgumentParser(prog="python -m tidemark.gateway.http", description="The HTTP door of a home.")
    parser.add_argument("--home", required=True, metavar="DIR", help="the home whose coordinator is served")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="where; port 0 takes any free one")
    parser.add_argument("--tls-cert", metavar="FILE", help="PEM: the certificate, then those that signed it")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM: the key of the certificate")
    options = parser.parse_args()

    from tidemark.arrays.without_pandas import spare_pandas

    spare_pandas()
    from tidemark.gateway.http.server import listen, make_server
    from tidemark.model.errors import TidemarkError
    from tidemark.storage import privacy
    from tidemark.storage.home import Home

    try:
        privacy.take_process()
        home = Home.locate(options.home).require()
        privacy.follow(home.root)
        host, _, port = options.listen.rpartition(":")
        tls = _tls(options.tls_cert, options.tls_key)
        listening = listen(host.strip("[]"), int(port))
        if port == "0":
            print(f"Listening at http{'s' if tls else ''}://{host}:{listening.getsockname()[1]}", flush=True)  # noqa: T201
        make_server(home, listening, tls).run(sockets=[listening])
    except (TidemarkError, ValueError) as error:
        print(f"tidemark: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _tls(cert: str | None, key: str | None) -> "ssl.SSLContext | None":
    if cert is None and key is None:
        return None
    import ssl

    from tidemark.model.errors import ConfigurationError

    if cert is None or key is None:
        raise ConfigurationError("--tls-cert and --tls-key go together: give both, or neither.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(cert, key)
    return context


if __name__ == "__main__":
    sys.exit(main())
