"""The warm host of a home: one process with everything imported and a Spark beside it, which forks commands and runs.

Belongs here: finding and starting it (`client.py`), what it does (`host.py`), and what a process does that it forked
(`child.py`). Everything works without it, and takes longer. Does not belong here: what commands and runs do.
"""
