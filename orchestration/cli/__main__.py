"""`python -m orchestration.cli`, which the launcher `./tidemark` calls."""

from orchestration.cli.app import COMMANDS
from tidemark.cli.app import run_process

if __name__ == "__main__":
    run_process(COMMANDS)
