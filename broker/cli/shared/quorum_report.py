"""The metadata quorum as kafka-metadata-quorum prints it, or as JSON."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from broker.cli.shared.target import AdminClient
from broker.client import raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from protocol.primitives import ZERO_UUID, uuid_to_text

METADATA_TOPIC = "__cluster_metadata"
COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


class QuorumReplicaInfo(NamedTuple):
    """A voter or observer. Times are ms since 1970, -1 if unknown; `endpoints` are NAME://host:port."""

    state: ReplicaState
    endpoints: tuple[str, ...]
    status: str

    def document(self) -> dict[str, object]:
        """Return the replica as `--status` prints it."""
        shown: dict[str, object] = {"id": self.state.replica_id}
        if self.state.replica_directory_id != ZERO_UUID:
            shown["directoryId"] = uuid_to_text(self.state.replica_directory_id)
        if self.endpoints:
            shown["endpoints"] = list(self.endpoints)
        return shown


class QuorumReport(NamedTuple):
    """The quorum as described by its leader; the leader is the first voter."""

    cluster_id: str
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    high_watermark: int
    voters: tuple[QuorumReplicaInfo, ...]
    observers: tuple[QuorumReplicaInfo, ...]

    @property
    def leader(self) -> ReplicaState:
        return self.voters[0].state

    def lag_of(self, state: ReplicaState) -> int:
        """Return the number of records behind the leader."""
        return self.leader.log_end_offset - state.log_end_offset

    @property
    def slowest(self) -> ReplicaState:
        """The voter with the lowest log end offset."""
        return min((voter.state for voter in self.voters), key=lambda state: state.log_end_offset)

    @property
    def max_follower_lag_ms(self) -> int:
        """Lag of the slowest voter in ms, -1 if a time is unknown."""
        leader, slowest = self.leader, self.slowest
        if slowest is leader:
            return 0
        if leader.last_caught_up_timestamp < 0 or slowest.last_caught_up_timestamp < 0:
            return -1
        return leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp

    def status_lines(self) -> list[str]:
        """Return the lines of --status."""
        rows = {
            "ClusterId": self.cluster_id,
            "LeaderId": self.leader_id,
            "LeaderEpoch": self.leader_epoch,
            "HighWatermark": self.high_watermark,
            "MaxFollowerLag": self.lag_of(self.slowest),
            "MaxFollowerLagTimeMs": self.max_follower_lag_ms,
            "CurrentVoters": _listed(self.voters),
            "CurrentObservers": _listed(self.observers),
        }
        return [f"{name + ':':<24}{value}" for name, value in rows.items()]

    def status_document(self) -> dict[str, object]:
        """Return the document of --status --json."""
        return {
            "clusterId": self.cluster_id,
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "highWatermark": self.high_watermark,
            "maxFollowerLag": self.lag_of(self.slowest),
            "maxFollowerLagTimeMs": self.max_follower_lag_ms,
            "currentVoters": [voter.document() for voter in _by_id(self.voters)],
            "currentObservers": [observer.document() for observer in _by_id(self.observers)],
        }

    def replication_lines(self, now_ms: int, *, readable: bool) -> list[str]:
        """Return the lines of --replication: columns padded to their widest cell, each followed by a tab."""
        rows = [COLUMNS, *(self._row(replica, now_ms, readable) for replica in (*self.voters, *self.observers))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]

    def _row(self, replica: QuorumReplicaInfo, now_ms: int, readable: bool) -> tuple[str, ...]:
        state = replica.state
        times = (state.last_fetch_timestamp, state.last_caught_up_timestamp)
        shown = [f"{now_ms - time} ms ago" if readable and time >= 0 else str(time) for time in times]
        directory_id = uuid_to_text(state.replica_directory_id)
        numbers = (str(state.log_end_offset), str(self.lag_of(state)))
        return (str(state.replica_id), directory_id, *numbers, *shown, replica.status)

    def replication_document(self) -> list[dict[str, object]]:
        """Return the document of --replication --json."""
        return [
            {
                "nodeId": state.replica_id,
                "directoryId": uuid_to_text(state.replica_directory_id),
                "logEndOffset": state.log_end_offset,
                "lag": self.lag_of(state),
                "lastFetchTimestamp": state.last_fetch_timestamp,
                "lastCaughtUpTimestamp": state.last_caught_up_timestamp,
                "status": status,
            }
            for state, _, status in (*self.voters, *self.observers)
        ]


def _by_id(replicas: Sequence[QuorumReplicaInfo]) -> list[QuorumReplicaInfo]:
    return sorted(replicas, key=lambda replica: replica.state.replica_id)


def _listed(replicas: Sequence[QuorumReplicaInfo]) -> str:
    return json.dumps([replica.document() for replica in _by_id(replicas)])


def describe_quorum(admin: AdminClient) -> QuorumReport:
    """Describe the quorum. Raises KafkaError."""
    partition = DescribeQuorumRequestPartitionData(0)
    request = DescribeQuorumRequest([DescribeQuorumRequestTopicData(METADATA_TOPIC, [partition])])
    answer = admin.call(request, DescribeQuorumResponse)
    raise_for(answer.error_code, "the quorum", answer.error_message)
    if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response does not describe exactly one quorum.")
    (found,) = answer.topics[0].partitions
    raise_for(found.error_code, "the quorum", found.error_message)
    endpoints = {
        node.node_id: tuple(f"{each.name}://{each.host}:{each.port}" for each in node.listeners)
        for node in answer.nodes
    }

    def replica(state: ReplicaState, status: str) -> QuorumReplicaInfo:
        listeners = endpoints.get(state.replica_id, ())
        return QuorumReplicaInfo(state, listeners, "Leader" if state.replica_id == found.leader_id else status)

    voters = [replica(state, "Follower") for state in found.current_voters]
    voters.sort(key=lambda each: (each.status != "Leader", each.state.replica_id))
    observers = tuple(replica(state, "Observer") for state in found.observers)
    return QuorumReport(
        admin.cluster_id(),
        BrokerId(found.leader_id),
        LeaderEpoch(found.leader_epoch),
        found.high_watermark,
        tuple(voters),
        observers,
    )
