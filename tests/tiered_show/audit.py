"""Final comparison of bucket, metadata and brokers, from outside."""

import re
from dataclasses import dataclass

from storage.tiered.format.object_keys import ObjectSuffix
from tests.chaos.tier_checks import epoch_faults
from tests.support.clients.remote_storage_view import RemoteStorageView


@dataclass(frozen=True, slots=True)
class Audit:
    """`collected` and `verified` are results of `ottla remote collect` and `verify`; bytes are those of `describe`.

    `orphans` are objects without metadata, `dangling` are missing objects; the epochs of `compared` segments were
    compared with those of their leaders.
    """

    collected: str
    verified: str
    local_bytes: int
    remote_bytes: int
    segments: int
    objects: int
    other_objects: int
    orphans: int
    dangling: int
    compared: int
    faults: list[str]


def audit(tier: RemoteStorageView, topic: str, *, deep: bool) -> Audit:
    """Collect leftovers, then compare. Producers have stopped."""
    collected = tier.remote("collect", "--grace-ms", "0", check=False).strip()
    verified = tier.remote("verify", "--grace-ms", "0", *(["--deep"] if deep else []), check=False).strip()
    bucket, expected = tier.bucket(), tier.expected_objects()
    faults = [f"in the bucket without metadata: {key}" for key in sorted(bucket.segments - expected)]
    faults += [f"in metadata without an object: {key}" for key in sorted(expected - bucket.segments)]
    if "finding(s)" in verified or not re.search(r"\d+ live", verified):
        faults.append(f"verify: {verified}")
    compared, of_epochs = epoch_faults(tier, [topic])
    faults += of_epochs
    rows = described(tier, topic)
    faults += [fault for row in rows for fault in bounds_faults(row)]
    return Audit(
        collected=collected.splitlines()[-1] if collected else "no output",
        verified=verified.splitlines()[-1] if verified else "no output",
        local_bytes=sum(row["localBytes"] for row in rows),
        remote_bytes=sum(row["remoteBytes"] for row in rows),
        segments=len(expected) // len(ObjectSuffix),
        objects=len(bucket.segments),
        other_objects=len(bucket.others),
        orphans=len(bucket.segments - expected),
        dangling=len(expected - bucket.segments),
        compared=compared,
        faults=faults,
    )


def described(tier: RemoteStorageView, topic: str) -> list[dict[str, int]]:
    """Return the output of `ottla remote describe` by partition, with ListOffsets and DescribeLogDirs."""
    rows = tier.remote_json("describe", "--topic", topic)
    assert isinstance(rows, list)
    return rows


def bounds_faults(row: dict[str, int]) -> list[str]:
    """Return a violation unless the log starts remotely and its remote part reaches at least to the local part."""
    bounds = [row[name] for name in ("logStartOffset", "localLogStartOffset", "highestRemoteOffset", "logEndOffset")]
    start, local_start, remote_end, end = bounds
    if start == row["remoteStartOffset"] < local_start <= remote_end + 1 <= end:
        return []
    return [f"partition {row['partition']}: log start, local start, remote end, log end: {bounds}"]
