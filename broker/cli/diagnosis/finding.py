"""A finding: the object, the problem and the way out, as a sentence each, and the command to run."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

NAMES_MAX: Final = 5
"""Names that a finding lists before it only counts."""


class Severity(Enum):
    """The urgency of a finding.

    CRITICAL: data or service is unavailable, lost, or about to be. WARNING: redundancy or room is used up, so the next
    failure does harm. INFO: nothing is at risk, but the cluster is not as its configuration intends.
    """

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class ClusterFinding(NamedTuple):
    """One thing that is wrong. `code` is the heading of its section in docs/troubleshooting.md."""

    severity: Severity
    code: str
    subject: str
    problem: str
    remedy: str
    command: str = ""
    number: int = 1
    names: Sequence[str] = ()

    def document(self) -> dict[str, object]:
        """Return the finding for JSON."""
        return {
            "severity": self.severity.value,
            "code": self.code,
            "object": self.subject,
            "problem": self.problem,
            "remedy": self.remedy,
            "command": self.command or None,
            "count": self.number,
            "names": list(self.names[:NAMES_MAX]),
        }


def listed(names: Sequence[object]) -> str:
    """Return "a, b and 3 more"."""
    shown = ", ".join(str(name) for name in names[:NAMES_MAX])
    more = len(names) - NAMES_MAX
    return shown if more <= 0 else f"{shown} and {more} more"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return "1 partition" or "3 partitions"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def bytes_text(size: float) -> str:
    """Return a size with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def duration_text(ms: float) -> str:
    """Return a duration in its largest fitting unit."""
    for unit, size in (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= 2 * size or (unit == "s" and ms >= size):
            return f"{ms / size:.0f} {unit}"
    return f"{ms:.0f} ms"
