"""Batches of flushed deltas, and who gets them (C5, C9, C12).

Belongs here: when a batch is closed, and the queues of subscribers.
"""
