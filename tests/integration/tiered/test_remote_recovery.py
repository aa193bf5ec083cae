"""Recovery of real clusters from the bucket alone: lost metadata, lost logs, a lost cluster, interrupted recoveries.

All remote records come back unchanged for a librdkafka consumer without a reset policy. Producers append after them in
a later leader epoch. The local tails above the last copied segment are lost with the disks.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from protocol.primitives import uuid_to_text
from storage.directories.formatting import random_id
from tests.support.processes.killed_command import KILLED
from tests.support.processes.local_tiered_cluster import LocalTieredCluster, Read, until
from tests.support.processes.ottla_node import clean_environment

pytestmark = pytest.mark.integration

PARTITIONS = (0, 1)
RECORDS = 4000
REMOTE = 2900
"""Minimum number of records in closed segments."""
DELETED_BELOW = 1500
"""An offset in the middle of a segment."""


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTieredCluster]:
    directory = tmp_path_factory.mktemp("tier")
    with LocalTieredCluster(directory / "cluster", directory / "bucket") as running:
        yield running


def filled(
    tier: LocalTieredCluster, topic: str, *, assignment: Sequence[Sequence[int]] = (), **config: str
) -> dict[int, list[Read]]:
    """Create a topic and wait until most of it is remote. Return the remote records by partition."""
    tier.create(topic, len(PARTITIONS), assignment, **config)
    tier.produce(topic, RECORDS)
    ends = tier.wait_until_tiered(topic, REMOTE)
    return {partition: tier.read(topic, partition, end=ends[partition]) for partition in PARTITIONS}


def check_same(tier: LocalTieredCluster, topic: str, before: dict[int, list[Read]], *, tail_is_lost: bool) -> None:
    """Check that the remote records are readable and that producers append after them."""
    for partition, records in before.items():
        first, end = records[0].offset, records[-1].offset + 1
        assert tier.read(topic, partition, first=first, end=end) == records
        assert not tail_is_lost or tier.bounds(topic)[partition].end == end
    tier.produce(topic, 10, first=RECORDS)
    for partition, records in before.items():
        [*_, last] = tier.read(topic, partition, first=records[-1].offset + 1)
        assert last.key == b"%d" % (RECORDS + 9)
        assert last.leader_epoch > records[-1].leader_epoch


def test_lost_metadata_are_recovered_from_the_bucket(tier: LocalTieredCluster) -> None:
    """Recover metadata after leaders copied their segments again; the duplicates become orphans."""
    before = filled(tier, "known")
    tier.lose_remote_metadata()
    assert "published" in tier.remote("recover", "--metadata-only")
    check_same(tier, "known", before, tail_is_lost=False)
    assert "no events are missing" in tier.remote("recover", "--metadata-only")
    until(lambda: tier.is_idle("known"), "the end of all copies")
    tier.remote("collect", "--grace-ms", "0")
    tier.wait_until_verified("--deep", "--grace-ms", "0")
    check_same(tier, "known", before, tail_is_lost=False)


def test_wiped_logs_continue_after_the_remote_log(tier: LocalTieredCluster) -> None:
    """Wipe all disks of a topic; the brokers continue without intervention."""
    before = filled(tier, "logs")
    tier.stop()
    tier.lose_logs("logs", 1, 2, 3)
    tier.start()
    tier.wait_until_led("logs")
    check_same(tier, "logs", before, tail_is_lost=True)


def test_unclean_leader_with_a_wiped_disk_keeps_the_remote_log(tier: LocalTieredCluster) -> None:
    """Let the former in-sync replica return later and truncate what the new leader lacks."""
    before = filled(tier, "unclean", assignment=[[1, 2], [2, 1]], unclean_leader_election_enable="true")
    for broker_id in (1, 2):
        tier.cluster[broker_id].kill()
    tier.lose_logs("unclean", 1)
    tier.cluster.start(1)
    tier.wait_until_led("unclean")
    until(lambda: tier.leader_of("unclean") == 1, "news of the leader")
    check_same(tier, "unclean", before, tail_is_lost=True)
    tier.cluster.start(2)
    tier.wait_until_in_sync("unclean", 2)
    tier.cluster[1].kill()
    tier.wait_until_led("unclean")
    check_same(tier, "unclean", before, tail_is_lost=False)
    tier.cluster.start(1)
    tier.wait_until_verified()


def test_collect_removes_only_unreferenced_objects(tier: LocalTieredCluster) -> None:
    filled(tier, "kept")
    tier.wait_until_verified()
    before = tier.objects()
    manifest = next(key for key in before if key.startswith("kept-") and key.endswith(".rsm-manifest"))
    known = manifest.removesuffix(".rsm-manifest")
    planted = known[:-22] + uuid_to_text(random_id())
    for suffix in ("log", "indexes"):
        shutil.copy(tier.root / f"{known}.{suffix}", tier.root / f"{planted}.{suffix}")
    assert "1 orphan" in tier.remote("verify", "--grace-ms", "0", check=False)
    assert "1 segments" in tier.remote("collect", "--grace-ms", "0")
    after = set(tier.objects())  # other topics may be copied meanwhile
    assert after >= set(before)
    assert not any(key.startswith(planted) for key in after)
    tier.wait_until_verified("--grace-ms", "0")


def test_topic_deletion_without_its_leader_empties_the_bucket(tier: LocalTieredCluster) -> None:
    filled(tier, "gone")
    leader = tier.leader_of("gone")
    assert leader is not None
    tier.cluster[leader].kill()
    tier.cluster.ottla("topics", "--delete", "--topic", "gone")
    until(lambda: not tier.objects("gone"), "an empty bucket")
    tier.cluster.start(leader)
    tier.wait_until_verified("--grace-ms", "0")
    assert tier.objects("gone") == []


def kill_recovery(tier: LocalTieredCluster, effect: str, count: int, *arguments: str) -> None:
    """Run a recovery that is killed before the given effect."""
    command = [sys.executable, "-m", "tests.support.processes.killed_command", effect, str(count)]
    done = subprocess.run(
        [*command, *tier.remote_arguments("recover", *arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == KILLED, f"{effect} {count}: {done.stdout}{done.stderr}"


def test_interrupted_recoveries_restore_a_lost_cluster(tmp_path: Path) -> None:
    with LocalTieredCluster(tmp_path / "first", tmp_path / "bucket") as first:
        first.create("empty", 3, segment_bytes="2000000")
        before = filled(first, "t")
        first.delete_records("t", 1, DELETED_BELOW)
        before[1] = before[1][DELETED_BELOW:]
        until(lambda: any("/log-start-" in key for key in first.objects("t")), "the log start beside the segments")
        lost = first.cluster_id
    with LocalTieredCluster(tmp_path / "second", tmp_path / "bucket") as second:
        refused = second.remote("recover", "--all-topics", check=False)
        assert f"--from-cluster {lost}" in refused
        everything = ("--all-topics", "--from-cluster", lost)
        for effect, count in (
            ("validate", 0),
            ("restore", 0),
            ("publish", 0),
            ("publish", 1),
            ("publish", 1),
            ("restore", 0),
            ("look-up", 0),
        ):
            kill_recovery(second, effect, count, *everything)
        second.remote("recover", *everything)
        second.wait_until_led("t")
        assert second.bounds("t")[1].start == DELETED_BELOW
        check_same(second, "t", before, tail_is_lost=True)
        described = second.cluster.ottla("topics", "--describe", "--topic", "empty")
        assert "PartitionCount: 3" in described
        assert re.search("segment.bytes=2000000", described)
        second.wait_until_verified("--deep")

        second.lose_everything()
        second.remote("recover", "--topic", "t")
        second.remote("recover", "--topic", "empty")  # the bucket has the log starts of its partitions
        check_same(second, "t", before, tail_is_lost=True)
        assert second.bounds("t")[1].start == DELETED_BELOW
        second.wait_until_verified("--deep")
