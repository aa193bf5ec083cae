"""Sentences about a delta: the changes of one batch of the metadata log, or the difference between two images."""

from collections.abc import Callable, Iterator
from typing import Final

from broker.metadata.image.cluster_image import BrokerRegistration, ClusterDelta, ClusterImage
from broker.metadata.image.config_image import ConfigResource, ConfigsDelta, ConfigsImage, ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import FeaturesDelta, FeaturesImage
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.quota_image import ClientQuotasDelta, ClientQuotasImage, QuotaEntity
from broker.metadata.image.security_image import (
    AccessControlEntry,
    AclsDelta,
    AclsImage,
    DelegationTokensDelta,
    DelegationTokensImage,
    ScramDelta,
    ScramImage,
    ScramMechanism,
)
from broker.metadata.timeline.change import Change
from broker.metadata.timeline.topic_changes import describe_topics

IsSecret = Callable[[ConfigResource, str], bool]
"""Whether the value of a config must not be shown."""

HIDDEN: Final = "hidden"
_KINDS: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.BROKER_LOGGER: "logger of broker",
    ResourceType.CLIENT_METRICS: "client metrics",
    ResourceType.GROUP: "group",
}
_OPERATIONS: Final = (
    "unknown",
    "any",
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster action",
    "describe configs",
    "alter configs",
    "idempotent write",
    "create tokens",
    "describe tokens",
    "two-phase commit",
)
_RESOURCES: Final = ("unknown", "any", "topic", "group", "cluster", "transactional id", "delegation token", "user")
_DENY: Final = 2
_PREFIXED: Final = 4
_VALUE_MAX: Final = 200


def describe(delta: MetadataDelta, is_secret: IsSecret) -> Iterator[Change]:
    """Yield the changes of a delta, by kind of resource and then by name."""
    before: MetadataImage = delta.image
    if delta.features is not None:
        yield from _features(delta.features, before.features)
    if delta.brokers is not None:
        yield from _brokers(delta.brokers, before.brokers)
    if delta.topics is not None:
        yield from describe_topics(delta.topics)
    if delta.configs is not None:
        yield from _configs(delta.configs, before.configs, is_secret, _deleted_topics(delta))
    if delta.client_quotas is not None:
        yield from _quotas(delta.client_quotas, before.client_quotas)
    if delta.acls is not None:
        yield from _acls(delta.acls, before.acls)
    if delta.scram is not None:
        yield from _users(delta.scram, before.scram)
    if delta.delegation_tokens is not None:
        yield from _tokens(delta.delegation_tokens, before.delegation_tokens)
    if delta.producer_ids is not None and delta.producer_ids.next_id != before.producer_ids.next_id:
        then, now = before.producer_ids.next_id, delta.producer_ids.next_id
        yield Change(f"producer ids {then} to {now - 1} allocated", "other", "", str(then), str(now))


def _deleted_topics(delta: MetadataDelta) -> frozenset[str]:
    return frozenset() if delta.topics is None else frozenset(topic.name for topic in delta.topics.deleted.values())


def _features(delta: FeaturesDelta, before: FeaturesImage) -> Iterator[Change]:
    levels = before.finalized()
    for name, level in sorted(delta.changes.items()):
        then = levels.get(name, 0)
        if then != level:
            yield Change(f"feature {name}: level {then} → {level}", "feature", name, str(then), str(level))


def _brokers(delta: ClusterDelta, before: ClusterImage) -> Iterator[Change]:
    for id, now in sorted(delta.changed_brokers.items()):
        then = before.brokers.get(id)
        if now is None:
            if then is not None:
                yield Change(f"broker {id}: unregistered", "broker", str(id), _state(then), None)
        elif then is None or then.incarnation_id != now.incarnation_id:
            address = ", ".join(f"{each.host}:{each.port}" for each in now.endpoints.values())
            again = "" if then is None else " again"
            state = _state(now)
            former = None if then is None else _state(then)
            yield Change(f"broker {id}: registered{again} at {address}, {state}", "broker", str(id), former, state)
        else:
            yield from _broker(id, then, now)
    for id in sorted(delta.changed_controllers):
        again = " again" if id in before.controllers else ""
        yield Change(f"controller {id}: registered{again}", "quorum", str(id))


def _broker(id: int, then: BrokerRegistration, now: BrokerRegistration) -> Iterator[Change]:
    if _state(then) != _state(now):
        yield Change(f"broker {id}: {_state(then)} → {_state(now)}", "broker", str(id), _state(then), _state(now))
    if then.directories != now.directories:
        counts = str(len(then.directories)), str(len(now.directories))
        sentence = f"broker {id}: online log directories {counts[0]} → {counts[1]}"
        if counts[0] == counts[1]:
            sentence = f"broker {id}: other online log directories"
        yield Change(sentence, "broker", str(id), *counts)
    if then.rack != now.rack:
        yield Change(f"broker {id}: rack {then.rack} → {now.rack}", "broker", str(id), then.rack, now.rack)


def _state(broker: BrokerRegistration) -> str:
    if broker.fenced:
        return "fenced"
    return "shutting down" if broker.in_controlled_shutdown else "running"


def _configs(
    delta: ConfigsDelta, before: ConfigsImage, is_secret: IsSecret, deleted_topics: frozenset[str]
) -> Iterator[Change]:
    for resource in sorted(delta.changed_resources):
        if resource.type == ResourceType.TOPIC and resource.name in deleted_topics and resource not in delta.changes:
            continue  # the deletion of the topic says enough
        former = before.of(*resource)
        changes = dict(delta.changes.get(resource, {}))
        if resource in delta.removed:
            changes = {**dict.fromkeys(former), **changes}
        for key, now in sorted(changes.items()):
            then = former.get(key)
            if then == now:
                continue
            yield _config(resource, key, then, now, is_hidden=is_secret(resource, key))


def _config(resource: ConfigResource, key: str, then: str | None, now: str | None, *, is_hidden: bool) -> Change:
    kind = _KINDS.get(ResourceType(resource.type), "resource")
    name = resource.name or "(all brokers)"
    if is_hidden:
        then, now = (None if then is None else HIDDEN), (None if now is None else HIDDEN)
    before, after = _shown(then), _shown(now)
    if now is None:
        sentence = f"{kind} {name}: {key} removed"
    elif then is None or is_hidden:
        sentence = f"{kind} {name}: {key} set" + ("" if is_hidden else f" to {after}")
    else:
        sentence = f"{kind} {name}: {key} {before} → {after}"
    return Change(sentence, "config", resource.name, before, after)


def _shown(value: str | None) -> str | None:
    return value if value is None or len(value) <= _VALUE_MAX else f"{value[:_VALUE_MAX]}…"


def _quotas(delta: ClientQuotasDelta, before: ClientQuotasImage) -> Iterator[Change]:
    for entity, changes in sorted(delta.changes.items(), key=lambda change: str(change[0])):
        name, former = _entity(entity), before.of(entity)
        for key, now in sorted(changes.items()):
            then = former.get(key)
            if then == now:
                continue
            before_text, after = (None if each is None else f"{each:g}" for each in (then, now))
            text = f"{key} removed" if now is None else f"{key} set to {after}"
            yield Change(f"quota of {name}: {text}", "quota", name, before_text, after)


def _entity(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in sorted(entity, reverse=True))


def _acls(delta: AclsDelta, before: AclsImage) -> Iterator[Change]:
    for id, now in delta.changes.items():
        then = before.entries.get(id)
        if now is not None and now != then:
            yield Change(f"ACL added: {_acl(now)}", "acl", now.resource_name, None, _acl(now))
        elif now is None and then is not None:
            yield Change(f"ACL removed: {_acl(then)}", "acl", then.resource_name, _acl(then), None)


def _acl(entry: AccessControlEntry) -> str:
    verb = "may not" if entry.permission_type == _DENY else "may"
    operation, resource = _name(_OPERATIONS, entry.operation), _name(_RESOURCES, entry.resource_type)
    name = f"{entry.resource_name}*" if entry.pattern_type == _PREFIXED else entry.resource_name
    host = "" if entry.host == "*" else f" from {entry.host}"
    return f"{entry.principal} {verb} {operation} {resource} {name}{host}"


def _name(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


def _users(delta: ScramDelta, before: ScramImage) -> Iterator[Change]:
    for (mechanism, name), now in sorted(delta.changes.items(), key=lambda change: change[0]):
        then = before.credentials.get((mechanism, name))
        if now == then:
            continue
        label = ScramMechanism(mechanism).name.replace("_", "-")
        verb = "removed" if now is None else "set" if then is None else "changed"
        yield Change(f"user {name}: {label} credential {verb}", "user", name)


def _tokens(delta: DelegationTokensDelta, before: DelegationTokensImage) -> Iterator[Change]:
    for id, now in sorted(delta.changes.items()):
        then = before.tokens.get(id)
        if now == then:
            continue
        known = now if now is not None else then
        owner = "an unknown user" if known is None else known.owner
        verb = "removed" if now is None else "created" if then is None else "renewed"
        yield Change(f"delegation token of {owner}: {verb}", "user", owner)
