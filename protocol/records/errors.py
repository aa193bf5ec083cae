"""Exceptions for the bytes of a record batch."""


class MalformedBatch(Exception):
    """The bytes are not a record batch: too short, an impossible length, or a magic other than 2."""


class MalformedRecords(Exception):
    """The batch's body does not decompress, does not parse, or does not hold the records its header counts."""


class UnknownCodec(MalformedRecords):
    """The attributes name a compression codec that does not exist (5 to 7)."""
