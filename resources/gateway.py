"""The gateway to the JVM (py4j), in which every call gets its own answer.

Belongs here: what py4j leaves open. Each thread has one connection, on which questions and answers alternate. An
exception that arrives in the middle of a call (a run is interrupted, a test takes too long) leaves the answer unread,
and from then on every call of that thread gets the answer of the call before: `KeyError: 'm'` or, worse, a wrong value.
A call that begins within another one, in a signal handler or while garbage is collected, swaps the two answers. py4j
takes care of KeyboardInterrupt alone. Does not belong here: how a JVM is started (`session.py`).
"""

from typing import Any


def guard(gateway: Any) -> None:
    """From now on a call only uses a connection that has no answer outstanding, and otherwise opens another one.

    py4j keeps idle connections in a deque, and takes one out for the time of a call. So one that is not there is in the
    middle of a call, or was left there by an exception. Python code that the JVM calls back would lose its pinned
    thread by this; we register none.
    """
    client = gateway._gateway_client  # noqa: SLF001 - there is no public way
    get, give_back = client._get_connection, client._give_back_connection  # noqa: SLF001 - nor here

    def get_idle() -> Any:
        if client.get_thread_connection() not in client.deque:
            client.thread_connection.connection = None
        return get()

    def give_back_own(connection: Any) -> None:
        # After a call within this one: its connection is closed, because this one has the thread's state in the JVM.
        if client.get_thread_connection() is not connection:
            client.set_thread_connection(connection)
        give_back(connection)

    client._get_connection, client._give_back_connection = get_idle, give_back_own  # noqa: SLF001 - nor here
