"""What a shard keeps on the disk beside its log, and how it recovers from it (C7).

Belongs here: reservation and state, producers' marks, the fence, sealing, recovery, resets of the clock.
Does not belong here: a running shard (`coordinator`).
"""
