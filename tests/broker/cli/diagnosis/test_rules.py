"""The rules of `ottla doctor`, by tables: facts in, findings out."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.cli.diagnosis.examination import examine
from broker.cli.diagnosis.facts import (
    BrokerFacts,
    CertificateFacts,
    ClusterFacts,
    GroupFacts,
    HangingFacts,
    LogDirFacts,
    MetadataQuorumFacts,
    NodeFacts,
    PartitionFacts,
    UncheckedFact,
    VoterFacts,
)
from broker.cli.diagnosis.finding import Severity

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
GIB = 1 << 30

CRITICAL, WARNING, INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO


def node(**values: object) -> NodeFacts:
    given: dict[str, object] = {
        "release": "1.0",
        "uptime_ms": 10 * HOUR_MS,
        "round_trip_ms": 5,
        "isr_shrinks": 0,
        "isr_expands": 0,
        "unclean_elections": 0,
        "log_dirs": [directory()],
        **values,
    }
    return NodeFacts(**given)  # type: ignore[arg-type]


def directory(used: float = 0.3, size_bytes: int = GIB, failure: str | None = None) -> LogDirFacts:
    return LogDirFacts("/data", failure, 100 * GIB, int((1 - used) * 100 * GIB), size_bytes)


def broker(id: int, facts: NodeFacts | None = None, **values: object) -> BrokerFacts:
    state = node() if facts is None else facts
    given: dict[str, object] = {
        "node": state,
        "log_dirs": state.log_dirs,
        "metadata_level": 29,
        "configs": {"default.replication.factor": "3", "offsets.topic.replication.factor": "3"},
        **values,
    }
    return BrokerFacts(id, f"host-{id}:9092", **given)  # type: ignore[arg-type]


def partition(
    index: int = 0,
    *,
    topic: str = "orders",
    leader: int | None = None,
    replicas: Sequence[int] = (1, 2, 3),
    isr: Sequence[int] | None = None,
) -> PartitionFacts:
    in_sync = replicas if isr is None else isr
    return PartitionFacts(topic, index, replicas[0] if leader is None else leader, replicas, in_sync)


def voter(id: int, *, lag: int = 0, silent_ms: int = 0, behind_ms: int = 0) -> VoterFacts:
    return VoterFacts(id, 1_000 - lag, NOW_MS - silent_ms, NOW_MS - behind_ms)


def quorum_of(*voters: VoterFacts) -> MetadataQuorumFacts:
    return MetadataQuorumFacts(1, 5, 1_000, voters)


HEALTHY = ClusterFacts(
    NOW_MS,
    [broker(1), broker(2), broker(3)],
    MetadataQuorumFacts(1, 5, 1_000, [voter(1), voter(2), voter(3)]),
    [partition(0), partition(1, replicas=(2, 3, 1)), partition(2, replicas=(3, 1, 2))],
    min_isr={"orders": 2},
    groups=[GroupFacts("readers", "classic", "Stable", 1)],
    metadata_level=29,
)
"""A cluster without a finding; each case changes one part of it."""


class Case(NamedTuple):
    """A change of the healthy cluster, and the findings: severity, code and a part of the problem."""

    name: str
    now: ClusterFacts
    expected: Sequence[tuple[Severity, str, str]]
    before: ClusterFacts | None = None


def with_brokers(*brokers: BrokerFacts) -> ClusterFacts:
    """Replace the brokers with the same ids."""
    changed = {each.id: each for each in brokers}
    return replace(HEALTHY, brokers=[changed.get(each.id, each) for each in HEALTHY.brokers])


def with_partitions(*partitions: PartitionFacts, **values: object) -> ClusterFacts:
    return replace(HEALTHY, partitions=[*HEALTHY.partitions, *partitions], **values)  # type: ignore[arg-type]


def earlier(facts: ClusterFacts, ms: int = 2_000) -> ClusterFacts:
    return replace(facts, time_ms=facts.time_ms - ms)


REBALANCING = replace(HEALTHY, groups=[GroupFacts("readers", "classic", "PreparingRebalance", 1)])
FENCED = BrokerFacts(3, "host-3:9092", is_fenced=True)

CASES = [
    Case("nothing is wrong", HEALTHY, [], earlier(HEALTHY)),
    Case(
        "a partition has no leader",
        with_partitions(partition(3, leader=-1, isr=(1,))),
        [(CRITICAL, "offline-partitions", "1 partition has no leader: orders-3.")],
    ),
    Case(
        "a partition is under min ISR and the follower serves",
        with_partitions(partition(3, isr=(1,))),
        [
            (CRITICAL, "under-min-isr", "1 partition has fewer in-sync replicas"),
            (WARNING, "under-replicated", "broker 2 (1), broker 3 (1)"),
        ],
    ),
    Case(
        "followers of serving brokers lag",
        with_partitions(partition(3, isr=(1, 2)), partition(4, isr=(1, 2))),
        [(WARNING, "under-replicated", "2 partitions are under-replicated: orders-3, orders-4.")],
    ),
    Case(
        "a fenced broker explains its missing replicas",
        replace(
            with_brokers(FENCED), partitions=[partition(0, isr=(1, 2)), partition(1, replicas=(2, 3, 1), isr=(2, 1))]
        ),
        [(WARNING, "fenced-brokers", "Broker 3 is fenced: 2 partitions lack")],
    ),
    Case(
        "replicas name a broker that is not registered",
        replace(HEALTHY, partitions=[partition(0, replicas=(1, 2, 9), isr=(1, 2))]),
        [(WARNING, "unknown-brokers", "Broker 9 is not registered")],
    ),
    Case(
        "min.insync.replicas is the replication factor",
        replace(HEALTHY, min_isr={"orders": 3}),
        [(WARNING, "no-spare-replica", "Writes with acks=all stop when any one broker stops.")],
    ),
    Case(
        "min.insync.replicas exceeds the replication factor",
        replace(HEALTHY, min_isr={"orders": 4}),
        [(WARNING, "no-spare-replica", "the setting even exceeds the replicas")],
    ),
    Case(
        "a topic has a single replica",
        with_partitions(partition(topic="one", replicas=(2,))),
        [(INFO, "single-replica", "1 topic has partitions with a single replica: one.")],
    ),
    Case(
        "an offline single replica is not also a single replica",
        with_partitions(partition(topic="one", replicas=(2,), leader=-1)),
        [(CRITICAL, "offline-partitions", "one-0")],
    ),
    Case(
        "preferred leaders in sync do not lead",
        with_partitions(partition(3, leader=2)),
        [(INFO, "leader-imbalance", "broker 1 (1 of 2)")],
    ),
    Case(
        "a preferred leader out of sync cannot lead",
        with_partitions(partition(3, leader=2, isr=(2, 3)), min_isr={"orders": 2}),
        [(WARNING, "under-replicated", "orders-3")],
    ),
    Case(
        "preferred leaders are spread unevenly",
        with_partitions(*(partition(number) for number in range(3, 23))),
        [(INFO, "uneven-leaders", "1: 21, 2: 1, 3: 1")],
    ),
    Case(
        "a broker is registered and silent",
        with_brokers(BrokerFacts(2, "host-2:9092", failure="host-2:9092 did not respond in time.")),
        [(CRITICAL, "silent-broker", "Broker 2 (host-2:9092) is registered but does not answer")],
    ),
    Case(
        "no active controller",
        replace(HEALTHY, quorum=MetadataQuorumFacts(-1, failure="request timed out")),
        [(CRITICAL, "no-active-controller", "(request timed out)")],
    ),
    Case(
        "a voter is gone",
        replace(HEALTHY, quorum=MetadataQuorumFacts(1, 5, 1_000, [voter(1), voter(2), voter(3, silent_ms=60_000)])),
        [(WARNING, "missing-voters", "No further voter may fail.")],
    ),
    Case(
        "a voter that never fetched is gone",
        replace(HEALTHY, quorum=MetadataQuorumFacts(1, 5, 1_000, [voter(1), voter(2), VoterFacts(3, -1, -1, -1)])),
        [(WARNING, "missing-voters", "1 voter of 3")],
    ),
    Case(
        "a voter lags",
        replace(HEALTHY, quorum=quorum_of(voter(1), voter(2), voter(3, lag=400, behind_ms=30_000))),
        [(WARNING, "lagging-voters", "the slowest is 400 records behind")],
    ),
    Case(
        "the clock of a node is off",
        with_brokers(broker(2, node(clock_ahead_ms=90_000))),
        [(WARNING, "clock-skew", "broker 2 (90 s ahead)")],
    ),
    Case(
        "the clock of this machine is off",
        with_brokers(*(broker(id, node(clock_ahead_ms=-7_000)) for id in (1, 2, 3))),
        [(WARNING, "clock-skew", "The clock of this machine differs from those of the nodes, which are 7 s behind")],
    ),
    Case(
        "a slow answer tells no clock skew",
        with_brokers(broker(2, node(clock_ahead_ms=2_000, round_trip_ms=4_000))),
        [],
    ),
    Case(
        "in-sync sets flap since the start",
        with_brokers(broker(1, node(isr_shrinks=60, isr_expands=58))),
        [(WARNING, "isr-flapping", "broker 1 (60 shrinks, 58 expansions)")],
    ),
    Case(
        "in-sync sets flap between the samples",
        with_brokers(broker(1, node(isr_shrinks=9, isr_expands=9, uptime_ms=10 * HOUR_MS + 2_000))),
        [(WARNING, "isr-flapping", "broker 1")],
        earlier(with_brokers(broker(1, node(isr_shrinks=5, isr_expands=5)))),
    ),
    Case(
        "one rolling restart is no flapping",
        with_brokers(broker(1, node(isr_shrinks=2, isr_expands=2))),
        [],
        earlier(with_brokers(broker(1, node(isr_shrinks=2, isr_expands=2)))),
    ),
    Case(
        "unclean elections happened",
        with_brokers(broker(1, node(unclean_elections=2)), broker(2, node(unclean_elections=1))),
        [(WARNING, "unclean-elections", "elected 2 times")],
    ),
    Case(
        "a certificate expires within a month",
        with_brokers(broker(1, node(certificates=[CertificateFacts("SSL", "CN=a", NOW_MS + 20 * DAY_MS)]))),
        [(WARNING, "expiring-certificate", "expires in 20 days")],
    ),
    Case(
        "a certificate has expired",
        with_brokers(broker(1, node(certificates=[CertificateFacts("SSL", "CN=a", NOW_MS - 2 * HOUR_MS)]))),
        [(CRITICAL, "expiring-certificate", "expired 2 h ago")],
    ),
    Case(
        "a certificate is good for a year",
        with_brokers(broker(1, node(certificates=[CertificateFacts("SSL", "CN=a", NOW_MS + 365 * DAY_MS)]))),
        [],
    ),
    Case(
        "a setting has no effect on two brokers",
        with_brokers(*(broker(id, node(config_warnings=["num.io.threads has no effect."])) for id in (1, 3))),
        [(INFO, "ineffective-setting", "A setting of brokers 1, 3 does not do what it says: num.io.threads")],
    ),
    Case(
        "default.replication.factor exceeds the brokers",
        replace(HEALTHY, brokers=[broker(1, configs={"default.replication.factor": "5"}), broker(2), broker(3)]),
        [(WARNING, "replication-factor", "default.replication.factor=5 exceeds the 3 registered brokers")],
    ),
    Case(
        "the factor of an existing internal topic no longer counts",
        replace(
            with_partitions(partition(topic="__consumer_offsets")),
            brokers=[broker(1, configs={"offsets.topic.replication.factor": "5"}), broker(2), broker(3)],
        ),
        [],
    ),
    Case(
        "brokers run different releases",
        with_brokers(broker(2, node(release="1.1"))),
        [(INFO, "mixed-releases", "1.0 on brokers 1, 3, 1.1 on broker 2")],
    ),
    Case(
        "metadata.version is behind",
        replace(HEALTHY, metadata_level=25),
        [(INFO, "metadata-version-behind", "at level 25")],
    ),
    Case(
        "a log directory is offline",
        with_brokers(broker(1, node(log_dirs=[directory(failure="Input/output error")]))),
        [(CRITICAL, "offline-log-directory", "/data of broker 1 is offline: Input/output error")],
    ),
    Case(
        "a disk is nearly full",
        with_brokers(broker(1, node(log_dirs=[directory(0.9)]))),
        [(WARNING, "disk-filling", "is 90% full")],
    ),
    Case(
        "a disk is full",
        with_brokers(broker(1, node(log_dirs=[directory(0.97)]))),
        [(CRITICAL, "disk-filling", "is 97% full")],
    ),
    Case(
        "a disk fills within hours",
        with_brokers(broker(1, node(log_dirs=[directory(0.75, GIB + (20 << 20))]))),
        [(WARNING, "disk-filling", "At the present growth of 10.0 MiB/s it is full in 43 min")],
        earlier(HEALTHY),
    ),
    Case(
        "a disk with room may grow",
        with_brokers(broker(1, node(log_dirs=[directory(0.3, GIB + (20 << 20))]))),
        [],
        earlier(HEALTHY),
    ),
    Case(
        "a transaction hangs",
        replace(HEALTHY, hanging=[HangingFacts("orders-1", 4_711, 9, NOW_MS - 3 * HOUR_MS)]),
        [(CRITICAL, "hanging-transactions", "orders-1 from offset 4711; the oldest was last written 3 h ago")],
    ),
    Case(
        "a rebalance does not end",
        REBALANCING,
        [(WARNING, "stuck-rebalance", '"readers" (PreparingRebalance)')],
        earlier(REBALANCING, 11_000),
    ),
    Case("a rebalance has just begun", REBALANCING, [], earlier(REBALANCING, 2_000)),
    Case(
        "copies to remote storage fail",
        with_brokers(broker(1, node(remote_copy_errors=7, remote_copy_lag_segments=3, remote_copy_lag_bytes=3 * GIB))),
        [(CRITICAL, "remote-copy-failures", "Broker 1: 7 copies to remote storage failed")],
    ),
    Case("copies that failed and succeeded later", with_brokers(broker(1, node(remote_copy_errors=7))), []),
    Case(
        "reads from remote storage fail",
        with_brokers(broker(1, node(remote_fetch_errors=7, uptime_ms=11 * HOUR_MS))),
        [(CRITICAL, "remote-read-failures", "on broker 1")],
        earlier(with_brokers(broker(1, node(remote_fetch_errors=5)))),
    ),
    Case(
        "copies to remote storage lag",
        with_brokers(broker(1, node(remote_copy_lag_segments=40, remote_copy_lag_bytes=40 * GIB))),
        [(WARNING, "remote-copy-lag", "40 segments (40.0 GiB) on broker 1 wait")],
        earlier(with_brokers(broker(1, node(remote_copy_lag_segments=40, remote_copy_lag_bytes=40 * GIB)))),
    ),
    Case(
        "a part may not be seen",
        replace(HEALTHY, unchecked=[UncheckedFact("the quorum", "cluster authorization failed")]),
        [(WARNING, "not-examined", "the quorum (cluster authorization failed)")],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_facts_give_exactly_these_findings(case: Case) -> None:
    found = examine(case.now, case.before)
    assert [(each.severity, each.code) for each in found] == [(severity, code) for severity, code, _ in case.expected]
    for each, (_, _, text) in zip(found, case.expected, strict=True):
        assert text in each.problem
        assert each.remedy.endswith(".")
        assert each.subject


def test_findings_are_sorted_by_severity() -> None:
    facts = with_partitions(partition(3, leader=-1), partition(topic="one", replicas=(1,)), partition(4, isr=(1, 2)))
    severities = [each.severity for each in examine(facts)]
    assert severities == sorted(severities, key=list(Severity).index)
    assert set(severities) == set(Severity)


def test_thousands_of_partitions_are_counted_and_few_are_named() -> None:
    facts = replace(HEALTHY, partitions=[partition(number, leader=-1) for number in range(5_000)])
    (found,) = [each for each in examine(facts) if each.code == "offline-partitions"]
    assert "5,000 partitions have no leader: orders-0, orders-1, orders-2, orders-3, orders-4 and 4995 more." in (
        found.problem
    )
    assert found.document()["count"] == 5_000
    assert found.document()["names"] == [f"orders-{number}" for number in range(5)]


def test_brokers_of_another_kind_are_judged_by_kafka_apis_alone() -> None:
    bare = [BrokerFacts(id, f"host-{id}:9092", log_dirs=[directory()]) for id in (1, 2, 3)]
    assert examine(replace(HEALTHY, brokers=bare), earlier(replace(HEALTHY, brokers=bare))) == []


def test_single_broker_has_no_finding_about_replicas() -> None:
    """A quorum with one voter clamps the replication factors of internal topics."""
    alone = replace(
        HEALTHY,
        brokers=[broker(1, configs={"offsets.topic.replication.factor": "3"})],
        partitions=[partition(replicas=(1,))],
        min_isr={},
        quorum=MetadataQuorumFacts(1, 5, 1_000, [voter(1)]),
    )
    assert examine(alone) == []


def test_troubleshooting_guide_has_a_section_for_each_finding() -> None:
    root = Path(__file__).parents[4]
    sources = [*(root / "broker/cli/diagnosis").glob("*.py"), root / "broker/cli/doctor.py"]
    codes = {code for path in sources for code in re.findall(r'^ +"([a-z]+(?:-[a-z]+)+)",$', path.read_text(), re.M)}
    codes |= {code for case in CASES for _, code, _ in case.expected}
    sections = set(re.findall(r"^### (\S+)$", (root / "docs/troubleshooting.md").read_text(), re.M))
    assert codes == sections
