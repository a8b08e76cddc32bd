"""Delta tables without a JVM: their files, commits, plans and checksums, and their lineage.

Belongs here: the parts that every table needs. Does not belong here: Spark (`resources/lake.py`), the meaning of a
table.
"""
