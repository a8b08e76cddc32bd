"""Trailing counts in memory, for live traffic at the current minute and the last few (R3, R4).

Belongs here: the warm tier, from the rows of the log to an answer. Does not belong here: counts from tables alone
(`counts/lake.py`).
"""
