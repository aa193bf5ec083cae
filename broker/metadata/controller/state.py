"""What the controller's parts decide upon: the latest image, the indexes derived from it, and the brokers' sessions.

The parts read this; only `Controller.replay` and `Controller.revert` write it. Sessions are soft state and never in the
log: they are touched by heartbeats.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from broker.metadata.controller.broker_sessions import BrokerSessions
from broker.metadata.controller.partition_changes import ElectionRules
from broker.metadata.controller.placement import PlacementRandom
from broker.metadata.image.config_image import ConfigResource
from broker.metadata.image.loader import MetadataLoader
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition_index import PartitionIndex
from protocol.ids import Offset
from protocol.primitives import Uuid

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE: Final = "unclean.leader.election.enable"


class EffectiveConfig(NamedTuple):
    """One key of a topic as it applies, with Kafka's number for where the value came from."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool


class ConfigLayers(NamedTuple):
    """Stored overrides that bear on a topic, the most specific first; the static configuration lies below them."""

    topic: Mapping[str, str]
    node: Mapping[str, str]
    cluster: Mapping[str, str]


class ConfigSchema(Protocol):
    """What the configuration package knows about keys; the controller only stores values."""

    def validate(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        existing: Mapping[str, str] | None,
        layers: ConfigLayers,
    ) -> None:
        """Check the whole set that a resource would have instead of `existing`, None for one that is to be.

        The lower `layers` are in force; their topic part does not count. Raises KafkaError, mostly INVALID_CONFIG.
        """
        ...

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether values of the key are lists, to which one can append."""
        ...

    def default_of(self, resource_type: int, key: str) -> str | None:
        """The value of a key that nobody set."""
        ...

    def topic_value(self, key: str, layers: ConfigLayers) -> str:
        """The value of a topic key in effect."""
        ...

    def configs_stored_at_creation(
        self, topic: str, configs: Mapping[str, str], layers: ConfigLayers
    ) -> Mapping[str, str]:
        """Defaults that a new topic keeps as its own, so that they are the same on all nodes and for all time."""
        ...

    def effective_topic_configs(self, layers: ConfigLayers) -> list[EffectiveConfig]:
        """Every topic key in effect, in the order to show them."""
        ...


class QuorumView(Protocol):
    """What the controller asks about the quorum that it writes through."""

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version."""
        ...

    @property
    def voter_ids(self) -> Collection[int]:
        """The nodes that vote."""
        ...


class SingleVoterQuorum(NamedTuple):
    """A quorum of one."""

    kraft_version: int
    voter_ids: tuple[int]


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Delegation tokens: `secret` None leaves them disabled; no token lives longer than `max_lifetime_ms`."""

    secret: str | None = field(default=None, repr=False)
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000
    expiry_check_interval_ms: int = 3_600_000


@dataclass(frozen=True, slots=True)
class MutationQuotaSettings:
    """Over which time a burst of creations and deletions may be spread: `window_count` windows."""

    window_count: int = 11
    window_size_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What a controller is told at start.

    `node_id` names the layer of node configs that it applies to topics.
    """

    cluster_id: str
    node_id: int
    default_replication_factor: int = 1
    default_partition_count: int = 1
    session_timeout_ms: int = 9_000
    kraft_version: int = 1
    max_idle_interval_ms: int = 500
    leader_imbalance_check_interval_ms: int = 300_000
    auto_leader_rebalance: bool = True
    unclean_election_interval_ms: int = 300_000
    tokens: TokenSettings = TokenSettings()
    mutation_quota: MutationQuotaSettings = MutationQuotaSettings()


@dataclass(slots=True)
class ControllerState:
    """The controller's view. `registration_offsets`: where each broker's latest registration record lies.

    `leaving`: brokers that are being taken out of their partitions, portion by portion. Soft state, as sessions are.
    """

    settings: ControllerSettings
    schema: ConfigSchema
    random: PlacementRandom
    new_id: Callable[[], Uuid]
    loader: MetadataLoader
    quorum: QuorumView
    index: PartitionIndex = field(default_factory=PartitionIndex)
    registration_offsets: dict[int, int] = field(default_factory=dict)
    leaving: set[int] = field(default_factory=set)
    sessions: BrokerSessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = BrokerSessions(self.settings.session_timeout_ms)

    @property
    def image(self) -> MetadataImage:
        """The latest image, written but perhaps not committed."""
        return self.loader.image

    @property
    def next_offset(self) -> Offset:
        """Where the next record is to lie."""
        return Offset(self.loader.state.last_offset + 1)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may lead and join in-sync sets: it is active by the image, and stays."""
        return broker_id not in self.leaving and self.image.brokers.is_active(broker_id)

    @property
    def version(self) -> MetadataVersion:
        return self.image.features.version

    @property
    def rules(self) -> ElectionRules:
        return ElectionRules(self.version, self.image.features.elr_enabled)

    def layers(self, topic: str) -> ConfigLayers:
        configs = self.image.configs
        return ConfigLayers(configs.topic(topic), configs.broker(self.settings.node_id), configs.cluster_default())

    def min_insync_replicas(self, topic: str) -> int:
        return int(self.schema.topic_value(MIN_INSYNC_REPLICAS, self.layers(topic)))

    def allows_unclean_election(self, topic: str) -> bool:
        return self.schema.topic_value(UNCLEAN_LEADER_ELECTION_ENABLE, self.layers(topic)) == "true"
