"""A server in memory, with faults, for the tests of programs that send to Tidemark."""
