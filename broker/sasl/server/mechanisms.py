"""The SASL mechanisms that a listener offers (KIP-103, KIP-368)."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from broker.sasl.mechanism import ServerExchange
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class OfferedMechanism:
    """One mechanism: `begin` opens an exchange, and a session lasts `max_reauth_ms` at most; 0 for any time."""

    begin: Callable[[], ServerExchange]
    max_reauth_ms: int = 0


OfferedMechanisms: TypeAlias = Mapping[str, OfferedMechanism]
"""Mechanisms by name, in the order in which clients are told of them."""
