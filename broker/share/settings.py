"""Settings of a share group, and where a new group starts to read (KIP-932)."""

import re
from enum import Enum
from typing import Final, NamedTuple

from broker.share.records import ShareLimits

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


class ResetTarget(Enum):
    """The offset at which a group without state starts."""

    LATEST = "latest"
    EARLIEST = "earliest"
    BY_DURATION = "by_duration"


class OffsetReset(NamedTuple):
    """The value of `share.auto.offset.reset`; `duration_ms` counts back from now, for BY_DURATION alone."""

    target: ResetTarget
    duration_ms: int = 0


class ShareGroupSettings(NamedTuple):
    """The settings of one share group on this broker."""

    limits: ShareLimits
    lock_duration_ms: int
    reads_committed: bool
    reset: OffsetReset


def parse_offset_reset(text: str) -> OffsetReset:
    """Return the meaning of a checked `share.auto.offset.reset`; durations are ISO 8601's."""
    if not text.startswith(_BY_DURATION):
        return OffsetReset(ResetTarget(text))
    match = _DURATION.fullmatch(text[len(_BY_DURATION) :])
    assert match is not None, "the key's rule has checked the value"
    parts = zip(match.groups(default="0"), _UNITS_MS, strict=True)
    return OffsetReset(ResetTarget.BY_DURATION, sum(round(float(number) * unit) for number, unit in parts))
