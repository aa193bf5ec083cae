"""Faults, monitors and final checks of the tier in a chaos run, with one verdict per checker."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from storage.tiered.segment_metadata import SegmentState
from tests.chaos import tier_checks
from tests.chaos.checker import Anomaly, Findings
from tests.chaos.copy_watch import CopyWatch
from tests.chaos.deletions import Deletions
from tests.chaos.network import Network
from tests.chaos.store_faults import StoreFaults, kinds_of
from tests.chaos.tier import BOUNDED, PARTITIONS, RECORD_BYTES, RETENTION_BYTES, TOPICS, Tier
from tests.chaos.topic import TopicRun

EXAMPLES = 10
# Maximum size of a record in the log: its value, its framing, and its share of a batch header.
RECORD_BYTES_MAX = RECORD_BYTES + 100
_OF_READERS = {
    Anomaly.NONMONOTONIC_POLL,
    Anomaly.POLL_SKIP,
    Anomaly.UNSEEN,
    Anomaly.TRUNCATION,
    Anomaly.UNDETECTED_TRUNCATION,
}


@dataclass(frozen=True)
class Verdict:
    """A checker's result: a description of what was checked, the number of violations, and examples."""

    checker: str
    looked_at: str
    bad: int
    examples: Sequence[str]

    @property
    def lines(self) -> list[str]:
        return [f"{self.checker:22} {self.bad} bad ({self.looked_at})", *(f"  {each}" for each in self.examples)]


def of_faults(checker: str, looked_at: str, faults: Sequence[str]) -> Verdict:
    return Verdict(checker, looked_at, len(faults), faults[:EXAMPLES])


def of_findings(
    checker: str, looked_at: str, found: Mapping[str, Findings], belongs: Callable[[Anomaly], bool]
) -> Verdict:
    """Return a verdict on the checker's own anomalies in all topics."""
    bad = sum(count for each in found.values() for anomaly, count in each.counts.items() if belongs(anomaly))
    examples = [
        f"{anomaly}: {topic} {example}"
        for topic, each in found.items()
        for anomaly, told in each.examples.items()
        if belongs(anomaly)
        for example in told
    ]
    return Verdict(checker, looked_at, bad, examples[:EXAMPLES])


class TierRun:
    """Call `start` before node faults, `heal` after them, and `judge` after the topics, with all nodes running."""

    def __init__(self, tier: Tier, network: Network, chance: random.Random) -> None:
        self._tier = tier
        cluster = tier.cluster
        self._copies = CopyWatch(
            [node.run_address for node in cluster.nodes],
            TOPICS,
            lambda: [node.run_address for node in cluster.living],
        )
        self._deletions = Deletions(cluster.bootstrap, BOUNDED, PARTITIONS, random.Random(chance.random()))
        self._faults = _store_faults(tier, network, random.Random(chance.random()))
        self.verdicts: list[Verdict] = []
        self.errors: list[str] = []
        self.notes: list[str] = []

    @property
    def is_clean(self) -> bool:
        return not any(each.bad for each in self.verdicts)

    def start(self) -> None:
        self._copies.start()
        self._deletions.start()
        if self._faults is not None:
            self._faults.start()

    def heal(self) -> None:
        """End the store faults and the deletions."""
        if self._faults is not None:
            self._faults.stop()
            self.errors += [] if self._faults.error is None else [self._faults.error]
        self._deletions.stop()

    def judge(self, topics: Sequence[TopicRun]) -> None:
        """Check the tiered topics."""
        states = tier_checks.settle(self._tier, TOPICS)
        if states is None:
            self.errors.append("remote storage has not become idle")
        self._copies.finish()
        found = {topic.load.topic: topic.outcome.findings for topic in topics}
        segments, epoch_faults = tier_checks.epoch_faults(self._tier, TOPICS)
        objects = len(self._tier.bucket().segments)
        collected, bucket_faults = tier_checks.bucket_faults(self._tier)
        copied = f"{self._copies.copies} copies, {self._copies.unjudged} undecided"
        self.verdicts = [
            of_findings("tiered-log", _log_description(found), found, lambda anomaly: anomaly not in _OF_READERS),
            of_findings("tiered-reader", _reader_description(found), found, _OF_READERS.__contains__),
            of_faults("tiered-start", self._deletion_description(), self._start_faults()),
            of_faults("tiered-copies", copied, self._copies.faults),
            of_faults("tiered-epochs", f"{segments} remote segments", epoch_faults),
            of_faults("tiered-bucket", f"{objects} objects of segments; then {collected}", bucket_faults),
        ]
        self._note(states or {}, topics)

    def _start_faults(self) -> list[str]:
        """Check that the bounded log starts at the acknowledged DeleteRecords offset or where retention permits."""
        faults, bounds = [], self._tier.bounds(BOUNDED)
        for partition, each in bounds.items():
            where, start, end = f"{BOUNDED}-{partition}", each.start or 0, each.end or 0
            promised, asked = (which.get(partition, 0) for which in (self._deletions.deleted, self._deletions.asked))
            if start < promised:
                faults.append(f"{where} starts at {start}, below the deleted offset {promised}")
            least = RETENTION_BYTES // RECORD_BYTES_MAX
            faults += tier_checks.retention_faults(where, end - start, start, asked, least)
        return faults

    def _deletion_description(self) -> str:
        failures = ", ".join(f"{count} {reason}" for reason, count in self._deletions.failures.most_common())
        return f"{self._deletions.done} deletions of records; failed: {failures or 'none'}"

    def _note(self, states: Mapping[SegmentState, int], topics: Sequence[TopicRun]) -> None:
        for topic in topics:
            findings = topic.outcome.findings
            given_up = f"{findings.failed:,} given up {dict(findings.failures) or ''}"
            self.notes.append(f"{topic.load.topic}: {findings.acknowledged:,} records acknowledged, {given_up}")
            if topic.load.rules.idempotent and findings.permitted_repeats:
                repeats = f"{findings.permitted_repeats:,} records repeated or reordered"
                self.notes.append(f"{topic.load.topic}: {repeats} by a client that took another producer epoch")
        self.notes.append(
            f"segments before the collection: {', '.join(f'{n} {state.name}' for state, n in states.items())}"
        )
        if self._faults is not None:
            kinds = Counter(fault.kind for fault in self._faults.done)
            self.notes.append(
                f"{len(self._faults.done)} faults of the store: "
                + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            )
        if self._tier.proxy is not None:
            counts = self._tier.proxy.counts()
            requests = counts.pop("requests", 0)
            self.notes.append(f"{requests:,} requests to the store, {sum(counts.values()):,} with a fault")


def _store_faults(tier: Tier, network: Network, chance: random.Random) -> StoreFaults | None:
    """Return None where the store is a directory, which does not fail."""
    proxy, server, nodes = tier.proxy, tier.server, tier.cluster.ids
    if proxy is None or server is None:
        return None
    return StoreFaults(lambda: kinds_of(proxy, server, network, nodes, chance), chance)


def _log_description(found: Mapping[str, Findings]) -> str:
    kept = sum(each.kept for each in found.values())
    return f"{kept:,} offsets from log start to end, each read once at the end"


def _reader_description(found: Mapping[str, Findings]) -> str:
    passes, reread = (sum(getattr(each, name) for each in found.values()) for name in ("passes", "reread"))
    return f"{reread:,} records in {passes} readings of a partition during the run"
