"""The SCRAM mechanisms of credentials, and Kafka's limits for what it stores."""

from typing import Final, NamedTuple

from broker.sasl.client.scram import MIN_ITERATIONS, SCRAM_DIGESTS

__all__ = ["MAX_ITERATIONS", "MECHANISMS", "MIN_ITERATIONS", "SALT_BYTES", "Mechanism"]

MAX_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 20
_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


class Mechanism(NamedTuple):
    """A SCRAM mechanism: its number in records and its hash function."""

    number: int
    hash_name: str


MECHANISMS: Final = {name: Mechanism(_NUMBERS[name], digest) for name, digest in SCRAM_DIGESTS.items()}
