"""Valid topic names, and the names of internal topics."""

import re
from typing import Final

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
GROUP_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
INTERNAL_TOPICS: Final = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})

MAX_NAME_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_name_reason(name: str) -> str | None:
    """Return why a topic name is invalid, as a sentence for the client; None for a valid name."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return f"a topic cannot be named '{name}'"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic name may have at most {MAX_NAME_LENGTH} characters, not {len(name)}"
    if not _LEGAL.fullmatch(name):
        return f"topic name '{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def is_internal(name: str) -> bool:
    """Whether clients see the topic as internal."""
    return name in INTERNAL_TOPICS
