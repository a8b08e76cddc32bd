"""Delta tables without a JVM: their files, commits, plans and checksums, and what each was made from.

Belongs here: what every table needs. Does not belong here: Spark (`resources/lake.py`), and what one table means.
"""
