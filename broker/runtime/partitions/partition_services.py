"""The services that a hosted partition uses: its view of the brokers, operations on its log, and its role's events.

Time is a `broker.clock.Clock`. `broker_view.py`, `log_operations.py` and `hosted_roles.py` implement the protocols.
"""

import asyncio
from typing import TYPE_CHECKING, Protocol

from broker.metrics.replicas import ReplicaFigures
from broker.replication.isr import IsrProposal
from broker.replication.isr_changes import Outcome
from protocol.ids import BrokerEpoch, BrokerId
from protocol.primitives import Uuid
from storage.errors import LogDirFailure
from storage.log import Log
from storage.remote_log_start import RemoteLogStart

if TYPE_CHECKING:
    from broker.runtime.partitions.partition import Partition


class BrokerView(Protocol):
    """The brokers of the cluster, this one included, by the metadata."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def lag_time_max_ms(self) -> int:
        """`replica.lag.time.max.ms`."""

    def is_isr_eligible(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> bool:
        """Whether a broker may join an ISR: active, and registered with that epoch (-1: any epoch)."""

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Whether a broker is registered and not fenced."""

    def registered_epoch(self, broker_id: BrokerId) -> BrokerEpoch:
        """Return the broker's epoch, -1 if the broker is not registered."""


class LogOperations(Protocol):
    """Operations on a partition's log that block and therefore run off the loop."""

    def create_future(self) -> "asyncio.Future[bool]": ...

    def flush(self, partition: "Partition") -> None:
        """Sync the log soon, then call `partition.on_flushed`."""

    def flush_within(self, partition: "Partition", delay_ms: int) -> None:
        """Sync the log after a delay, then call `partition.on_flushed`."""

    def truncate(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        """Run `Log.truncate_to`."""

    def truncate_fully_and_start_at(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        """Run `Log.truncate_fully_and_start_at`."""

    def start_behind_remote_log(self, log: Log, start: RemoteLogStart) -> "asyncio.Future[bool]":
        """Run `Log.start_behind_remote_log`."""

    def on_log_dir_failure(self, failure: LogDirFailure) -> None:
        """Take the failed log directory offline. Idempotent."""


class IsrProposer(Protocol):
    """A led partition as the sender of AlterPartition requests sees it."""

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def index(self) -> int: ...

    def on_isr_outcome(self, outcome: Outcome) -> None:
        """Apply the outcome of the proposal."""


class RoleEvents(Protocol):
    """The receiver of a partition's role changes and ISR proposals."""

    @property
    def figures(self) -> ReplicaFigures: ...

    def on_role(self, partition: "Partition", *, is_new_epoch: bool, was_deferred: bool) -> None:
        """Note that the partition has taken its present role, or kept it with other replicas.

        `was_deferred`: the role was taken some time after the metadata assigned it.
        """

    def propose_isr(self, proposer: IsrProposer, proposal: IsrProposal) -> None:
        """Send the proposal to the controller; a call of `on_isr_outcome` follows."""

    def withdraw_isr(self, proposer: IsrProposer) -> None:
        """Drop the proposal: a role change made it void."""

    @property
    def has_remote_storage(self) -> bool:
        """Whether the records of a locally empty log may be in remote storage."""

    def find_log_start(self, partition: "Partition") -> None:
        """Determine, later, where the log of a partition that awaits it starts, and call `become_leader`."""
