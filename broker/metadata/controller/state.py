"""The state that the controller's components share: latest image, derived index, and broker sessions.

Components read it; only `Controller.replay` and `Controller.revert` write it. Sessions are soft state outside the log,
touched by heartbeats.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
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
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE: Final = "unclean.leader.election.enable"


class EffectiveConfig(NamedTuple):
    """The effective value of a topic key, with Kafka's number of the value's source."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool


class ConfigLayers(NamedTuple):
    """The stored overrides that apply to a topic, most specific first; the static configuration is below them."""

    topic: Mapping[str, str]
    node: Mapping[str, str]
    cluster: Mapping[str, str]


class ConfigSchema(Protocol):
    """The configuration keys, as the configuration package defines them; the controller only stores values."""

    def validate(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        existing: Mapping[str, str] | None,
        layers: ConfigLayers,
    ) -> None:
        """Validate the complete `configs` that replace `existing`, None for a new resource.

        The lower `layers` apply; their topic layer is ignored. Raises KafkaError, mostly INVALID_CONFIG.
        """
        ...

    def is_list(self, resource_type: int, key: str) -> bool:
        """Whether the key's values are lists, which support APPEND and SUBTRACT."""
        ...

    def default_of(self, resource_type: int, key: str) -> str | None:
        """Return the default value of a key."""
        ...

    def topic_value(self, key: str, layers: ConfigLayers) -> str:
        """Return the effective value of a topic key."""
        ...

    def configs_stored_at_creation(
        self, topic: str, configs: Mapping[str, str], layers: ConfigLayers
    ) -> Mapping[str, str]:
        """Return defaults that a new topic stores as overrides, so that all nodes agree on them for ever."""
        ...

    def effective_topic_configs(self, layers: ConfigLayers) -> list[EffectiveConfig]:
        """Return every effective topic key, in display order."""
        ...


class QuorumView(Protocol):
    """The controller's view of the quorum that it writes through."""

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version."""
        ...

    @property
    def voter_ids(self) -> Collection[int]:
        """The ids of the voters."""
        ...


class SingleVoterQuorum(NamedTuple):
    """A quorum of one."""

    kraft_version: int
    voter_ids: tuple[int]


@lazy_dataclass(frozen=True, slots=True)
class TokenSettings:
    """Settings of delegation tokens. `secret` None disables them; no token lives longer than `max_lifetime_ms`."""

    secret: str | None = field(default=None, repr=False)
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000
    expiry_check_interval_ms: int = 3_600_000


@lazy_dataclass(frozen=True, slots=True)
class MutationQuotaSettings:
    """The period of the mutation quota's burst: `window_count` windows of `window_size_ms`."""

    window_count: int = 11
    window_size_ms: int = 1_000


@lazy_dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of a controller.

    `node_id` selects the broker configs that apply to topics.
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
    remote_metadata_deletion_enable: bool = False


@lazy_dataclass(slots=True)
class ControllerState:
    """The controller's state. `registration_offsets` has the offset of each broker's latest registration record.

    `leaving` holds the brokers that are being removed from their partitions in parts; soft state, as sessions are.
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
        """The latest image, including uncommitted records."""
        return self.loader.image

    @property
    def next_offset(self) -> Offset:
        """The offset of the next record."""
        return Offset(self.loader.state.last_offset + 1)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker may lead and join in-sync sets: active in the image and not leaving."""
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
