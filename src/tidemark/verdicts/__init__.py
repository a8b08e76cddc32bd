"""The verdict on a delta, decided once at arrival: accepted, duplicate, or refused with a reason (Q3).

Belongs here: checks of a delta by itself, the memory of recent identities, hashes and digests, and `arrival.py`, which
puts them together for a group of writes. Does not belong here: decoding (`door`), the bytes of the log (`log`).
"""
