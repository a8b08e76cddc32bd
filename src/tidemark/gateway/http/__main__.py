"""The HTTP door as a program: `python -m tidemark.gateway.http --home DIR --listen HOST:PORT`.

Belongs here: its options. `./tidemark serve` starts it. Who may come in, and TLS, are as the home's settings say.
"""

import argparse
import sys


def main() -> int:
    """Serve; returns when a signal has come."""
    parser = argparse.ArgumentParser(prog="python -m tidemark.gateway.http", description="The HTTP door of a home.")
    parser.add_argument("--home", required=True, metavar="DIR", help="the home whose coordinator is served")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="where; port 0 takes any free one")
    options = parser.parse_args()

    from tidemark.arrays.without_pandas import spare_pandas

    spare_pandas()
    from tidemark.gateway.access.tls import check_exposure, parse_listen, server_context
    from tidemark.gateway.http.server import listen, make_server
    from tidemark.model.errors import TidemarkError
    from tidemark.storage import privacy
    from tidemark.storage.home import Home

    try:
        privacy.take_process()
        home = Home.locate(options.home).require()
        privacy.follow(home.root)
        wanted = parse_listen(options.listen)
        # The serving process has told the operator what there is to tell; this one refuses what that would refuse.
        check_exposure(home.settings.serve, {"--listen": options.listen}, has_tokens=True)
        tls = server_context(home)
        listening = listen(wanted)
        if wanted.port == 0:
            at = wanted._replace(port=listening.getsockname()[1])
            print(f"Listening at http{'s' if tls else ''}://{at}", flush=True)  # noqa: T201
        make_server(home, listening, tls).run(sockets=[listening])
    except TidemarkError as error:
        print(f"tidemark: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
