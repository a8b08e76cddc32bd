"""Batches of flushed deltas, and the subscribers that get them (C5, C9, C12).

Belongs here: when a batch is closed, and the queues of subscribers.
"""
