"""Configs of the metadata topic that brokers do not apply (`DynamicConfig.log_config`).

Retention and compaction would delete the events of live segments, which are then forgotten with all their records.
Brokers keep what is needed and prune the rest (`pruning.py`), so these configs have no use.
"""

from collections.abc import Mapping
from typing import Final

_APPLIED: Final = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


def ignored_configs(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the overrides of the metadata topic that have no effect."""
    return {key: overrides[key] for key, applied in _APPLIED.items() if overrides.get(key, applied).strip() != applied}
