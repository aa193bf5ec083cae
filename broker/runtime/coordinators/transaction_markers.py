"""Driver of transaction markers: sends the markers of decided transactions to the leaders of their partitions (KIP-98).

Markers for partitions of this node itself are calls (`own_markers.py`), or take the short way of `loopback.py` if they
belong to `__consumer_offsets`; each transaction by itself: gathering them saves nothing there, and delays the first for
the last. Kafka sends them over the network.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

from broker.logs import EventLog
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import GROUP_OFFSETS_TOPIC
from broker.metrics.transactions import MarkerFigures
from broker.net.peer import Outcome, SocketAddress
from broker.runtime.coordinators.own_markers import OwnMarkers
from broker.runtime.coordinators.transaction_verifier import Peers
from broker.runtime.loop.runtime import Runtime
from broker.transactions.markers import DueMarker, MarkerOutcome, MarkerQueue, PendingMarkers
from broker.transactions.state import Transaction, TransactionPartition
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import WriteTxnMarkersResponse

_RETRY_MS: Final = 100
"""Pause before markers are sent again: after an error, without a leader, or without a connection."""
_VERSIONS: Final = (1, 2)
_OWN_PER_TURN: Final = 64
"""Limit of the markers that one turn of the loop appends to own partitions: a few milliseconds."""

_log: Final = EventLog(__name__)


class TransactionMarkers:
    """Sends markers, and calls `written` when a transaction has all of them.

    `image` returns the latest metadata, `listener` is that of requests between brokers, `is_own` tells whether `peers`
    answer requests to an address without a connection, whose partitions `own` writes to.
    """

    def __init__(
        self,
        runtime: Runtime,
        peers: Peers,
        image: Callable[[], MetadataImage],
        listener: str,
        timeout_ms: Callable[[], int],
        is_own: Callable[[SocketAddress], bool] = lambda _: False,
        own: OwnMarkers | None = None,
    ) -> None:
        self.figures = MarkerFigures()
        self.written: Callable[[PendingMarkers], None] = lambda markers: None
        """The coordinator's reaction; it sets this attribute when it is built."""
        self._runtime = runtime
        self._peers = peers
        self._image = image
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._is_own = is_own
        self._own = own
        self._queues: dict[SocketAddress, MarkerQueue] = {}
        self._is_due = False

    def send(self, markers: PendingMarkers) -> None:
        """Send the markers of a transaction."""
        if markers.missing:
            self._route(DueMarker(markers, partition) for partition in sorted(markers.missing))
        else:
            self._runtime.loop.call_soon(partial(self._end, markers))

    def _end(self, markers: PendingMarkers) -> None:
        if not markers.is_dropped:
            self.written(markers)

    def _route(self, due: Iterable[DueMarker]) -> None:
        """Queue markers at the leaders of their partitions. Partitions that no longer exist need none."""
        image = self._image()
        homeless: list[DueMarker] = []
        own: dict[SocketAddress, MarkerQueue] = {}
        called: list[DueMarker] = []
        for each in due:
            markers, partition = each
            if not markers.lacks(partition):
                continue
            if not _exists(image, partition):
                markers.missing.discard(partition)
                if not markers.missing:
                    self._runtime.loop.call_soon(partial(self._end, markers))
            elif (endpoint := self._leader_of(image, partition)) is None:
                homeless.append(each)
            elif not self._is_own(endpoint):
                self._queues.setdefault(endpoint, MarkerQueue()).add(each)
            elif self._own is None or partition.topic == GROUP_OFFSETS_TOPIC:
                own.setdefault(endpoint, MarkerQueue()).add(each)
            else:
                called.append(each)
        if homeless:
            self.figures.without_leader += len(homeless)
            self._runtime.deadlines.after_ms(_RETRY_MS, partial(self._route_again, homeless))
        for endpoint, queue in own.items():
            self._send(endpoint, queue)
        if called:
            # One turn later: the response to the client that waits for the present decision goes first.
            self._runtime.loop.call_soon(partial(self._write_own, iter(called)))
        if self._queues and not self._is_due:
            self._is_due = True
            self._runtime.loop.call_soon(self._send_all)

    def _route_again(self, homeless: list[DueMarker]) -> None:
        self.figures.without_leader -= len(homeless)
        self._route(homeless)

    def _write_own(self, due: Iterator[DueMarker]) -> None:
        """Append markers to partitions of this node, at most _OWN_PER_TURN; the next turn of the loop goes on."""
        assert self._own is not None
        some = list(islice(due, _OWN_PER_TURN))
        for each in some:
            if each.markers.lacks(each.partition):
                self._own.write(each, partial(self._on_own, each))
        if len(some) == _OWN_PER_TURN:
            self._runtime.loop.call_soon(partial(self._write_own, due))

    def _on_own(self, due: DueMarker, code: ErrorCode) -> None:
        outcome = MarkerOutcome([], [], [])
        outcome.add(due, code)
        self._apply(outcome)

    def _send_all(self) -> None:
        """Send what the present turn of the loop has queued."""
        self._is_due = False
        for endpoint, queue in list(self._queues.items()):
            self._send(endpoint, queue)

    def _send(self, endpoint: SocketAddress, queue: MarkerQueue) -> None:
        request = queue.take_request()
        if request is not None:
            done = partial(self._on_outcome, endpoint, queue)
            self._peers.send(endpoint, request, done, timeout_ms=self._timeout_ms(), versions=_VERSIONS)
        elif not len(queue):
            self._queues.pop(endpoint, None)

    def _on_outcome(self, endpoint: SocketAddress, queue: MarkerQueue, outcome: Outcome) -> None:
        if not isinstance(outcome, WriteTxnMarkersResponse):
            self._retry(queue.on_failure())
        else:
            self._apply(queue.on_response(outcome))
        self._send(endpoint, queue)

    def _apply(self, result: MarkerOutcome) -> None:
        """End transactions with all their markers, and send others again."""
        for fenced in result.fenced:
            _log.warning(
                "Markers were refused: another coordinator or a newer producer has decided",
                transactional_id=fenced.transactional_id,
                producer_id=fenced.transaction.producer_id,
                epoch=fenced.transaction.producer_epoch,
            )
        self._retry(result.again)
        for written in result.written:
            self._end(written)

    def _retry(self, due: list[DueMarker]) -> None:
        if due:
            self._runtime.deadlines.after_ms(_RETRY_MS, partial(self._route, due))

    def _leader_of(self, image: MetadataImage, partition: TransactionPartition) -> SocketAddress | None:
        topic = image.topics.by_name(partition.topic)
        state = None if topic is None else topic.partition(partition.partition)
        broker = None if state is None else image.brokers.get(state.leader)
        if broker is None or broker.fenced or self._listener not in broker.endpoints:
            return None
        endpoint = broker.endpoints[self._listener]
        return SocketAddress(endpoint.host, endpoint.port)


def _exists(image: MetadataImage, partition: TransactionPartition) -> bool:
    topic = image.topics.by_name(partition.topic)
    return topic is not None and topic.partition(partition.partition) is not None


class ShardMarkers:
    """The MarkerSender of one shard. `epoch_of` returns the leader epoch of a transactional id's partition, or None
    where this node no longer leads it.
    """

    def __init__(self, markers: TransactionMarkers, epoch_of: Callable[[str], int | None]) -> None:
        self._markers = markers
        self._epoch_of = epoch_of
        self._pending: WeakValueDictionary[str, PendingMarkers] = WeakValueDictionary()

    def send(self, transactional_id: str, transaction: Transaction) -> None:
        """Write the markers of a transaction, in place of those of an earlier one of the id."""
        epoch = self._epoch_of(transactional_id)
        if epoch is None:
            return
        former = self._pending.get(transactional_id)
        if former is not None:
            former.is_dropped = True
        pending = PendingMarkers(transactional_id, transaction, epoch)
        self._pending[transactional_id] = pending
        self._markers.send(pending)

    def clear(self) -> None:
        """Stop: this node no longer coordinates the partition."""
        for pending in self._pending.values():
            pending.is_dropped = True
