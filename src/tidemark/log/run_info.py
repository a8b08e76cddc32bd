"""How a state file lists a ledger's runs.

Belongs here: that one struct. A reader of the state file alone, such as `status`, needs nothing else of a ledger.
"""

from msgspec import Struct


class RunInfo(Struct, frozen=True):
    """What the owner of a ledger saves of each run. Tiers with a higher number are newer and win."""

    file: str
    tier: int
    first: str  # only keys from here to `last` are looked up in this run; a merge may have moved earlier ones
    last: str
    keys: int  # in the file
    bytes: int  # of the file
    index_at: int  # where the blocks end and the index begins
    crc32c: int  # of the index
    into: int | None = None  # the tier that this run is being merged into
