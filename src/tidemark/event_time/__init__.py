"""Clocks and watermarks: the current time, and how far event time has come (T1 to T4, C15).

Belongs here: the platform's clock, watermarks of a shard and across shards. Does not belong here: windows (`streams`).
"""
