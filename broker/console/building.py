"""The parts of the console, joined."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from broker.config.describe import is_sensitive_name
from broker.console.actions import Actions
from broker.console.answers import SharedAnswers
from broker.console.cluster import ConsoleCluster, NodeAccess
from broker.console.events import EventHub
from broker.console.groups import GroupViews
from broker.console.history import LogAccess, MetadataHistory
from broker.console.overview import NodeSurvey, Overview
from broker.console.records import RecordViews
from broker.console.request import View
from broker.console.sampling import ClusterSampler
from broker.console.security import SecurityViews
from broker.console.service import ConsoleService
from broker.console.timeline import TimelineViews
from broker.console.topic_index import TopicIndex
from broker.console.topics import TopicViews
from broker.console.transactions import TransactionViews
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.loop.runtime import Runtime

ANSWER_LIFETIME_MS = 1_500


def is_secret(resource: ConfigResource, key: str) -> bool:
    """Whether the value of a config must not be shown."""
    return resource.type == ResourceType.BROKER and is_sensitive_name(key)


class BuiltConsole(NamedTuple):
    """The console, the function that tells it of new metadata, and the one that ends its tasks."""

    service: ConsoleService
    on_metadata: Callable[[MetadataDelta, MetadataImage], None]
    close: Callable[[], None]


def build_console(
    node: NodeAccess,
    *,
    min_isr: Callable[[MetadataImage, str], int],
    has_credentials: bool,
    host_names: Callable[[], Collection[str]],
    actions_enabled: Callable[[], bool],
    log: LogAccess,
    runtime: Runtime,
) -> BuiltConsole:
    """Build the console of a node."""
    cluster = ConsoleCluster(node)
    shared = SharedAnswers(node.clock.monotonic_ms, ANSWER_LIFETIME_MS)
    index = TopicIndex(node.image, min_isr)
    sampler = ClusterSampler(NodeSurvey(cluster), node.clock)
    overview = Overview(cluster, index, sampler)
    topics = TopicViews(cluster, index, shared)
    groups = GroupViews(cluster, topics, shared)
    security = SecurityViews(cluster)
    history = MetadataHistory(log, runtime, is_secret)
    timeline = TimelineViews(cluster, history, is_secret)
    views: dict[str, View] = {
        "session": overview.session,
        "overview": overview.view,
        "topics": topics.page,
        "topic": topics.topic,
        "topic/partitions": topics.partitions,
        "topic/configs": topics.topic_configs,
        "topic/records": RecordViews(cluster, topics).records,
        "broker/configs": topics.broker_configs,
        "groups": groups.page,
        "group": groups.group,
        "transactions": TransactionViews(cluster, shared).page,
        "acls": security.acls,
        "quotas": security.quotas,
        "users": security.users,
        "timeline": timeline.bounds,
        "timeline/changes": timeline.changes,
        "timeline/at": timeline.at,
        "timeline/topics": timeline.topics,
    }
    hub = EventHub(overview, sampler)
    service = ConsoleService(
        views,
        Actions(cluster, groups).by_name,
        hub,
        has_credentials=has_credentials,
        host_names=host_names,
        actions_enabled=actions_enabled,
    )

    def close() -> None:
        service.close()
        sampler.close()
        shared.close()
        history.close()

    return BuiltConsole(service, index.on_metadata, close)
