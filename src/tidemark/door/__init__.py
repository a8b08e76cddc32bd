"""From what a producer sends to decoded rows: dictionaries, structs, JSON and Arrow columns become one Arrow batch.

Belongs here: decoding, copying what callers own, and keeping what could not be decoded. Does not belong here: whether a
delta is acceptable (`verdicts`).

    decode         one batch from rows and columns     ownership      a copy that no other code can change
    decode_rows    dictionaries, structs and JSON      column_door    Arrow tables of any types
    decode_values  times, weights                      plain_columns  columns that are in the log's types already
    originals      what is kept of a refused delta     column_types   from any Arrow type to the log's
    foreign_columns   an Arrow stream from a stranger, after `ipc_messages` has looked through it
"""
