"""Remote storage as followers see it in tests: segments of numbered records, with configurable delays."""

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from broker.replication.fetch_state import FetchedReplica
from broker.replication.remote_log_aux_state_machine import Load, leader_epoch_entries
from broker.runtime.replication.remote_log_aux_state import RemoteLogUnavailable
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.directories.checkpoints import LeaderEpochEntry
from storage.producer_state import ProducerState
from storage.remote_log_start import RemoteLogStart
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch, TopicIdPartition
from tests.support.fakes.manual_loop import ManualLoop

T = TypeVar("T")


@dataclass(slots=True)
class FakeRemoteLog:
    """Implements RemoteLogSource. `troubles` are the errors of the next calls, `takes_s` is the duration of each."""

    loop: ManualLoop
    say: Callable[[str], None]
    skips_remote: bool = False
    takes_s: float = 0.0
    is_ready: bool = True
    troubles: list[Exception] = field(default_factory=list)
    histories: dict[tuple[str, int], list[tuple[RemoteSegment, list[tuple[LeaderEpoch, int]]]]] = field(
        default_factory=dict
    )

    def add(self, topic: str, index: int, first: int, last: int, epochs: list[tuple[LeaderEpoch, int]]) -> None:
        """Add a finished segment, and the history (epoch, first offset) of the log that it was copied from."""
        present = self.histories.setdefault((topic, index), [])
        partition = TopicIdPartition(Uuid(topic.encode().rjust(16, b"\0")), topic, index)
        before = [epoch for epoch, start in epochs if start <= first][-1:]
        within = [(epoch, start) for epoch, start in epochs if first < start <= last]
        segment = RemoteSegment(
            id=RemoteSegmentId(partition, Uuid(len(present).to_bytes(16, "big"))),
            start_offset=first,
            end_offset=last,
            max_timestamp_ms=0,
            broker_id=BrokerId(1),
            event_timestamp_ms=0,
            size_bytes=1,
            leader_epochs=tuple(
                SegmentEpoch(LeaderEpoch(number), at) for number, at in [*((epoch, first) for epoch in before), *within]
            ),
        )
        present.append((segment, epochs))

    def segment_for(self, replica: FetchedReplica, epoch: int, offset: int) -> "Future[RemoteSegment | None]":
        name = f"{replica.topic}-{replica.index}"
        self.say(f"look up the remote segment of {name} with offset {offset} of epoch {epoch}")

        def find() -> RemoteSegment | None:
            if not self.is_ready:
                raise RemoteLogUnavailable("remote metadata is not loaded yet", is_failure=False)
            known = [segment for segment, _ in self.histories.get((replica.topic, replica.index), [])]
            found = [each for each in known if _writer(each, offset) == epoch]
            return max(found, key=lambda each: each.end_offset, default=None)

        return self._soon(find)

    def load(self, replica: FetchedReplica, load: "Load[RemoteSegment]") -> "Future[RemoteLogStart]":
        segment = load.segment
        self.say(
            f"load the state before {load.next_offset} from remote segment {segment.start_offset}-{segment.end_offset}"
        )

        def fetch() -> RemoteLogStart:
            (epochs,) = (each for known, each in self.histories[replica.topic, replica.index] if known is segment)
            producers = ProducerState()
            producers.end_offset = load.next_offset
            return RemoteLogStart(
                next_offset=load.next_offset,
                log_start_offset=load.log_start_offset,
                epochs=tuple(
                    LeaderEpochEntry(LeaderEpoch(number), at) for number, at in leader_epoch_entries(epochs, load)
                ),
                producers=producers,
            )

        return self._soon(fetch)

    def _soon(self, work: Callable[[], T]) -> "Future[T]":
        future: Future[T] = self.loop.create_future()

        def settle() -> None:
            if self.troubles:
                future.set_exception(self.troubles.pop(0))
                return
            try:
                future.set_result(work())
            except RemoteLogUnavailable as error:
                future.set_exception(error)

        self.loop.call_later(self.takes_s, settle)
        return future


def _writer(segment: RemoteSegment, offset: int) -> int | None:
    """Return the epoch that wrote an offset of a segment."""
    if not segment.start_offset <= offset <= segment.end_offset:
        return None
    return [each.epoch for each in segment.leader_epochs if each.start_offset <= offset][-1]
