"""Exceptions of decoding and encoding, separate from `errors` so that storage can use the codec without error codes."""


class DecodeError(Exception):
    """The bytes are not a valid message. Decoding raises no other exception."""


class EncodeError(Exception):
    """The message, or this version of it, cannot hold a value (as Kafka's UnsupportedVersionException)."""
