"""Names of numeric record values, as in Kafka's tools."""

from collections.abc import Mapping
from typing import Final

CONFIG_RESOURCES: Final[Mapping[int, str]] = {
    2: "topic",
    4: "broker",
    8: "broker-logger",
    16: "client-metrics",
    32: "group",
}
ACL_RESOURCES: Final[Mapping[int, str]] = {
    2: "topic",
    3: "group",
    4: "cluster",
    5: "transactional-id",
    6: "delegation-token",
    7: "user",
}
PATTERNS: Final[Mapping[int, str]] = {3: "literal", 4: "prefixed"}
PERMISSIONS: Final[Mapping[int, str]] = {2: "deny", 3: "allow"}
OPERATIONS: Final[Mapping[int, str]] = {
    2: "all",
    3: "read",
    4: "write",
    5: "create",
    6: "delete",
    7: "alter",
    8: "describe",
    9: "cluster-action",
    10: "describe-configs",
    11: "alter-configs",
    12: "idempotent-write",
    13: "create-tokens",
    14: "describe-tokens",
    15: "two-phase-commit",
}
MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

SECURITY_PROTOCOLS: Final[Mapping[int, str]] = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def name_of(names: Mapping[int, str], number: int) -> str:
    """Return the name of a number, or the number itself if it has none."""
    return names.get(number, str(number))
