"""`python -m tidemark.cli`, and what the console script calls."""

from tidemark.cli.app import run_process

if __name__ == "__main__":
    run_process()
