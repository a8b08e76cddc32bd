"""What a shard keeps on the disk beside its log, and how it comes back from it (C7).

Belongs here: reservation and state, producers' marks, who may write, sealing, recovery, resets of the clock.
Does not belong here: a shard that runs (`coordinator`).
"""
