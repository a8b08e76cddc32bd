"""`python -m tidemark.cli`, and the console script's entry point."""

from tidemark.cli.app import run_process

if __name__ == "__main__":
    run_process()
