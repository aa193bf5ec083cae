"""Number of segments to copy at once over a short bandwidth.

Copies in parallel share the uplink. The limit is the number of copies that the measured bandwidth completes within
`TARGET_MS`: below it, more copies at once only make each of them take longer, and all are lost if the broker dies.
"""

from typing import Final

TARGET_MS: Final = 10 * 60_000
"""Longest duration of a copy that the limit accepts for the sake of parallel copies; one copy may take longer."""


def copies_at_once(bytes_per_second: float | None, segment_bytes: int, most: int) -> int:
    """Return the limit, from 1 to `most`; `most` while the bandwidth of all copies together is not known."""
    if bytes_per_second is None or segment_bytes <= 0:
        return most
    return max(1, min(most, int(bytes_per_second * TARGET_MS / 1000 / segment_bytes)))
