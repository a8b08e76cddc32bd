"""Questions to a home and their answers as JSON: the same for the command line and for the doors.

Belongs here: a module for each question, from its parameters to what is found and to the plain form of that. How a
question is put (options of a command, the query of a URL) and how people see its answer belong to those who ask.
"""
