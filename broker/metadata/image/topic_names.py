"""Which names a topic may have, and which topics are the cluster's own."""

import re
from typing import Final

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
GROUP_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})

MAX_NAME_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_name_reason(name: str) -> str | None:
    """What is wrong with a topic's name, as a sentence for the client; None if nothing is."""
    if not name:
        return "a topic's name must not be empty"
    if name in (".", ".."):
        return f"a topic cannot be named '{name}'"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic's name may have {MAX_NAME_LENGTH} characters; this one has {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"topic name '{name}' has characters other than letters, digits, '.', '_' and '-'"
    return None


def is_internal(name: str) -> bool:
    """Whether clients are told that the topic is the cluster's own."""
    return name in INTERNAL_TOPICS
