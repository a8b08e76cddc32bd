"""The wire protocol, W1: frames, messages and limits, for both of its sides (W1 to W7).

Belongs here: bytes, and what they say. Nothing here opens a socket, knows a log or needs Arrow, so that a client needs
only msgspec, zstandard and a CRC. `docs/protocol/` describes the same for other languages.
"""
