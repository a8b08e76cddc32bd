"""Vectors as readers ask for them, without a JVM: now, as of a time or an epoch, and the nearest of them (K6, V3).

Belongs here: what is read, from which tables at which versions. Does not belong here: how states are folded.
"""
