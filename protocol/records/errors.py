"""What can be wrong with the bytes of a record batch."""


class MalformedBatch(Exception):
    """The bytes are no record batch: too short, a length that cannot be, or a magic other than 2."""


class MalformedRecords(Exception):
    """The batch's body does not decompress, does not parse, or does not hold the records its header counts."""


class UnknownCodec(MalformedRecords):
    """The attributes name a compression codec that does not exist (5 to 7)."""
