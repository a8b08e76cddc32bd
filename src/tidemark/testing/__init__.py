"""A server in memory, with faults, for the tests of programs that send to Tidemark.

with tidemark.testing.server() as server:
client = tidemark.connect(server.url, producer="checkout")
server.lose_answers(1)
client.send(deltas).wait()
assert server.deltas == deltas
"""

from tidemark.testing.server import Server, server

__all__ = ["Server", "server"]
