"""Whole columns at once: compiled loops, hashes and fast checks of Arrow columns.

Belongs here: functions of arrays that know nothing of deltas. Does not belong here: what a column means.
"""
