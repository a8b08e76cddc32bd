"""The directory of a platform: its layout, who may read it, and the disk calls that must survive a crash.

Belongs here: the home and its paths, modes of files, fsync behind one interface, failpoints for tests. Does not belong
here: what the files mean (`log`, `tables`).
"""
