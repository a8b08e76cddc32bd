"""Admission: who may send how much, decided by one pure function before a write is numbered (A1 to A4)."""
