"""The demo: a seeded day of deltas on its way from producers to checked tables, and an account of every one.

Belongs here: the made-up day (`generator.py`, `traffic.py`, `malformed.py`), and how it is fed, run and shown. It runs
the product itself: no other part needs anything in here.
"""
