"""The request pipelines of the client listeners, over the parts of a node."""

from typing import NamedTuple

from broker.api.cluster.describe_node import NodeDescription
from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.authorization import Authorizer
from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.pipeline.quota import ClientThrottle
from broker.api.pipeline.tracing import RequestTracing
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.routes import BrokerServices, broker_routes
from broker.metrics.requests import RequestMetrics
from broker.node.broker import BrokerPart
from broker.node.security.sasl import NodeSasl
from broker.runtime.controller.forwarding import Forwarder
from broker.runtime.controller.loggers import ProcessLoggers
from broker.runtime.partitions.creation_wait import CreationWait
from broker.runtime.quorum.kraft_upgrade import KraftUpgrade

HOSTING_WAIT_MAX_MS = 500
"""Longest time for which a CreateTopics answer waits until the topic's partitions are in service.

An ordinary topic is in service within this time, so a client can use it at once. A topic of a thousand partitions is
not: the answer then follows the commit alone, as in Kafka, and clients retry as they do there.
"""


class ForwardingBroker(NamedTuple):
    """The controller that clients of this broker see: this broker, which forwards controller requests.

    Kafka names any live broker. Naming the active controller would save a hop, but cost clients a failover: librdkafka
    looks for another controller only ten seconds after the known one is gone.
    """

    controller_id: int


def build_client_pipelines(
    broker: BrokerPart,
    loggers: ProcessLoggers,
    requests: RequestMetrics,
    authorizer: Authorizer | None,
    audit: AuditTrail | None,
    sasl: NodeSasl,
    node: NodeDescription,
    tracing: RequestTracing,
) -> RequestPipelines:
    """Build the request pipelines of the client listeners over the parts of the node."""
    runtime, config, directories = broker.runtime, broker.config, broker.directories
    metadata, data, remote = broker.metadata, broker.data, broker.remote
    hosting = CreationWait(data.replica_assignments, wait_max_ms=HOSTING_WAIT_MAX_MS)
    metadata.driver.add_publisher(hosting)
    quorum = metadata.quorum.driver
    created = metadata.topics if config.auto_create_topics_enable else None
    throttle = ClientThrottle(broker.quotas, runtime.clock)
    services = BrokerServices(
        cluster_id=directories.cluster_id,
        node_id=config.node_id,
        kraft_version=lambda: quorum.facts.kraft_version,
        config=metadata.config.get,
        runtime=runtime,
        metadata=metadata.cache,
        controller=metadata.driver,
        forwarder=Forwarder(metadata.forwarding_router),
        created_partitions=hosting,
        active_controller=ForwardingBroker(config.node_id),
        topic_creator=created if remote is None else remote.topic_creator(created),
        create_internal_topic=metadata.topics.ensure_internal_topic,
        partitions=data.partitions,
        log_dirs=directories.log_dirs,
        fetch_sessions=data.fetch_sessions,
        throttles=data.throttles,
        fetch_quota=throttle,
        client_metrics=broker.client_metrics,
        groups=data.groups,
        share_groups=data.share_groups,
        verifier=data.verifier,
        transactions=data.transactions,
        share_states=data.share_states,
        shares=data.shares.partitions,
        share_sessions=data.shares.sessions,
        producer_ids=data.producer_ids,
        loggers=loggers,
        metadata_topic=metadata.topic,
        snapshots=metadata.snapshots,
        node=node,
        kraft_upgrade=KraftUpgrade(quorum),
        authorizer=authorizer,
        tls=runtime.tls,
        quorum=quorum,
        remote_reads=None if remote is None else remote.reads,
        remote_offsets=None if remote is None else remote.offsets,
    )
    dispatcher = Dispatcher(broker_routes(services), runtime.clock, requests, throttle, authorizer, audit, tracing)
    return RequestPipelines(dispatcher, sasl.services(lambda: metadata.cache.image, runtime.clock, audit))
