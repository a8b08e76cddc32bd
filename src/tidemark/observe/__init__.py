"""Reading a home without writing to it: how far it is, where every delta went, and whether its files are as written.

Belongs here: status, metrics, the sealed log as readers see it, watermarks of tables, the account, verification of
every byte. Does not belong here: how it is displayed (`cli`).

"""
