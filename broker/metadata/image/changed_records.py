"""The number of snapshot records that a delta makes obsolete, for KIP-630's `min.changed_records.ratio`.

Changes and removals count, additions do not. A record added after the snapshot and changed later counts, since it is in
the base of the changing delta. Repeated changes of one record count each time, so the number is an upper bound; an
exact number would need the memory of a million keys. The cost is proportional to the delta.
"""

from collections.abc import Container, Iterable

from broker.metadata.image.config_image import ConfigsDelta
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.topic_image import TopicsDelta


def changed_records(delta: MetadataDelta) -> int:
    """Return how many records of a snapshot of the base image the delta changes or removes."""
    base, count = delta.image, 0
    if delta.features is not None:
        count += _known(base.features.finalized(), delta.features.changes)
    if delta.brokers is not None:
        count += _known(base.brokers.brokers, delta.brokers.changed_brokers)
        count += _known(base.brokers.controllers, delta.brokers.changed_controllers)
    if delta.topics is not None:
        count += _topics(delta.topics)
    if delta.configs is not None:
        count += _configs(delta, delta.configs)
    if delta.client_quotas is not None:
        quotas = delta.client_quotas.changes.items()
        count += sum(_known(base.client_quotas.of(entity), changes) for entity, changes in quotas)
    if delta.producer_ids is not None:
        count += base.producer_ids.next_id > 0
    if delta.acls is not None:
        count += _known(base.acls.entries, delta.acls.changes)
    if delta.scram is not None:
        count += _known(base.scram.credentials, delta.scram.changes)
    if delta.delegation_tokens is not None:
        count += _known(base.delegation_tokens.tokens, delta.delegation_tokens.changes)
    return count


def _topics(delta: TopicsDelta) -> int:
    removed = sum(1 + topic.partition_count for topic in delta.deleted.values())
    changed = sum(
        _known(topic.before.partitions, topic.changed_partitions)
        for topic in delta.changed.values()
        if topic.before is not None
    )
    return removed + changed


def _configs(delta: MetadataDelta, configs: ConfigsDelta) -> int:
    resources = delta.image.configs.resources
    removed = sum(len(resources[resource]) for resource in configs.removed)
    changed = sum(
        _known(resources[resource], changes)
        for resource, changes in configs.changes.items()
        if resource in resources and resource not in configs.removed
    )
    return removed + changed


def _known(base: Container[object], changes: Iterable[object]) -> int:
    return sum(key in base for key in changes)
