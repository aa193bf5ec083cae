"""The SCRAM mechanisms of credentials (RFC 5802, RFC 7677), and Kafka's limits."""

from typing import Final, NamedTuple

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 20


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its number in records and its hash function."""

    number: int
    hash_name: str


MECHANISMS: Final = {"SCRAM-SHA-256": Mechanism(1, "sha256"), "SCRAM-SHA-512": Mechanism(2, "sha512")}
