"""The cluster as transactional producers see it, and that of this plane: one coordinator partition, ideal logs."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from broker.transactions.end import EndRequest
from broker.transactions.init_producer import InitRequest
from broker.transactions.state import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch, TransactionPartition
from tests.simulation.transactions.coordinator import CoordinatorPartition
from tests.simulation.transactions.network import Answer, Network, Serve
from tests.simulation.transactions.partitions import ProduceRequest
from tests.simulation.world import World


class TransactionServices(Protocol):
    """Requests of transactional producers. Each is a `Serve`; `send` carries it."""

    @property
    def feature_level(self) -> int:
        """The finalized feature `transaction.version`."""
        ...

    @property
    def partitions(self) -> Sequence[TransactionPartition]:
        """The partitions that transactions write to."""
        ...

    def now_ms(self) -> float: ...

    def later(self, delay_ms: float, action: Callable[..., None], *args: object) -> None: ...

    def send(self, serve: Serve[Any], done: Callable[[Answer[Any]], None], *, version: int) -> None:
        """Send a request of a client with a transaction version; `done` is called once."""
        ...

    def init_producer(self, transactional_id: str, request: InitRequest) -> Serve[ProducerIdAndEpoch]: ...

    def add_partition(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TransactionPartition, version: int
    ) -> Serve[None]: ...

    def end(self, transactional_id: str, request: EndRequest) -> Serve[ProducerIdAndEpoch]: ...

    def produce(self, partition: TransactionPartition, request: ProduceRequest) -> Serve[None]: ...


class IdealServices:
    """Implements TransactionServices over the model of a cluster."""

    def __init__(self, world: World, network: Network, coordinator: CoordinatorPartition) -> None:
        self._world = world
        self._network = network
        self._coordinator = coordinator

    @property
    def feature_level(self) -> int:
        return self._coordinator.feature_level

    @property
    def partitions(self) -> Sequence[TransactionPartition]:
        return sorted(self._coordinator.partitions)

    def now_ms(self) -> float:
        return self._world.now_ms

    def later(self, delay_ms: float, action: Callable[..., None], *args: object) -> None:
        self._world.schedule(delay_ms, action, *args)

    def send(self, serve: Serve[Any], done: Callable[[Answer[Any]], None], *, version: int) -> None:
        self._network.send(serve, done, may_be_late=version >= EPOCH_PER_TRANSACTION)

    def init_producer(self, transactional_id: str, request: InitRequest) -> Serve[ProducerIdAndEpoch]:
        return lambda respond: self._coordinator.asked().run(
            lambda shard, fresh_id: shard.init_producer(transactional_id, request, fresh_id), respond
        )

    def add_partition(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TransactionPartition, version: int
    ) -> Serve[None]:
        return lambda respond: self._coordinator.asked().run(
            lambda shard, _: shard.add_partitions(transactional_id, producer, [partition], version), respond
        )

    def end(self, transactional_id: str, request: EndRequest) -> Serve[ProducerIdAndEpoch]:
        return lambda respond: self._coordinator.asked().run(
            lambda shard, fresh_id: shard.end(transactional_id, request, fresh_id), respond
        )

    def produce(self, partition: TransactionPartition, request: ProduceRequest) -> Serve[None]:
        return lambda respond: self._coordinator.partitions[partition].produce(request, respond)
