"""`python -m orchestration.cli`, which the launcher `./tidemark` calls.

A command that starts runs is handed to the home's warm host, if there is one or there may be one: nothing that takes
long is imported here before that is decided.
"""

import os

from orchestration.cli.app import COMMANDS
from orchestration.warm_host.client import run_warm
from tidemark.cli.app import run_process

if __name__ == "__main__":
    import sys

    code = run_warm(sys.argv[1:], {entry.name for entry in COMMANDS if entry.starts_runs})
    if code is not None:
        os._exit(code)
    run_process(COMMANDS)
