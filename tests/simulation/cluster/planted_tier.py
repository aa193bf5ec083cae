"""Planted bugs of voter changes, combined nodes and remote reads in a cluster."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.fetch.remote_reads.read import RemoteRead
from broker.fetch.remote_reads.reads import RemoteReads
from broker.metadata.controller.broker_sessions import BrokerSessions
from broker.node.quorum import QuorumPart
from broker.quorum.identity import SocketAddress
from broker.runtime.controller.broker_watch import BrokerWatch
from broker.runtime.partitions.partition import Partition
from broker.runtime.remote_log.locations import Located, SegmentMissing
from broker.runtime.remote_log.offsets import RemoteOffsets
from protocol.ids import BrokerId
from storage.tiered.catalog.timestamp_index import OffsetGap
from storage.tiered.errors import RemoteResourceNotFound
from storage.tiered.segments import batch_stream
from storage.tiered.segments.stored_log import StoredLog
from tests.simulation.cluster.campaign import run_losing_store, run_rotting_store, run_watching_controllers
from tests.simulation.cluster.planted_bug import Planted
from tests.simulation.cluster.scenario import SPARE_IDS
from tests.simulation.replication.campaign import Patch

_endpoint = QuorumPart._endpoint
_read_from_storage = RemoteReads._read_from_storage


class _AnyChecksum:
    """A checksum that matches every other."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def _match(*_: Any) -> _AnyChecksum:
    return _AnyChecksum()


def _check_nothing(*_: Any) -> None:
    """Accept a chunk as it is."""


async def _take_for_gone(*_: Any) -> bool:
    return True


def _endpoint_of_first_voters(part: QuorumPart, node_id: int) -> SocketAddress | None:
    """Return no endpoint of a voter that was added later."""
    return None if node_id in SPARE_IDS else _endpoint(part, node_id)


def _forget_session(sessions: BrokerSessions, broker_id: BrokerId) -> None:
    """Keep no session in place of one that is held by no process."""
    sessions.remove(broker_id)


async def _read_behind_lost(reads: RemoteReads, read: RemoteRead, located: Located) -> None:
    """Continue at the segment behind one that is lost."""
    try:
        await _read_from_storage(reads, read, located)
    except RemoteResourceNotFound:
        behind = reads._locations.next_held(read.partition, located.last_offset + 1)
        if behind is None:
            raise
        await _read_from_storage(reads, read, behind[1])


async def _stop_at_gaps(
    _offsets: RemoteOffsets, partition: Partition, gaps: Sequence[OffsetGap], _timestamp: int = 0, **_: Any
) -> None:
    """Search nothing behind a gap."""
    if gaps:
        raise SegmentMissing(f"{partition} has holes")


PLANTED_TIER: Final[Mapping[str, Planted]] = {
    "forgetting the ended process of a combined node": Planted(
        (Patch(BrokerSessions, "release", _forget_session),),
        frozenset({"ControllerStateIsImage", "SilentBrokersAreFenced", "NodesDoNotFail"}),
        30,
        first=5,
    ),
    "fencing brokers whose connection is lost although they listen": Planted(
        (Patch(BrokerWatch, "_is_gone", _take_for_gone),),
        frozenset({"LiveBrokersStayUnfenced"}),
        20,
        run=run_watching_controllers,
    ),
    "finding only controllers that were voters from the start": Planted(
        (Patch(QuorumPart, "_endpoint", _endpoint_of_first_voters),), frozenset({"Liveness"}), 150, first=50
    ),
    "serving damaged remote records": Planted(
        (Patch(StoredLog, "_check", _check_nothing), Patch(batch_stream, "crc32c", _match)),
        frozenset({"TieredReadsAreFinal"}),
        10,
        first=5,
        run=run_rotting_store,
    ),
    "giving up a lost object without the operator": Planted(
        (Patch(RemoteReads, "_read_from_storage", _read_behind_lost),),
        frozenset({"TieredReadsAreFinal"}),
        10,
        run=run_losing_store,
    ),
    "ending every look-up by time at a hole": Planted(
        (Patch(RemoteOffsets, "_search_gaps", _stop_at_gaps),),
        frozenset({"LookUpsByTimeEnd"}),
        10,
        run=run_losing_store,
    ),
}
