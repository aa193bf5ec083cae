"""The selection of topics in a store. No IO."""

from collections import defaultdict
from collections.abc import Iterable

from protocol.primitives import Uuid, uuid_to_text
from spark_jobs.tiered_records.options import InvalidOption, Options
from storage.tiered.bucket.listing import StoredPartition


def chosen(stored: Iterable[StoredPartition], options: Options) -> list[StoredPartition]:
    """Return the selected partitions by topic and partition.

    Raises InvalidOption for a missing topic, and for several topics of one name, created one after another, without an
    id.
    """
    by_topic: dict[str, dict[Uuid, list[StoredPartition]]] = defaultdict(lambda: defaultdict(list))
    for each in stored:
        by_topic[each.partition.topic][each.partition.topic_id].append(each)
    _refuse_missing(by_topic, options)
    found = [each for name in sorted(by_topic) for each in _of_one(name, by_topic[name], options)]
    return sorted(found, key=lambda each: (each.partition.topic, each.partition.partition))


def _refuse_missing(by_topic: dict[str, dict[Uuid, list[StoredPartition]]], options: Options) -> None:
    missing = [name for name in options.topics if name not in by_topic]
    if missing:
        raise InvalidOption(f"the store has no segments of topic {missing[0]}.")
    if not by_topic:
        raise InvalidOption(f"the store has no segments of a topic that matches topicPattern={options.pattern}.")
    unknown = options.topic_ids - {id for ids in by_topic.values() for id in ids}
    if unknown:
        which = f"{options.topics[0]}-" if len(options.topics) == 1 else "with the id "
        raise InvalidOption(f"the store has no segments of topic {which}{min(map(uuid_to_text, unknown))}.")


def _of_one(name: str, ids: dict[Uuid, list[StoredPartition]], options: Options) -> list[StoredPartition]:
    wanted = [id for id in ids if id in options.topic_ids] or list(ids)
    if len(wanted) > 1:
        texts = " or ".join(sorted(uuid_to_text(id) for id in ids))
        raise InvalidOption(f"the store has several topics named {name}; set topicId to one of {texts}.")
    return ids[wanted[0]]
