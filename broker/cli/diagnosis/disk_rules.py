"""Rules about log directories: offline ones, and volumes that fill up. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from broker.cli.diagnosis.facts import BrokerFacts, ClusterFacts, LogDirFacts
from broker.cli.diagnosis.finding import ClusterFinding, Severity, bytes_text, counted, duration_text, listed

USED_WARNING: Final = 0.85
USED_CRITICAL: Final = 0.95
SOON_MS: Final = 24 * 3_600_000
"""A volume with a share of `SOON_USED_MIN` in use, and full within this time, gives a warning. Growth is that of the
logs: other programs on the volume come and go.
"""
SOON_USED_MIN: Final = 0.7
GROWTH_SAMPLE_MS_MIN: Final = 1_000
"""Samples that are closer tell no growth."""


class _Volume(NamedTuple):
    """Log directories on what is probably one volume: same host, same size."""

    host: str
    total_bytes: int


class _Place(NamedTuple):
    broker: BrokerFacts
    directory: LogDirFacts


def disk_findings(now: ClusterFacts, before: ClusterFacts | None) -> Iterator[ClusterFinding]:
    """Yield the findings about disks."""
    places = [_Place(broker, each) for broker in now.brokers for each in broker.log_dirs]
    yield from _offline([place for place in places if place.directory.failure is not None])
    volumes: dict[_Volume, list[_Place]] = {}
    for place in places:
        if place.directory.failure is None and place.directory.total_bytes > 0:
            host = place.broker.address.rpartition(":")[0]
            volumes.setdefault(_Volume(host, place.directory.total_bytes), []).append(place)
    earlier = {} if before is None else _sizes(before)
    elapsed_ms = 0 if before is None else now.time_ms - before.time_ms
    for volume, found in volumes.items():
        yield from _filling(volume, found, earlier, elapsed_ms, now.time_ms)


def _sizes(facts: ClusterFacts) -> dict[tuple[int, str], int]:
    return {(broker.id, each.path): each.size_bytes for broker in facts.brokers for each in broker.log_dirs}


def _offline(found: list[_Place]) -> Iterator[ClusterFinding]:
    for broker, directory in found:
        yield ClusterFinding(
            Severity.CRITICAL,
            "offline-log-directory",
            f"broker {broker.id}, {directory.path}",
            f"The log directory {directory.path} of broker {broker.id} is offline: {directory.failure}. Its replicas "
            "are not served.",
            "Repair or replace the disk, then restart the broker. It fetches the missing records from the leaders.",
            f"ottla log-dirs --describe --broker-list {broker.id}",
            names=[directory.path],
        )


def _filling(
    volume: _Volume, found: list[_Place], earlier: dict[tuple[int, str], int], elapsed_ms: int, now_ms: int
) -> Iterator[ClusterFinding]:
    usable = min(place.directory.usable_bytes for place in found)
    used = 1 - usable / volume.total_bytes
    growth = 0.0
    if elapsed_ms >= GROWTH_SAMPLE_MS_MIN:
        grown = sum(each.size_bytes - earlier.get((broker.id, each.path), each.size_bytes) for broker, each in found)
        growth = max(0.0, grown / elapsed_ms)
    left_ms = usable / growth if growth > 0 else None
    is_soon = left_ms is not None and left_ms <= SOON_MS and used >= SOON_USED_MIN
    if used < USED_WARNING and not is_soon:
        return
    when = ""
    if left_ms is not None:
        at = datetime.fromtimestamp((now_ms + min(left_ms, 10 * 365 * 86_400_000)) / 1000, UTC)
        when = (
            f" At the present growth of {bytes_text(growth * 1000)}/s it is full in {duration_text(left_ms)} "
            f"({at:%Y-%m-%d %H:%M} UTC)."
        )
    names = [f"broker {place.broker.id} {place.directory.path}" for place in found]
    holders = counted(len(found), "log directory", "log directories")
    yield ClusterFinding(
        Severity.CRITICAL if used >= USED_CRITICAL or (is_soon and used >= USED_WARNING) else Severity.WARNING,
        "disk-filling",
        names[0] if len(names) == 1 else f"{holders} on {volume.host}",
        f"The volume of {listed(names)} is {used:.0%} full, {bytes_text(usable)} of {bytes_text(volume.total_bytes)} "
        f"are left.{when} A broker takes a full log directory offline.",
        "Lower retention.ms or retention.bytes of the largest topics, move replicas away, tier topics to remote "
        "storage, or enlarge the volume.",
        f"ottla log-dirs --describe --broker-list {found[0].broker.id}",
        len(names),
        names,
    )
