"""The roles of all hosted partitions: fetchers for followers, ISR proposals for leaders, listeners, and metrics."""

from collections.abc import Collection
from typing import Protocol

from broker.metadata.image.cluster_image import ClusterDelta
from broker.metrics.replicas import ReplicaFigures
from broker.replication.isr import IsrProposal
from broker.replication.leader import LeaderRole
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.partitions.fetcher_assignments import FetcherAssignments, FetcherManager
from broker.runtime.partitions.isr_updater import IsrUpdater
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_services import IsrProposer


class PartitionListener(Protocol):
    """A component that depends on hosted partitions, such as a coordinator; called after the metadata publishers."""

    def on_hosted(self, partition: Partition) -> None:
        """Note that a partition is in service with its present role, possibly later than the metadata assigned it."""


class LogStartFinder(Protocol):
    """Determines where the empty logs of future leaders start, from remote storage."""

    def find_log_start(self, partition: Partition) -> None:
        """Work later, for as long as the partition awaits its log start."""


class IsrProposals(Protocol):
    """The transport of ISR proposals to the controller; the proposer gets the outcome."""

    def propose(self, proposer: IsrProposer, proposal: IsrProposal) -> None: ...

    def withdraw(self, proposer: IsrProposer) -> None: ...


class HostedRoles:
    """Implements RoleEvents.

    `fetchers` fetches for the replicas that follow other brokers; `isr` takes proposals for the led partitions.
    """

    def __init__(self, broker_id: int, fetchers: FetcherManager, isr: IsrProposals, metadata: MetadataCache) -> None:
        self.figures = ReplicaFigures()
        self._fetcher_assignments = FetcherAssignments(broker_id, fetchers, metadata)
        self._isr = isr
        self._replicated: dict[Partition, None] = {}
        self._listeners: list[PartitionListener] = []
        self._log_start_finder: LogStartFinder | None = None

    @property
    def replicated(self) -> Collection[Partition]:
        """The partitions that this broker leads and that have followers."""
        return self._replicated.keys()

    def isr_updaters(self) -> list[IsrUpdater]:
        """Return the ISR updaters of the `replicated` partitions."""
        return [partition.isr_updater for partition in self._replicated]

    def add_listener(self, listener: PartitionListener) -> None:
        self._listeners.append(listener)

    def use_remote_storage(self, finder: LogStartFinder) -> None:
        """Find the log starts of future leaders in remote storage. Call before the metadata assigns any partition."""
        self._log_start_finder = finder

    def begin_controlled_shutdown(self) -> None:
        """Stop following wherever the controller removes this broker from the ISR."""
        self._fetcher_assignments.is_shutting_down = True

    def on_hosted(self, partition: Partition) -> None:
        """Note that a partition has come into service."""
        self._note_role(partition, is_new_epoch=True)
        self._notify_listeners(partition)

    def on_removed(self, partition: Partition) -> None:
        """Note that a partition is no longer hosted."""
        self._fetcher_assignments.remove(partition)
        self._replicated.pop(partition, None)

    def on_brokers(self, delta: ClusterDelta) -> None:
        """Note that brokers have registered, left, or changed their endpoints."""
        self._fetcher_assignments.on_brokers(delta)

    def on_role(self, partition: Partition, *, is_new_epoch: bool, was_deferred: bool) -> None:
        """See RoleEvents. A coordinator may have seen the partition before it took a deferred role."""
        self._note_role(partition, is_new_epoch=is_new_epoch)
        if was_deferred:
            self._notify_listeners(partition)

    def _note_role(self, partition: Partition, *, is_new_epoch: bool) -> None:
        if isinstance(partition.role, LeaderRole) and partition.role.followers:
            self._replicated[partition] = None
        else:
            self._replicated.pop(partition, None)
        self._fetcher_assignments.on_role(partition, is_new_epoch=is_new_epoch)

    def _notify_listeners(self, partition: Partition) -> None:
        for listener in self._listeners:
            listener.on_hosted(partition)

    def propose_isr(self, proposer: IsrProposer, proposal: IsrProposal) -> None:
        self._isr.propose(proposer, proposal)

    def withdraw_isr(self, proposer: IsrProposer) -> None:
        self._isr.withdraw(proposer)

    @property
    def has_remote_storage(self) -> bool:
        return self._log_start_finder is not None

    def find_log_start(self, partition: Partition) -> None:
        assert self._log_start_finder is not None
        self._log_start_finder.find_log_start(partition)
