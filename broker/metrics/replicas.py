"""ReplicaManager's metrics: the state of this node's replicas, updated with every change.

A node has tens of thousands of partitions and few changes, so a scrape counts nothing.
"""

from collections.abc import Callable
from typing import NamedTuple

from broker.metrics.family import Family, counter, gauge
from protocol.lazy_dataclass import lazy_dataclass

_PREFIX = "kafka_server_replicamanager_"


class ReplicaStanding(NamedTuple):
    """The share of one partition in the gauges, each 0 or 1; all but the first only where this broker leads it."""

    is_hosted: bool = False
    is_led: bool = False
    is_under_replicated: bool = False
    is_under_min_isr: bool = False
    is_at_min_isr: bool = False
    is_reassigning: bool = False


NOT_HOSTED = ReplicaStanding()


@lazy_dataclass(slots=True)
class ReplicaFigures:
    """The sums over all partitions, and the counts of ISR changes."""

    partition_count: int = 0
    leader_count: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    failed_isr_updates: int = 0
    reassigning: int = 0

    def move(self, before: ReplicaStanding, now: ReplicaStanding) -> None:
        """Replace the share of one partition in the sums."""
        self.partition_count += now.is_hosted - before.is_hosted
        self.leader_count += now.is_led - before.is_led
        self.under_replicated += now.is_under_replicated - before.is_under_replicated
        self.under_min_isr += now.is_under_min_isr - before.is_under_min_isr
        self.at_min_isr += now.is_at_min_isr - before.is_at_min_isr
        self.reassigning += now.is_reassigning - before.is_reassigning

    def families(
        self,
        *,
        offline_replica_count: Callable[[], float],
        producer_id_count: Callable[[], float],
        late_transaction_count: Callable[[], float],
    ) -> list[Family]:
        """Return the gauges and counters under Kafka's names."""
        return [
            gauge(f"{_PREFIX}partitioncount", "Partitions with a replica on this broker", lambda: self.partition_count),
            gauge(f"{_PREFIX}leadercount", "Partitions led by this broker", lambda: self.leader_count),
            gauge(
                f"{_PREFIX}underreplicatedpartitions",
                "Partitions led by this broker that lack an in-sync replica",
                lambda: self.under_replicated,
            ),
            gauge(
                f"{_PREFIX}underminisrpartitioncount",
                "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas",
                lambda: self.under_min_isr,
            ),
            gauge(
                f"{_PREFIX}atminisrpartitioncount",
                "Partitions led by this broker with exactly min.insync.replicas in-sync replicas",
                lambda: self.at_min_isr,
            ),
            gauge(
                f"{_PREFIX}reassigningpartitions",
                "Partitions led by this broker whose replicas are being changed",
                lambda: self.reassigning,
            ),
            gauge(f"{_PREFIX}offlinereplicacount", "Offline replicas of this broker", offline_replica_count),
            gauge(f"{_PREFIX}produceridcount", "Producers known to this broker's partitions", producer_id_count),
            gauge(
                f"{_PREFIX}partitionswithlatetransactionscount",
                "Partitions led by this broker with a transaction that is open for longer than transactions may be",
                late_transaction_count,
            ),
            counter(
                f"{_PREFIX}isrshrinks_total",
                "ISR shrinks: a lagging replica left",
                lambda: self.isr_shrinks,
            ),
            counter(
                f"{_PREFIX}isrexpands_total",
                "ISR expansions: a replica caught up",
                lambda: self.isr_expands,
            ),
            counter(
                f"{_PREFIX}failedisrupdates_total",
                "ISR changes that the controller refused",
                lambda: self.failed_isr_updates,
            ),
        ]
