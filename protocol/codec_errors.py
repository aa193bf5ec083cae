"""How decoding and encoding fail. Apart from `errors`, so that storage can use the codec and know no error codes."""


class DecodeError(Exception):
    """Bytes that are not the message they claim to be. Nothing else escapes from decoding."""


class EncodeError(Exception):
    """A value that the message, or this version of it, cannot carry (as Kafka's UnsupportedVersionException)."""
