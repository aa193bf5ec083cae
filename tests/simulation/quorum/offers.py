"""Snapshots that a snapshot store offers to simulated nodes: valid ones, and every kind that must not be imported.

All nodes import from one store, in histories whose scenario enables it. The store has its own random source, so that
histories without it stay the same.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.metadata.snapshot.manifest import SnapshotManifest
from broker.quorum.identity import SnapshotId
from broker.runtime.quorum.snapshot_store import RecordCheck
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers
from storage.tiered.errors import StoreUnavailable
from storage.tiered.loading.store_uri import StoreAt
from storage.tiered.object_store import ObjectInfo
from tests.simulation.quorum.disk import METADATA_DIRECTORY
from tests.support.fakes.memory_object_store import MemoryObjectStore

if TYPE_CHECKING:
    from tests.simulation.quorum.node import Node
    from tests.simulation.quorum.simulation import QuorumSimulator

CLUSTER_ID: Final = "simulated-cluster-0001"
_EPOCH_AT: Final = 12
"""Offset in a batch of a field outside of its checksum."""


class Offered(NamedTuple):
    snapshot_id: SnapshotId
    content: bytes


class OfferedSnapshots(MemoryObjectStore):
    """The snapshot store; while `is_away`, every request fails."""

    def __init__(self) -> None:
        super().__init__(piece_bytes=512)
        self.is_away = False

    @property
    def place(self) -> StoreAt:
        return StoreAt(self, "snapshots/")

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        self._require()
        return super().get(key, first, last)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        self._require()
        return super().list(prefix, start_after)

    def _require(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the snapshot store is unavailable")

    def offer(self, offered: Offered, *, cluster_id: str = CLUSTER_ID) -> None:
        """Put a snapshot, then its manifest, in the order of the snapshot job."""
        manifest = SnapshotManifest(
            cluster_id=cluster_id,
            end_offset=offered.snapshot_id.end_offset,
            epoch=offered.snapshot_id.epoch,
            size=len(offered.content),
            sha256=sha256(offered.content).hexdigest(),
            records=0,
            last_contained_log_timestamp=0,
        )
        self.now_ms += 1
        self.put(self.place.key(manifest.file), [offered.content])
        self.put(self.place.key(manifest.name), [manifest.to_json()])


class AnyRecords:
    """RecordCheck that accepts all records: those of the simulation are not metadata."""

    def __init__(self, _epoch: int) -> None:
        """Ignore the epochs; the check of the log compares them."""

    def feed(self, piece: Buffer) -> None:
        """Accept any records."""

    def end(self) -> None:
        """Accept any end; the check of the log looks for the footer."""


def any_records(epoch: int) -> RecordCheck:
    return AnyRecords(epoch)


class OfferSchedule:
    """Puts snapshots into the store at random moments, until `end`."""

    def __init__(self, simulation: "QuorumSimulator", wipe: Callable[[], None]) -> None:
        """Create a schedule; `wipe` wipes the disk of a node if one can be spared, so that it needs the whole log."""
        self._simulation = simulation
        self._random = Random(f"offers {simulation.seed}")
        self._is_over = False
        self._wipe = wipe
        self._kinds: tuple[tuple[int, Callable[[], None]], ...] = (
            (10, self._offer_ahead),
            (12, self._offer_diverging),
            (4, self._offer_sound),
            (5, self._offer_other_epoch),
            (8, wipe),
            (2, self._offer_corrupt),
            (1, self._offer_foreign),
            (2, self._go_away),
        )

    def begin(self) -> None:
        if self._simulation.scenario.imports:
            self._again()

    def end(self) -> None:
        """Stop offering; present snapshots stay, and an unavailable store stays unavailable."""
        self._is_over = True

    def _again(self) -> None:
        if not self._is_over:
            delay_ms = self._random.expovariate(1.0 / self._simulation.scenario.fault_every_ms)
            self._simulation.world.schedule(delay_ms, self._again)
            if self._simulation.is_peaceful:
                return
            (kind,) = self._random.choices([each for _, each in self._kinds], [weight for weight, _ in self._kinds])
            kind()

    def _offer(self, offered: Offered | None, what: str, *, cluster_id: str = CLUSTER_ID) -> None:
        if offered is not None:
            end_offset, epoch = offered.snapshot_id
            self._simulation.checker.note(f"the store offers {end_offset}-{epoch}, {what}")
            self._simulation.offers.offer(offered, cluster_id=cluster_id)

    def _offer_ahead(self) -> None:
        """Offer a snapshot of some node's log, committed or not, that ends at a batch boundary."""
        up = [node for node in self._simulation.nodes.values() if node.replica is not None]
        if up:
            self._offer_of(self._random.choice(up), "from a log")

    def _offer_diverging(self) -> None:
        """Offer a snapshot of the log of a node that does not know the newest epoch, and wipe a node that may fetch it
        once other records are committed at its end.
        """
        observed = self._simulation.checker.observed
        seen = [(now.epoch, node) for node in self._simulation.nodes.values() if (now := observed(node.id)) is not None]
        newest = max((epoch for epoch, _ in seen), default=0)
        behind = [node for epoch, node in seen if epoch < newest and node.replica is not None]
        if behind:
            self._offer_of(self._random.choice(behind), "from the log of a node behind the newest epoch")
            self._wipe()

    def _offer_of(self, node: "Node", what: str) -> None:
        assert node.replica is not None
        imagine = node.replica.imagine
        self._simulation.world.run(node.replica.process, lambda: self._offer(imagine(self._random), what))

    def _offer_sound(self) -> None:
        self._offer(self._any_snapshot(), "from a disk")

    def _offer_other_epoch(self) -> None:
        """Offer a snapshot with an epoch that differs from that of the last record below its end."""
        found = self._any_snapshot()
        epochs = [now.epoch for each in self._simulation.nodes if (now := self._simulation.checker.observed(each))]
        if found is not None and epochs:
            end_offset, epoch = found.snapshot_id
            other = self._random.randint(0, max(epochs))
            if other != epoch:
                content = bytearray(found.content)
                for position, _ in iter_headers(found.content):
                    content[position + _EPOCH_AT : position + _EPOCH_AT + 4] = other.to_bytes(4, "big")
                self._offer(Offered(SnapshotId(end_offset, LeaderEpoch(other)), bytes(content)), "with a wrong epoch")

    def _offer_corrupt(self) -> None:
        found = self._any_snapshot()
        if found is not None:
            content = bytearray(found.content)
            content[self._random.randrange(len(content))] ^= 1 << self._random.randrange(8)
            if self._random.random() < 0.3:
                del content[self._random.randrange(len(content)) :]
            self._offer(found._replace(content=bytes(content) or b"?"), "corrupt")

    def _offer_foreign(self) -> None:
        self._offer(self._any_snapshot(), "of another cluster", cluster_id="another-cluster")

    def _go_away(self) -> None:
        self._simulation.offers.is_away = not self._simulation.offers.is_away
        self._simulation.checker.note(
            f"the snapshot store is {'unavailable' if self._simulation.offers.is_away else 'available'}"
        )

    def _any_snapshot(self) -> Offered | None:
        found = [
            (node.disk, snapshot_id)
            for node in self._simulation.nodes.values()
            for snapshot_id in node.disk.snapshot_ids()
            if snapshot_id.end_offset > 0
        ]
        if not found:
            return None
        newest = max(snapshot_id for _, snapshot_id in found)
        if self._random.random() < 0.5:
            found = [each for each in found if each[1] == newest]
        disk, snapshot_id = self._random.choice(found)
        name = f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}.checkpoint"
        return Offered(snapshot_id, bytes(disk._file(f"{METADATA_DIRECTORY}/{name}").content))
