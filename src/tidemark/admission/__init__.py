"""Which writes are let in before they are numbered, and how fast producers may send (A1 to A4).

Belongs here: decisions as functions of state, write and time, without a thread, a socket or a clock; and the gate that
owns the state. It needs neither NumPy nor Arrow. Does not belong here: who a producer is (the doors ask for a token
first), and what happens to a write once it is in (`coordinator/`).
"""
