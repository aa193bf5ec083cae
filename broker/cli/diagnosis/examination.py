"""All rules over the facts of a cluster. Pure."""

from collections.abc import Iterator

from broker.cli.diagnosis.disk_rules import disk_findings
from broker.cli.diagnosis.facts import ClusterFacts
from broker.cli.diagnosis.finding import ClusterFinding, Severity, counted, listed
from broker.cli.diagnosis.node_rules import node_findings
from broker.cli.diagnosis.partition_rules import partition_findings
from broker.cli.diagnosis.quorum_rules import quorum_findings
from broker.cli.diagnosis.work_rules import work_findings


def examine(now: ClusterFacts, before: ClusterFacts | None = None) -> list[ClusterFinding]:
    """Return the findings, the most severe first; `before` is an earlier sample, for rates and growth."""
    found = [
        *quorum_findings(now),
        *partition_findings(now),
        *node_findings(now, before),
        *disk_findings(now, before),
        *work_findings(now, before),
        *_unchecked(now),
    ]
    order = list(Severity)
    return sorted(found, key=lambda each: order.index(each.severity))


def _unchecked(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    if facts.unchecked:
        shown = [f"{each.subject} ({each.reason})" for each in facts.unchecked]
        yield ClusterFinding(
            Severity.WARNING,
            "not-examined",
            "this examination",
            f"{counted(len(facts.unchecked), 'part')} of the cluster could not be examined: {listed(shown)}.",
            "Repeat it with a principal that may describe the cluster, topics, groups and transactional ids "
            "(--command-config), and once all brokers answer.",
            number=len(facts.unchecked),
            names=[each.subject for each in facts.unchecked],
        )
