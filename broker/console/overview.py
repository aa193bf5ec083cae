"""The overview: brokers with their load and disks, the quorum, totals, remote storage."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, DESCRIBE_CLUSTER
from broker.console.cluster import ConsoleCluster
from broker.console.request import ConsoleError, ConsoleRequest, Json
from broker.console.sampling import ClusterSample, ClusterSampler
from broker.console.topic_index import TopicIndex
from broker.metadata.image.cluster_image import BrokerRegistration
from broker.net.peer import PeerError
from protocol.messages.describe_node import DescribedLogDir, DescribeNodeRequest, DescribeNodeResponse
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)
from protocol.primitives import uuid_to_text

_QUORUM: Final = DescribeQuorumRequest(
    [DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])]
)


class NodeSurvey:
    """Asks all nodes for their state, and the quorum's leader for the replicas of the metadata log."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster

    async def __call__(self) -> tuple[Mapping[int, DescribeNodeResponse], list[Json], Json]:
        """Return the answers by node, the nodes without answer, and the quorum."""
        cluster = self._cluster
        image = cluster.image.brokers
        ids = [int(broker.id) for broker in image.brokers.values() if not broker.fenced]
        ids += [id for id in image.controllers if id not in image.brokers]
        request = DescribeNodeRequest(include_log_dirs=True)
        answers = await cluster.ask_all(sorted(ids), lambda _: request, DescribeNodeResponse)
        answers.missing += [
            {"broker": broker.id, "reason": "the broker is fenced"}
            for broker in image.brokers.values()
            if broker.fenced
        ]
        return answers.by_id, answers.missing, await self._quorum(answers.by_id)

    async def _quorum(self, nodes: Mapping[int, DescribeNodeResponse]) -> Json:
        unknown: Json = {"leader_id": None, "leader_epoch": None, "high_watermark": None, "voters": [], "observers": []}
        try:
            response = await self._cluster.ask_any(_QUORUM, DescribeQuorumResponse)
        except (ConsoleError, PeerError):
            return unknown
        found = [each for topic in response.topics for each in topic.partitions if not each.error_code]
        if response.error_code or not found:
            return unknown
        log = found[0]
        end = max((each.log_end_offset for each in log.current_voters), default=log.high_watermark)
        return {
            "leader_id": log.leader_id,
            "leader_epoch": log.leader_epoch,
            "high_watermark": log.high_watermark,
            "voters": [_replica(each, end, nodes) for each in log.current_voters],
            "observers": [_replica(each, end, nodes) for each in log.observers],
        }


class Overview:
    """The view `overview`, and its part that the events repeat."""

    def __init__(self, cluster: ConsoleCluster, topics: TopicIndex, sampler: ClusterSampler) -> None:
        self._cluster = cluster
        self._topics = topics
        self._sampler = sampler

    async def session(self, request: ConsoleRequest) -> Json:
        """Return facts about the serving node and the principal."""
        node = self._cluster.node
        return {
            "cluster_id": node.cluster_id,
            "node_id": node.node_id,
            "release": node.release,
            "principal": request.principal,
            "authorizer": node.authorizer is not None,
            "overview": self._cluster.allows(request, DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME),
            "now_ms": node.clock.now_ms(),
        }

    async def view(self, request: ConsoleRequest) -> Json:
        """Return the overview with the history of traffic."""
        self.check(request)
        sample = await self._sampler.sample()
        return {**await self.live(sample), "samples": list(self._sampler.history)}

    def check(self, request: ConsoleRequest) -> None:
        """Raise ConsoleError if the principal may not describe the cluster."""
        self._cluster.require(request, DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME, "describe the cluster")

    async def live(self, sample: ClusterSample) -> Json:
        """Return the overview at a sample."""
        await self._topics.refresh()
        image, totals = self._cluster.image, self._topics.totals
        brokers = sorted(image.brokers.brokers.values(), key=lambda broker: broker.id)
        return {
            "time_ms": sample.time_ms,
            "metadata_offset": image.offset,
            "controller": {"id": self._cluster.node.leader_id(), "epoch": sample.quorum["leader_epoch"]},
            "quorum": sample.quorum,
            "brokers": [self._broker(each, sample) for each in brokers],
            "totals": {
                "topics": len(image.topics),
                "partitions": image.topics.partition_count,
                "offline": totals.offline,
                "under_replicated": totals.under_replicated,
                "under_min_isr": totals.under_min_isr,
                "bytes_in_per_s": sample.total("bytes_in"),
                "bytes_out_per_s": sample.total("bytes_out"),
                "messages_in_per_s": sample.total("messages_in"),
                "requests_per_s": sample.total("requests"),
            },
            "remote": _remote(sample),
            "missing": list(sample.missing),
        }

    def _broker(self, broker: BrokerRegistration, sample: ClusterSample) -> Json:
        totals, node = self._topics.totals, sample.nodes.get(broker.id)
        state = "shutting down" if broker.in_controlled_shutdown else "fenced" if broker.fenced else "running"
        return {
            "id": broker.id,
            "rack": broker.rack,
            "listeners": [
                {"name": name, "host": endpoint.host, "port": endpoint.port}
                for name, endpoint in broker.endpoints.items()
            ],
            "state": state,
            "is_controller": broker.id == self._cluster.node.leader_id(),
            "leaders": totals.leaders[broker.id],
            "replicas": totals.replicas[broker.id],
            "release": None if node is None else node.release,
            "uptime_ms": None if node is None else node.uptime_ms,
            "load": None if node is None else _load(node, sample.rates.get(broker.id, {})),
            "log_dirs": None if node is None else [_log_dir(each) for each in node.log_dirs],
        }


def _load(node: DescribeNodeResponse, rates: Mapping[str, float]) -> Json:
    cpu_ms = rates.get("cpu_ms")
    return {
        "bytes_in_per_s": rates.get("bytes_in"),
        "bytes_out_per_s": rates.get("bytes_out"),
        "messages_in_per_s": rates.get("messages_in"),
        "requests_per_s": rates.get("requests"),
        "cpu": None if cpu_ms is None else cpu_ms / 1000,
        "memory_bytes": node.memory_bytes,
        "connections": node.connections,
        "loop_lag_max_ms": node.loop_lag_micros / 1000,
    }


def _log_dir(directory: DescribedLogDir) -> Json:
    is_known = directory.total_bytes >= 0
    return {
        "path": directory.path,
        "error": directory.failure,
        "total_bytes": directory.total_bytes if is_known else None,
        "usable_bytes": directory.usable_bytes if is_known else None,
        "size_bytes": directory.size_bytes,
    }


def _replica(replica: ReplicaState, end: int, nodes: Mapping[int, DescribeNodeResponse]) -> Json:
    node = nodes.get(replica.replica_id)
    has_snapshot = node is not None and node.snapshot_end_offset >= 0
    return {
        "id": replica.replica_id,
        "directory_id": uuid_to_text(replica.replica_directory_id),
        "log_end_offset": replica.log_end_offset,
        "lag": max(0, end - replica.log_end_offset) if replica.log_end_offset >= 0 else None,
        "last_fetch_ms": _known(replica.last_fetch_timestamp),
        "last_caught_up_ms": _known(replica.last_caught_up_timestamp),
        "snapshot": {"offset": node.snapshot_end_offset, "epoch": node.snapshot_epoch}
        if node and has_snapshot
        else None,
    }


def _known(value: int) -> int | None:
    return value if value >= 0 else None


def _remote(sample: ClusterSample) -> Json:
    nodes: Iterable[Any] = sample.nodes.values()
    return {
        "enabled": any(node.has_remote_storage for node in nodes),
        "copy_lag_bytes": sum(node.remote_copy_lag_bytes for node in sample.nodes.values()),
        "copy_lag_segments": sum(node.remote_copy_lag_segments for node in sample.nodes.values()),
        "copy_errors": sum(node.remote_copy_errors for node in sample.nodes.values()),
        "fetch_errors": sum(node.remote_fetch_errors for node in sample.nodes.values()),
        "copy_bytes_per_s": sample.total("remote_copy_bytes"),
        "copy_errors_per_s": sample.total("remote_copy_errors"),
        "fetch_bytes_per_s": sample.total("remote_fetch_bytes"),
        "fetch_errors_per_s": sample.total("remote_fetch_errors"),
    }
