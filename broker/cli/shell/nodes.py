"""The tree of the metadata shell, with the names and texts of Kafka's shell.

A directory creates a child on lookup, so that only the visited part of a large image costs time.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from struct import Struct
from typing import Final, TypeAlias

from broker.cli.shared.redaction import REDACTED, shown_config
from broker.metadata.image.cluster_image import (
    BrokerRegistration,
    ClusterImage,
    ControllerRegistration,
    RegisteredEndpoint,
)
from broker.metadata.image.config_image import CLUSTER_DEFAULT, ConfigResource, ConfigsImage, ResourceType
from broker.metadata.image.features import FeaturesImage, VersionRange
from broker.metadata.image.metadata_image import MetadataImage, Provenance
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition import LeaderRecoveryState, PartitionRegistration
from broker.metadata.image.quota_image import ClientQuotasImage, QuotaEntity
from broker.metadata.image.security_image import (
    AccessControlEntry,
    AclsImage,
    DelegationToken,
    ScramCredential,
    ScramImage,
    ScramMechanism,
)
from broker.metadata.image.topic_image import TopicImage, TopicsImage
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_from_text, uuid_to_text

_LONGS: Final = Struct(">qq")
_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
_RESOURCES: Final = {
    1: "ANY", 2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER",
}  # fmt: skip
_PATTERNS: Final = {1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
_OPERATIONS: Final = {
    1: "ANY", 2: "ALL", 3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE", 9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE", 13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}  # fmt: skip
_PERMISSIONS: Final = {1: "ANY", 2: "DENY", 3: "ALLOW"}
_QUOTA_TYPES: Final = {"client-id": "clientId", "ip": "ip", "user": "user"}
"""Entity types in Kafka's order, with Kafka's names in the node of a quota."""


@lazy_dataclass(frozen=True, slots=True)
class LeafNode:
    """A file, whose text is created when it is read."""

    read: Callable[[], str]


@lazy_dataclass(frozen=True, slots=True)
class DirectoryNode:
    """A directory. `names` are unsorted; `child` returns None for an unknown name."""

    names: Callable[[], Iterable[str]]
    child: Callable[[str], "MetadataNode | None"]


MetadataNode: TypeAlias = LeafNode | DirectoryNode


def fixed(children: Mapping[str, MetadataNode]) -> DirectoryNode:
    """Return a directory with the given children."""
    return DirectoryNode(children.keys, children.get)


def text(value: object) -> LeafNode:
    return LeafNode(lambda: str(value))


def root(image: MetadataImage) -> DirectoryNode:
    """`/`."""
    return fixed({"image": image_node(image), "local": local_node()})


def image_node(image: MetadataImage) -> DirectoryNode:
    """`/image`."""
    return fixed(
        {
            "acls": fixed({"byId": acls_node(image.acls)}),
            "clientQuotas": quotas_node(image.client_quotas),
            "cluster": cluster_node(image.brokers),
            "configs": configs_node(image.configs),
            "delegationToken": tokens_node(image.delegation_tokens.tokens),
            "features": features_node(image.features),
            "producerIds": fixed({"nextProducerId": text(image.producer_ids.next_id or -1)}),
            "provenance": LeafNode(lambda: provenance_text(image.provenance)),
            "scram": scram_node(image.scram),
            "topics": topics_node(image.topics),
        }
    )


def local_node() -> DirectoryNode:
    """`/local`: the version of this program."""
    try:
        own = version("ottla")
    except PackageNotFoundError:
        own = "unknown"
    return fixed({"commitId": text("unknown"), "version": text(own)})


def provenance_text(provenance: Provenance) -> str:
    moment = datetime.fromtimestamp(provenance.timestamp_ms / 1000, UTC)
    millis = f"{moment.microsecond // 1000:03d}".rstrip("0")
    shown = f"{moment:%Y-%m-%dT%H:%M:%S}{'.' if millis else ''}{f'{moment.microsecond // 1000:03d}' if millis else ''}Z"
    return f"offset {provenance.offset}, epoch {provenance.epoch}, time {shown}[UTC]"


def features_node(features: FeaturesImage) -> DirectoryNode:
    children: dict[str, MetadataNode] = {f"finalized_{name}": text(level) for name, level in features.levels.items()}
    if features.metadata_level is not None:
        known = MetadataVersion._value2member_map_.get(features.metadata_level)
        shown = known.release if isinstance(known, MetadataVersion) else str(features.metadata_level)
        children["metadataVersion"] = text(f"Optional[{shown}]")
    return fixed(children)


def topics_node(topics: TopicsImage) -> DirectoryNode:
    def by_name(name: str) -> MetadataNode | None:
        topic = topics.by_name(name)
        return None if topic is None else topic_node(topic)

    def by_id(name: str) -> MetadataNode | None:
        try:
            topic = topics.by_id(uuid_from_text(name))
        except ValueError:
            return None
        return None if topic is None else topic_node(topic)

    ids = DirectoryNode(lambda: map(uuid_to_text, topics.ids()), by_id)
    return fixed({"byId": ids, "byName": DirectoryNode(topics.names, by_name)})


def topic_node(topic: TopicImage) -> DirectoryNode:
    def child(name: str) -> MetadataNode | None:
        if name in ("id", "name"):
            return text(uuid_to_text(topic.id) if name == "id" else topic.name)
        partition = topic.partition(int(name)) if name.isdecimal() and str(int(name)) == name else None
        return None if partition is None else LeafNode(lambda: partition_text(partition))

    return DirectoryNode(lambda: [*map(str, topic.partitions), "id", "name"], child)


def partition_text(partition: PartitionRegistration) -> str:
    return (
        f"PartitionRegistration(replicas={_ints(partition.replicas)}, directories={_ids(partition.directories)}, "
        f"isr={_ints(partition.isr)}, removingReplicas={_ints(partition.removing_replicas)}, "
        f"addingReplicas={_ints(partition.adding_replicas)}, elr={_ints(partition.elr)}, "
        f"lastKnownElr={_ints(partition.last_known_elr)}, leader={partition.leader}, "
        f"leaderRecoveryState={LeaderRecoveryState(partition.leader_recovery_state).name}, "
        f"leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})"
    )


def cluster_node(cluster: ClusterImage) -> DirectoryNode:
    return fixed(
        {
            "brokers": _by_number(cluster.brokers, broker_text),
            "controllers": _by_number(cluster.controllers, controller_text),
        }
    )


def broker_text(broker: BrokerRegistration) -> str:
    rack = "Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]"
    return (
        f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, "
        f"incarnationId={uuid_to_text(broker.incarnation_id)}, listeners=[{_endpoints(broker.endpoints)}], "
        f"supportedFeatures={{{_ranges(broker.features)}}}, rack={rack}, fenced={_bool(broker.fenced)}, "
        f"inControlledShutdown={_bool(broker.in_controlled_shutdown)}, isMigratingZkBroker=false, "
        f"directories={_ids(sorted(broker.directories, key=_two_longs))})"
    )


def controller_text(controller: ControllerRegistration) -> str:
    return (
        f"ControllerRegistration(id={controller.id}, incarnationId={uuid_to_text(controller.incarnation_id)}, "
        f"zkMigrationReady=false, listeners=[{_endpoints(controller.endpoints)}], "
        f"supportedFeatures={{{_ranges(controller.features)}}})"
    )


def configs_node(configs: ConfigsImage) -> DirectoryNode:
    named = {_resource_name(resource): resource for resource in configs.resources}

    def child(name: str) -> MetadataNode | None:
        resource = named.get(name)
        if resource is None:
            return None
        settings = configs.resources[resource]
        return fixed({key: text(shown_config(resource.type, key, value)) for key, value in settings.items()})

    return DirectoryNode(named.keys, child)


def _resource_name(resource: ConfigResource) -> str:
    kind = ResourceType._value2member_map_.get(resource.type)
    shown = kind.name if isinstance(kind, ResourceType) else str(resource.type)
    return shown if resource.name == CLUSTER_DEFAULT else f"{shown}:{resource.name}"


def quotas_node(quotas: ClientQuotasImage) -> DirectoryNode:
    named = {_entity_name(entity): entity for entity in quotas.entities}

    def child(name: str) -> MetadataNode | None:
        entity = named.get(name)
        return None if entity is None else fixed({key: text(value) for key, value in quotas.of(entity).items()})

    return DirectoryNode(named.keys, child)


def _entity_name(entity: QuotaEntity) -> str:
    parts = dict(entity)
    return "_".join(f"{shown}({_escaped(parts[kind] or '')})" for kind, shown in _QUOTA_TYPES.items() if kind in parts)


def _escaped(name: str) -> str:
    """Quote the characters that structure a node's name."""
    return "".join(f"\\{letter}" if letter in "()\\" else letter for letter in name)


def acls_node(acls: AclsImage) -> DirectoryNode:
    return fixed({uuid_to_text(id): text(acl_text(entry)) for id, entry in acls.entries.items()})


def acl_text(entry: AccessControlEntry) -> str:
    return (
        f"StandardAcl[resourceType={_named(_RESOURCES, entry.resource_type)}, resourceName={entry.resource_name}, "
        f"patternType={_named(_PATTERNS, entry.pattern_type)}, principal={entry.principal}, host={entry.host}, "
        f"operation={_named(_OPERATIONS, entry.operation)}, "
        f"permissionType={_named(_PERMISSIONS, entry.permission_type)}]"
    )


def scram_node(scram: ScramImage) -> DirectoryNode:
    """Return a directory per mechanism, also for mechanisms without credentials."""
    children: dict[str, MetadataNode] = {}
    for mechanism in ScramMechanism:
        users = {
            user: LeafNode(partial(credential_text, credential))
            for (number, user), credential in scram.credentials.items()
            if number == mechanism
        }
        children[mechanism.name.replace("_", "-")] = fixed(users)
    return fixed(children)


def credential_text(credential: ScramCredential) -> str:
    return (
        f"ScramCredentialData(salt={REDACTED}, storedKey={REDACTED}, serverKey={REDACTED}, "
        f"iterations={credential.iterations})"
    )


def tokens_node(tokens: Mapping[str, DelegationToken]) -> DirectoryNode:
    return fixed({token_id: text(token_text(token_id, token)) for token_id, token in tokens.items()})


def token_text(token_id: str, token: DelegationToken) -> str:
    return (
        f"DelegationTokenData(tokenId={token_id}, owner={token.owner}, tokenRequester={token.requester}, "
        f"renewers=[{', '.join(token.renewers)}], issueTimestamp={token.issue_timestamp_ms}, "
        f"maxTimestamp={token.max_timestamp_ms}, expiryTimestamp={token.expiration_timestamp_ms})"
    )


def _by_number(entries: Mapping[int, object], shown: Callable[..., str]) -> DirectoryNode:
    def child(name: str) -> MetadataNode | None:
        entry = entries.get(int(name)) if name.isdecimal() else None
        return None if entry is None else LeafNode(lambda: shown(entry))

    return DirectoryNode(lambda: map(str, entries), child)


def _endpoints(endpoints: Mapping[str, RegisteredEndpoint]) -> str:
    return ", ".join(
        f"Endpoint(listenerName='{name}', securityProtocol={_named(_PROTOCOLS, each[2])}, host='{each[0]}', "
        f"port={each[1]})"
        for name, each in sorted(endpoints.items())
    )


def _ranges(features: Mapping[str, VersionRange]) -> str:
    return ", ".join(f"{name}: {_range(levels)}" for name, levels in sorted(features.items()))


def _range(levels: VersionRange) -> str:
    low, high = levels
    return str(low) if low == high else f"{low}-{high}"


def _named(names: Mapping[int, str], number: int) -> str:
    return names.get(number, f"UNKNOWN({number})")


def _ints(numbers: Iterable[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _ids(ids: Iterable[Uuid]) -> str:
    return f"[{', '.join(map(uuid_to_text, ids))}]"


def _two_longs(number: Uuid) -> tuple[int, int]:
    """Return the sort key of Kafka's Uuid: two signed longs."""
    high, low = _LONGS.unpack(number)
    return high, low


def _bool(value: bool) -> str:
    return str(value).lower()
