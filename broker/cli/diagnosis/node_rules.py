"""Rules about nodes: brokers that are gone, clocks, in-sync sets, elections, certificates, settings, releases. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Final

from broker.cli.diagnosis.facts import BrokerFacts, CertificateFacts, ClusterFacts, NodeFacts
from broker.cli.diagnosis.finding import ClusterFinding, Severity, counted, duration_text, listed

CLOCK_SKEW_MS_MAX: Final = 1_000
"""Difference of two wall clocks beyond the time of a request."""
FLAPS_MIN: Final = 10
FLAPS_PER_PARTITION_AND_HOUR: Final = 1.0
"""In-sync sets flap when each led partition, on average, loses and regains a replica more often than this."""
CERTIFICATE_WARNING_MS: Final = 30 * 86_400_000
CERTIFICATE_CRITICAL_MS: Final = 7 * 86_400_000
INTERNAL_FACTORS: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "__consumer_offsets",
    "transaction.state.log.replication.factor": "__transaction_state",
    "share.coordinator.state.topic.replication.factor": "__share_group_state",
}
"""Replication factors of internal topics, which count until the topic exists."""
DEFAULT_FACTOR: Final = "default.replication.factor"
MS_PER_HOUR: Final = 3_600_000


def node_findings(now: ClusterFacts, before: ClusterFacts | None) -> Iterator[ClusterFinding]:
    """Yield the findings about nodes."""
    yield from _absent(now)
    yield from _silent(now)
    yield from _clocks(now)
    yield from _flapping(now, before)
    yield from _unclean(now)
    yield from _certificates(now)
    yield from _settings(now)
    yield from _factors(now)
    yield from _releases(now)
    yield from _metadata_level(now)


def _absent(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield brokers that are fenced, or that replicas name although they are not registered."""
    fenced = [broker.id for broker in facts.brokers if broker.is_fenced]
    known = {broker.id for broker in facts.brokers}
    named = {replica for each in facts.partitions for replica in each.replicas}
    lost = sorted(named - known)
    unregistered = "not registered" if facts.knows_fenced else "not live"
    for ids, code, state in ((sorted(fenced), "fenced-brokers", "fenced"), (lost, "unknown-brokers", unregistered)):
        if not ids:
            continue
        affected = [each for each in facts.partitions if set(each.missing) & set(ids)]
        gone = sum(each.leader < 0 for each in affected)
        more = f" {counted(gone, 'of them has', 'of them have')} no leader." if gone else ""
        verb = "is" if len(ids) == 1 else "are"
        yield ClusterFinding(
            Severity.WARNING,
            code,
            _brokers(ids),
            f"{_brokers(ids).capitalize()} {verb} {state}: {counted(len(affected), 'partition')} lack a replica in "
            f"sync because of it.{more}",
            "Start the broker again, and read the end of its log if it stops. Move its replicas with `ottla "
            "reassign-partitions` if it is gone for good.",
            "ottla topics --describe --under-replicated-partitions",
            len(ids),
            [str(id) for id in ids],
        )


def _silent(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    for broker in facts.live:
        if broker.failure is not None:
            yield ClusterFinding(
                Severity.CRITICAL,
                "silent-broker",
                f"broker {broker.id}",
                f"Broker {broker.id} ({broker.address}) is registered but does not answer: {broker.failure}",
                "Check that its advertised address is reachable from here, and that its process is neither suspended "
                "nor overloaded.",
                "ottla broker-api-versions",
                names=[str(broker.id)],
            )


def _clocks(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield nodes whose clocks differ from most of the others, and the clock of this machine if it differs from all."""
    nodes = {broker.id: broker.node for broker in facts.live if broker.node is not None}
    if not nodes:
        return
    middle = median(node.clock_ahead_ms for node in nodes.values())
    odd = {id: node for id, node in nodes.items() if _differs(node, node.clock_ahead_ms - middle)}
    if len(nodes) > 1 and odd:
        shown = [f"broker {id} ({_ahead(node.clock_ahead_ms - middle)})" for id, node in sorted(odd.items())]
        yield ClusterFinding(
            Severity.WARNING,
            "clock-skew",
            _brokers(sorted(odd)),
            f"The clocks of the nodes differ: {listed(shown)}, compared with the others. Timestamps, retention, "
            "delegation tokens and transaction timeouts go wrong.",
            "Run a time service such as chrony on every node.",
            number=len(odd),
            names=[str(id) for id in sorted(odd)],
        )
    if all(_differs(node, middle) for node in nodes.values()) and abs(middle) > CLOCK_SKEW_MS_MAX:
        yield ClusterFinding(
            Severity.WARNING,
            "clock-skew",
            "this machine",
            f"The clock of this machine differs from those of the nodes, which are {_ahead(middle)}. Records that "
            "clients here stamp get wrong times.",
            "Run a time service such as chrony on this machine.",
        )


def _differs(node: NodeFacts, difference_ms: float) -> bool:
    return abs(difference_ms) > CLOCK_SKEW_MS_MAX + node.round_trip_ms


def _ahead(ms: float) -> str:
    return f"{duration_text(abs(ms))} {'ahead' if ms > 0 else 'behind'}"


def _flapping(now: ClusterFacts, before: ClusterFacts | None) -> Iterator[ClusterFinding]:
    led = {broker.id: 0 for broker in now.brokers}
    for each in now.partitions:
        if each.leader in led:
            led[each.leader] += 1
    found = []
    for broker in now.live:
        node = broker.node
        if node is None or node.isr_shrinks < 0:
            continue
        earlier = _earlier_node(broker, before)
        if _flaps_now(node, earlier) or _flaps_since_start(node, led[broker.id]):
            found.append((broker.id, node))
    if found:
        shown = [f"broker {id} ({node.isr_shrinks} shrinks, {node.isr_expands} expansions)" for id, node in found]
        yield ClusterFinding(
            Severity.WARNING,
            "isr-flapping",
            _brokers([id for id, _ in found]),
            f"Replicas leave and join the in-sync sets again and again: {listed(shown)} since the start.",
            "Find the followers that fall behind: garbage, slow disks, an overloaded network. Short pauses can be "
            "tolerated with a higher replica.lag.time.max.ms.",
            "ottla topics --describe --under-replicated-partitions",
            len(found),
            [str(id) for id, _ in found],
        )


def _flaps_now(node: NodeFacts, earlier: NodeFacts | None) -> bool:
    """Whether replicas have both left and joined between the samples."""
    if earlier is None or earlier.uptime_ms >= node.uptime_ms:
        return False
    return node.isr_shrinks - earlier.isr_shrinks > 1 and node.isr_expands - earlier.isr_expands > 1


def _flaps_since_start(node: NodeFacts, led: int) -> bool:
    flaps = min(node.isr_shrinks, node.isr_expands)
    hours = max(node.uptime_ms, MS_PER_HOUR) / MS_PER_HOUR
    return flaps >= FLAPS_MIN and flaps / max(led, 1) / hours > FLAPS_PER_PARTITION_AND_HOUR


def _unclean(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    counts = {broker.id: broker.node.unclean_elections for broker in facts.live if broker.node is not None}
    most = max(counts.values(), default=0)
    if most > 0:
        yield ClusterFinding(
            Severity.WARNING,
            "unclean-elections",
            "the cluster",
            f"Leaders that were not in sync have been elected {counted(most, 'time')} since the start of the node that "
            "runs the longest. Records that only other replicas had are lost.",
            "Compare with the source of the data, and set unclean.leader.election.enable=false for topics that must "
            "not lose records. The count ends with a restart of the nodes.",
            "ottla configs --describe --entity-type topics",
            most,
        )


def _certificates(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    for broker in facts.live:
        for each in () if broker.node is None else broker.node.certificates:
            left_ms = each.not_after_ms - facts.time_ms
            if left_ms <= CERTIFICATE_WARNING_MS:
                yield _certificate(broker, each, left_ms)


def _certificate(broker: BrokerFacts, each: CertificateFacts, left_ms: int) -> ClusterFinding:
    date = datetime.fromtimestamp(each.not_after_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    when = f"expires in {duration_text(left_ms)}" if left_ms > 0 else f"expired {duration_text(-left_ms)} ago"
    return ClusterFinding(
        Severity.CRITICAL if left_ms <= CERTIFICATE_CRITICAL_MS else Severity.WARNING,
        "expiring-certificate",
        f"broker {broker.id}, listener {each.listener}",
        f"The certificate {each.subject} of listener {each.listener} on broker {broker.id} {when} ({date}). Clients "
        "refuse the connection from then on.",
        "Put a new certificate in place of the file. The node loads it within ottla.ssl.reload.interval.ms, without a "
        "restart.",
        f"ottla configs --describe --all --entity-type brokers --entity-name {broker.id}",
        names=[each.subject],
    )


def _settings(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield one finding per sentence, with all brokers that it is true for."""
    brokers: dict[str, list[int]] = {}
    for broker in facts.live:
        for sentence in () if broker.node is None else broker.node.config_warnings:
            brokers.setdefault(sentence, []).append(broker.id)
    for sentence, ids in brokers.items():
        yield ClusterFinding(
            Severity.INFO,
            "ineffective-setting",
            _brokers(ids),
            f"A setting of {_brokers(ids)} does not do what it says: {sentence}",
            "Remove or correct the setting, in the configuration file or with `ottla configs --alter --delete-config`.",
            f"ottla configs --describe --entity-type brokers --entity-name {ids[0]}",
            len(ids),
            [str(id) for id in ids],
        )


def _factors(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield replication factors for topics to come that exceed the registered brokers."""
    registered = len(facts.brokers)
    if not facts.knows_fenced:
        return
    existing = facts.topics
    is_clamped = facts.quorum is not None and len(facts.quorum.voters) == 1 and any(b.node for b in facts.brokers)
    worst: dict[str, int] = {}
    for broker in facts.live:
        for key in (DEFAULT_FACTOR, *INTERNAL_FACTORS):
            if key in INTERNAL_FACTORS and (is_clamped or INTERNAL_FACTORS[key] in existing):
                continue
            text = broker.configs.get(key, "")
            if text.isdigit() and int(text) > registered:
                worst[key] = max(worst.get(key, 0), int(text))
    if worst:
        shown = [f"{key}={factor}" for key, factor in worst.items()]
        yield ClusterFinding(
            Severity.WARNING,
            "replication-factor",
            "the configuration of the brokers",
            f"{listed(shown)} exceeds the {counted(registered, 'registered broker')}. Topics that rely on it cannot be "
            "created.",
            "Register more brokers, or lower the setting.",
            f"ottla configs --describe --all --entity-type brokers --entity-name {facts.brokers[0].id}",
            len(worst),
            list(worst),
        )


def _releases(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    found: dict[str, list[int]] = {}
    for broker in facts.live:
        if broker.node is not None:
            found.setdefault(broker.node.release, []).append(broker.id)
    if len(found) > 1:
        shown = [f"{release} on {_brokers(ids)}" for release, ids in sorted(found.items())]
        yield ClusterFinding(
            Severity.INFO,
            "mixed-releases",
            "the cluster",
            f"The brokers run different releases: {listed(shown)}.",
            "Finish the rolling upgrade.",
            "ottla broker-api-versions",
        )


def _metadata_level(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    levels = [broker.metadata_level for broker in facts.live if broker.metadata_level is not None]
    if levels and facts.metadata_level is not None and facts.metadata_level < min(levels):
        yield ClusterFinding(
            Severity.INFO,
            "metadata-version-behind",
            "the cluster",
            f"metadata.version is at level {facts.metadata_level}, and every broker supports level {min(levels)}. "
            "Features of later levels are off.",
            "Raise the level once no broker will go back to the former release.",
            "ottla features describe",
        )


def _earlier_node(broker: BrokerFacts, before: ClusterFacts | None) -> NodeFacts | None:
    return None if before is None else next((each.node for each in before.brokers if each.id == broker.id), None)


def _brokers(ids: Sequence[int]) -> str:
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {listed(ids)}"
