"""What must be true: one suite per table, and how suites become asset checks.

Belongs here: the suites (`suites/*.yaml`, for people), how they are read (`suite.py`), run (`runner.py`), what they may
read besides the table (`evidence.py`), and how their results reach the orchestrator (`checks.py`).
"""
