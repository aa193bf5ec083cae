"""Simulation of a collector while leaders copy, delete, crash and are deposed: it deletes exactly the leftovers.

Seeded. Each rule of `reconcile.py` is disabled in turn to prove that the simulation detects it.
"""

from collections.abc import Callable

import pytest

from storage.tiered.bucket.audit import Audit, AuditContext
from storage.tiered.bucket.collection import Collection
from storage.tiered.bucket.reconcile import AuditedSegment, Finding
from storage.tiered.catalog.metadata_journal import KnownPartition
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, TopicIdPartition
from tests.storage.tiered.bucket.bucket_harness import (
    GRACE_MS,
    PARTITION,
    BucketHarness,
    InterruptedJournal,
    InterruptedStore,
    Violation,
)

SEEDS = range(15)
PASSES = 6


class Collector:
    """Collection passes as the command runs them."""

    def __init__(self, harness: BucketHarness, grace_ms: int = GRACE_MS) -> None:
        self.harness = harness
        self.grace_ms = grace_ms
        self.store = InterruptedStore(harness)
        self.journal = InterruptedJournal(harness)
        self.removed = 0

    def run(self) -> set[Finding]:
        harness = self.harness
        context = AuditContext(
            now_ms=lambda: harness.now_ms,
            grace_ms=self.grace_ms,
            log_start_offset=lambda _: harness.log_start,
            described=harness.described,
        )
        found: set[Finding] = set()
        for report in self.audit(context).partitions():
            found |= {verdict.finding for verdict in report.segments}
            self.removed += self.collection().remove(report, self.also(report.segments))
        return found

    def audit(self, context: AuditContext) -> Audit:
        return Audit(self.store, self.harness.keys, self.journal, context)

    def collection(self) -> Collection:
        return Collection(self.store, self.harness.keys, self.journal, now_ms=lambda: self.harness.now_ms)

    def also(self, verdicts: list[AuditedSegment]) -> list[AuditedSegment]:
        return []


def run_to_the_end(collector: Collector) -> None:
    """Run a seed. Raise Violation, or AssertionError if anything is left over."""
    harness = collector.harness
    for _ in range(PASSES):
        for _ in range(60):
            harness.step()
        found = collector.run()
        if Finding.DANGLING in found:
            raise Violation("the audit reports an intact segment as dangling")
    harness.settle()
    collector.run()
    harness.check()
    assert harness.store.keys() == harness.expected_keys()
    assert {segment.state for segment in harness.truth.segments()} == {SegmentState.COPY_FINISHED}
    assert collector.run() == {Finding.LIVE}


@pytest.mark.parametrize("seed", SEEDS)
def test_collection_removes_exactly_the_leftovers(seed: int) -> None:
    run_to_the_end(Collector(BucketHarness(seed)))


def test_simulation_contains_leftovers_of_every_kind() -> None:
    """Check that the seeds contain leftovers of every collectable kind."""
    kinds: set[Finding] = set()
    removed = 0
    for seed in range(15):
        collector = Collector(BucketHarness(seed))
        for _ in range(PASSES):
            for _ in range(60):
                collector.harness.step()
            kinds |= collector.run()
        removed += collector.removed
    assert {Finding.ORPHAN, Finding.ABANDONED, Finding.HALF_DELETED, Finding.LIVE, Finding.COPYING} <= kinds
    assert removed > 20


class MetadataReadBeforeListing(Collector):
    """Faulty rule: read the metadata once, before the listing."""

    def audit(self, context: AuditContext) -> Audit:
        known = self.journal.catch_up(PARTITION)

        class Stale(InterruptedJournal):
            def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
                return known

        self.stale = Stale(self.harness)
        return Audit(self.store, self.harness.keys, self.stale, context)

    def collection(self) -> Collection:
        return Collection(self.store, self.harness.keys, self.stale, now_ms=lambda: self.harness.now_ms)


class UnverifiedListing(Collector):
    """Faulty rule: every unlisted segment is dangling, without a second check."""

    def audit(self, context: AuditContext) -> Audit:
        class Hasty(Audit):
            def _exists(self, segment: RemoteSegment, suffix: ObjectSuffix) -> bool:
                return False

        return Hasty(self.store, self.harness.keys, self.journal, context)


class ManifestlessSegmentsCollected(Collector):
    """Faulty rule: every segment without a manifest is garbage, whatever the metadata say."""

    def also(self, verdicts: list[AuditedSegment]) -> list[AuditedSegment]:
        return [
            AuditedSegment(Finding.ORPHAN, each.objects, None, each.age_ms)
            for each in verdicts
            if each.objects is not None and not each.objects.is_complete
        ]

    def collection(self) -> Collection:
        class Blind(InterruptedJournal):
            def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
                return KnownPartition(partition)

        return Collection(self.store, self.harness.keys, Blind(self.harness), now_ms=lambda: self.harness.now_ms)


class NoGraceTime(Collector):
    """Faulty rule: do not wait until copies are certainly abandoned."""

    def __init__(self, harness: BucketHarness) -> None:
        super().__init__(harness, grace_ms=0)


FAULTY_RULES: dict[str, Callable[[int], Collector]] = {
    "metadata read before the listing": lambda seed: MetadataReadBeforeListing(BucketHarness(seed), grace_ms=0),
    "unverified listing": lambda seed: UnverifiedListing(BucketHarness(seed)),
    "segments without manifest collected": lambda seed: ManifestlessSegmentsCollected(BucketHarness(seed)),
}
GUARDED_RULES: dict[str, Callable[[int], Collector]] = {
    "no grace time": lambda seed: NoGraceTime(BucketHarness(seed)),
    "copies without a lease": lambda seed: Collector(BucketHarness(seed, is_leased=False), grace_ms=100),
}
"""Faulty rules that lose nothing: the deletion of an unfinished copy has no effect after COPY_FINISHED."""


@pytest.mark.parametrize("rule", FAULTY_RULES)
def test_faulty_rules_are_detected(rule: str) -> None:
    assert any(loses_objects(FAULTY_RULES[rule](seed)) for seed in range(200))


@pytest.mark.parametrize("rule", GUARDED_RULES)
def test_metadata_log_guards_finished_copies(rule: str) -> None:
    assert not any(loses_objects(GUARDED_RULES[rule](seed)) for seed in range(20))


def loses_objects(collector: Collector) -> bool:
    try:
        run_to_the_end(collector)
    except Violation:
        return True
    except AssertionError:
        return False  # Leftovers cost storage and lose no data.
    return False
