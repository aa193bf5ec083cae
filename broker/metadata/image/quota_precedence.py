"""The quota that applies to a client, of all that match it (KIP-55, KIP-257).

The most specific entity wins, in this order; `*` is the default entity of its type:

    (user, client id) › (user, *) › user › (*, client id) › (*, *) › * of users › client id › * of client ids
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from broker.metadata.image.quota_image import CLIENT_ID, USER, QuotaEntity

# (user, client id) that share a quota; None for a part that the quota does not distinguish.
Sharers: TypeAlias = tuple[str | None, str | None]


class AppliedQuota(NamedTuple):
    """A quota in force: a rate per second, and the clients that share it."""

    rate: float
    sharers: Sharers


def applied_quota(rate_of: Callable[[QuotaEntity], float | None], user: str, client_id: str) -> AppliedQuota | None:
    """Return the most specific quota of a user and client id, None without one. `rate_of` returns an entity's rate."""
    for entity, sharers in _from_specific_to_general(user, client_id):
        rate = rate_of(entity)
        if rate is not None:
            return AppliedQuota(rate, sharers)
    return None


def _from_specific_to_general(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, Sharers]]:
    """Yield the entities that match a client, each with the clients that share its quota."""
    for name in (user, None):
        yield ((CLIENT_ID, client_id), (USER, name)), (user, client_id)
        yield ((CLIENT_ID, None), (USER, name)), (user, client_id)
        yield ((USER, name),), (user, None)
    yield ((CLIENT_ID, client_id),), (None, client_id)
    yield ((CLIENT_ID, None),), (None, client_id)
