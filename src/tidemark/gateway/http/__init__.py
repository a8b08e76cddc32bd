"""The HTTP door: a process of its own that speaks W1 to the coordinator for every write and every subscription (W8).

    python -m tidemark.gateway.http --home DIR --listen HOST:PORT

Belongs here: HTTP in both directions, and nothing that knows a log. Reads are answered from files, by the code that
answers the same questions on the command line (`tidemark/answers`). The write route is called before any framework is;
everything else is routed by Starlette.
"""
