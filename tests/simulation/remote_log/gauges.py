"""Gauges of remote storage, compared with the logs: Kafka's RemoteCopyLagBytes and RemoteCopyLagSegments after every
event, also during an outage and while a copy is blocked; RemoteDeleteLag and RemoteLogMetadataCount at peace.
"""

from broker.metrics.remote_storage import NO_COPY_LAG, CopyLagFigures, RemoteMeters
from storage.log import Log
from tests.simulation.remote_log.state import Server, State
from tests.support.harnesses.remote_log_harness import TOPIC


class GaugeChecker:
    """GaugesAreTrue: each gauge of a running broker has the value that follows from its log and the metadata.

    A leader may report no copy lag until it knows the remote end of its log, which waits for the last copy of its
    former term. After the first lag of a term, and at peace, the gauge is exact.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._reporting: set[tuple[int, float, int]] = set()
        """Broker, start of its process, and leader epoch of the terms that have reported a lag."""

    def check(self) -> None:
        """Check the copy lag of all brokers after an event."""
        for server in self._state.alive:
            if not server.is_dying and server.log.failure is None:
                self._check_copy_lag(server, is_exact=False)

    def check_at_peace(self) -> None:
        """Check all gauges when nothing is left to copy or to delete."""
        state, leader = self._state, self._state.leader
        assert leader is not None
        for server in state.alive:
            self._check_copy_lag(server, is_exact=True)
            gauges = _meters(server).gauges
            if (gauges.delete_lag_segments, gauges.delete_lag_bytes) != (0, 0):
                state.violated("GaugesAreTrue", f"{server.id} reports deletions at peace: {gauges}")
        count, expected = _meters(leader).gauges.log_metadata_count, len(state.bucket.segments())
        if count != expected:
            state.violated("GaugesAreTrue", f"{leader.id} reports {count} remote segments instead of {expected}")

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
