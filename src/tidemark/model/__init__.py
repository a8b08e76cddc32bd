"""What a delta is, and the words, numbers and errors that everything else uses.

Belongs here: kinds, verdicts, reasons and levels; the schema of the log; the time grid; settings; errors. Does not
belong here: anything that opens a file, except for reading the settings.
"""
