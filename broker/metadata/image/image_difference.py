"""The delta between two arbitrary images, published after a snapshot was loaded.

Topics and configs are in the order of their ids, so that publishers act in the same order in every process: hashes,
and with them the order of the maps, differ.

Equal parts stay None, as in a delta of records. The delta is for publishers to read and for `MetadataDelta.apply`; no
records may be replayed on it.
"""

from collections.abc import Hashable, Mapping
from typing import TypeVar

from broker.metadata.image.cluster_image import ClusterDelta
from broker.metadata.image.config_image import ConfigsDelta, ConfigsImage
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import FeaturesDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.producer_id_image import ProducerIdsDelta
from broker.metadata.image.quota_image import ClientQuotasDelta, ClientQuotasImage
from broker.metadata.image.security_image import AclsDelta, DelegationTokensDelta, ScramDelta
from broker.metadata.image.slices import Steps, sorted_in_steps
from broker.metadata.image.topic_image import TopicDelta, TopicImage, TopicsDelta, TopicsImage

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Comparing or creating the delta of a topic of some ten partitions takes a microsecond or two.
_TOPICS_PER_STEP = 256


def difference(before: MetadataImage, after: MetadataImage) -> Steps[MetadataDelta]:
    """Return the delta, in steps. Topics and configs may be many; the other parts are compared in one step."""
    delta = MetadataDelta(before)
    if before.features != after.features:
        delta.features = FeaturesDelta(before.features)
        levels = after.features.finalized()
        delta.features.changes.update({name: 0 for name in before.features.finalized() if name not in levels} | levels)
    if before.brokers != after.brokers:
        delta.brokers = ClusterDelta(before.brokers)
        delta.brokers.changed_brokers.update(_changes(before.brokers.brokers, after.brokers.brokers))
        old = before.brokers.controllers  # controllers are never unregistered
        delta.brokers.changed_controllers.update(
            (id, new) for id, new in after.brokers.controllers.items() if old.get(id) != new
        )
    yield
    delta.topics = yield from _topics(before.topics, after.topics)
    delta.configs = yield from _configs(before.configs, after.configs)
    _add_others(delta, before, after)
    return delta


def _topics(before: TopicsImage, after: TopicsImage) -> Steps[TopicsDelta | None]:
    delta = TopicsDelta(before)
    for count, topic_id in enumerate((yield from sorted_in_steps(after.ids()))):
        base, topic = before.by_id(topic_id), after.by_id(topic_id)
        if topic is not None and base is not topic and base != topic:
            delta.changed[topic_id] = _topic(base, topic)
        if count % _TOPICS_PER_STEP == 0:
            yield
    for count, topic_id in enumerate((yield from sorted_in_steps(before.ids()))):
        if after.by_id(topic_id) is None and (topic := before.by_id(topic_id)) is not None:
            delta.deleted[topic_id] = topic
        if count % _TOPICS_PER_STEP == 0:
            yield
    return delta if delta.changed or delta.deleted else None


def _topic(before: TopicImage | None, after: TopicImage) -> TopicDelta:
    delta = TopicDelta(after.name, after.id, before)
    if before is None:
        delta.changed_partitions = dict(after.partitions.items())
    else:
        old = before.partitions
        delta.changed_partitions = {index: new for index, new in after.partitions.items() if old.get(index) != new}
    return delta


def _configs(before: ConfigsImage, after: ConfigsImage) -> Steps[ConfigsDelta | None]:
    delta = ConfigsDelta(before)
    for count, resource in enumerate((yield from sorted_in_steps(after.resources))):
        old, values = before.resources.get(resource), after.resources[resource]
        if old != values:
            delta.changes[resource] = _changes(old or {}, values)
        if count % _TOPICS_PER_STEP == 0:
            yield
    for count, resource in enumerate(before.resources):
        if resource not in after.resources:
            delta.removed.add(resource)
        if count % _TOPICS_PER_STEP == 0:
            yield
    return delta if delta.changes or delta.removed else None


def _add_others(delta: MetadataDelta, before: MetadataImage, after: MetadataImage) -> None:
    if before.client_quotas != after.client_quotas:
        delta.client_quotas = _quotas(before.client_quotas, after.client_quotas)
    if before.producer_ids != after.producer_ids:
        delta.producer_ids = ProducerIdsDelta(before.producer_ids)
        delta.producer_ids.next_id = after.producer_ids.next_id
    if before.acls != after.acls:
        delta.acls = AclsDelta(before.acls)
        delta.acls.changes.update(_changes(before.acls.entries, after.acls.entries))
    if before.scram != after.scram:
        delta.scram = ScramDelta(before.scram)
        delta.scram.changes.update(_changes(before.scram.credentials, after.scram.credentials))
    if before.delegation_tokens != after.delegation_tokens:
        delta.delegation_tokens = DelegationTokensDelta(before.delegation_tokens)
        changes = _changes(before.delegation_tokens.tokens, after.delegation_tokens.tokens)
        delta.delegation_tokens.changes.update(changes)


def _quotas(before: ClientQuotasImage, after: ClientQuotasImage) -> ClientQuotasDelta:
    delta = ClientQuotasDelta(before)
    for entity in {**before.entities, **after.entities}:
        changes = _changes(before.of(entity), after.of(entity))
        if changes:
            delta.changes[entity] = changes
    return delta


def _changes(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, V | None]:
    """Return each key whose value differs, with its new value or None after removal."""
    changes: dict[K, V | None] = {key: value for key, value in after.items() if before.get(key) != value}
    changes.update((key, None) for key in before if key not in after)
    return changes
