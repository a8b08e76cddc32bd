"""`GET /v1/counts` and the other questions about a home.

Belongs here: asking them, and what their answers look like.
"""
