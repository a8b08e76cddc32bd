"""`python -m orchestration.cli`, which the launcher `./tidemark` calls."""

import os
import sys

from orchestration.cli.app import main

if __name__ == "__main__":
    code = main(is_own_process=True)
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is closed and flushed. Threads of native libraries, ended by the interpreter at its own exit, have been
    # seen to abort the process then, which would turn a success into a failure for whoever reads the exit code.
    os._exit(code)
