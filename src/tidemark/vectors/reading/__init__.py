"""Reading vectors without a JVM: now, as of a time or an epoch, and the nearest of them (K6, V3).

Belongs here: which tables are read, at which versions, and the answers. Does not belong here: how states are folded.
"""
