"""Gauges of remote storage, compared with logs and metadata: Kafka's RemoteCopyLag and RemoteDeleteLag after every
event, also during an outage and while a copy is blocked; RemoteLogMetadataCount at peace.
"""

from broker.metrics.remote_storage import NO_COPY_LAG, NO_DELETE_LAG, CopyLagFigures, DeleteLagFigures, RemoteMeters
from storage.log import Log
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from tests.simulation.remote_log.metadata import BrokerMetadata
from tests.simulation.remote_log.state import Server, State
from tests.support.harnesses.remote_log_harness import TOPIC


class GaugeChecker:
    """GaugesAreTrue: each gauge of a running broker has the value that follows from its log and the metadata.

    A leader may report no copy lag until it knows the remote end of its log, which waits for the last copy of its
    former term. After the first lag of a term, and at peace, the gauge is exact. The delete lag
    counts no segment that is deleted or that the log needs.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._reporting: set[tuple[int, float, int]] = set()
        """Broker, start of its process, and leader epoch of the terms that have reported a lag."""

    def check(self) -> None:
        """Check the lags of all brokers after an event."""
        for server in self._state.alive:
            if not server.is_dying and server.log.failure is None:
                self._check_copy_lag(server, is_exact=False)
                self._check_delete_lag(server)

    def check_at_peace(self) -> None:
        """Check all gauges when nothing is left to copy or to delete."""
        state, leader = self._state, self._state.leader
        assert leader is not None
        for server in state.alive:
            self._check_copy_lag(server, is_exact=True)
            if (lag := _meters(server).delete_lag) != NO_DELETE_LAG:
                state.violated("GaugesAreTrue", f"{server.id} reports deletions at peace: {lag}")
        count, expected = _meters(leader).gauges.log_metadata_count, len(state.bucket.segments())
        if count != expected:
            state.violated("GaugesAreTrue", f"{leader.id} reports {count} remote segments instead of {expected}")

    def _check_delete_lag(self, server: Server) -> None:
        state, reported = self._state, _meters(server).delete_lag
        if not server.replica.is_leader:
            if reported != NO_DELETE_LAG:
                state.violated("GaugesAreTrue", f"{server.id} follows, and reports the delete lag {reported}")
            return
        if reported != NO_DELETE_LAG:
            self._check_excess(server, reported)

    def _check_excess(self, server: Server, reported: DeleteLagFigures) -> None:
        """Check that a delete lag counts only segments that exist and may be deleted."""
        metadata = server.broker.metadata
        assert isinstance(metadata, BrokerMetadata)
        known = metadata.segments_now()
        lineage = lineage_of(server.log)
        most = [each for each in known if self._may_be_due(server, each, lineage)]
        if reported.segments > len(most) or reported.bytes > sum(each.size_bytes for each in most):
            self._state.violated(
                "GaugesAreTrue", f"{server.id} reports the delete lag {reported}, at most {len(most)} are due"
            )

    def _may_be_due(self, server: Server, segment: RemoteSegment, lineage: Lineage) -> bool:
        """Whether a leader may want to delete a segment."""
        state, log = self._state, server.log
        if segment.state is not SegmentState.COPY_FINISHED or segment.end_offset < log.log_start_offset:
            return True
        if state.config.retention_bytes >= 0 or state.has_clock_steps:
            return True
        if lineage.agreed_end(segment) < segment.end_offset:
            return True
        copies = (one for one in state.bucket.segments() if one.id != segment.id)
        if any(one.start_offset <= segment.end_offset and one.end_offset >= segment.start_offset for one in copies):
            return True
        return state.config.retention_ms >= 0 and self._age_ms(server, segment) > state.config.retention_ms

    @staticmethod
    def _age_ms(server: Server, segment: RemoteSegment) -> float:
        return server.clock.now_ms() - segment.max_timestamp_ms

    def _check_copy_lag(self, server: Server, *, is_exact: bool) -> None:
        reported = _meters(server).copy_lag
        term = server.id, server.started_s, server.replica.leader_epoch
        expected = _backlog(server.log) if server.replica.is_leader else NO_COPY_LAG
        if reported == expected:
            if reported.segments:
                self._reporting.add(term)
                self._state.counts.add("copy lags during an outage", int(self._state.weather.is_down))
            return
        if is_exact or reported != NO_COPY_LAG or term in self._reporting:
            self._state.violated("GaugesAreTrue", f"{server.id} reports {reported} instead of {expected}")


def _meters(server: Server) -> RemoteMeters:
    return server.broker.metrics.topic(TOPIC)


def _backlog(log: Log) -> CopyLagFigures:
    """Return the closed segments that remote storage lacks, found by a look at all segments."""
    start = max(log.highest_remote_offset + 1, log.log_start_offset)
    segments = list(log.segments)
    ends = [segment.base_offset for segment in segments[1:]]
    sizes = [segment.size for segment, end in zip(segments, ends, strict=False) if end > start]
    return CopyLagFigures(sum(sizes), len(sizes))
