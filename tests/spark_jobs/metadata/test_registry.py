"""The registry: the node's replay on rows, its changes as records, and its state as bytes."""

import pyarrow as pa
import pytest
from immutables import Map

from broker.metadata.image.features import bootstrap_records
from broker.metadata.image.loader import RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.records import InvalidMetadata, MetadataRecord, decode_record
from broker.metadata.image.topic_image import TopicImage, TopicsImage
from broker.metadata.snapshot.codec import InvalidSnapshot, image_batches
from protocol.messages import metadata_records as messages
from protocol.primitives import Uuid
from spark_jobs.metadata.fold_context import FoldContext
from spark_jobs.metadata.frame_heads import MalformedLog
from spark_jobs.metadata.log_rows import FROM_SNAPSHOT, rows_of
from spark_jobs.metadata.registry import Entity, Registry, RegistryChange, fold_registry
from tests.spark_jobs.metadata.logs import EveryHistory, Log
from tests.spark_jobs.metadata.test_sections import rows_of_frames, rows_with

ID = Uuid(bytes([1]) * 16)
MARKERS = (messages.BeginTransactionRecord, messages.EndTransactionRecord, messages.AbortTransactionRecord)
ALL = FoldContext(0, 10_000, with_changes=True)


def without_partitions(image: MetadataImage) -> MetadataImage:
    """Return the part of an image that the registry holds."""
    topics = [TopicImage(topic.name, topic.id, Map()) for topic in image.topics]
    by_name, by_id = Map({each.name: each for each in topics}), Map({each.id: each for each in topics})
    return image._replace(provenance=Provenance(), topics=TopicsImage(by_name, by_id))


def log_without_transactions(history: EveryHistory, seed: int) -> Log:
    """Return the history without the batches of transactions, which the fold does not interpret."""
    batches: list[RecordBatch] = []
    for batch in history.batches:
        if not any(isinstance(record, MARKERS) for record in batch.records):
            base = batches[-1].last_offset + 1 if batches else 0
            last = base + batch.last_offset - batch.base_offset
            batches.append(batch._replace(base_offset=base, last_offset=last))
    return Log.of(batches, seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_changes", [True, False])
def test_registry_equals_the_nodes_image(seed: int, with_changes: bool) -> None:
    history = EveryHistory(seed, 100)
    log = log_without_transactions(history, seed)
    context = FoldContext(0, 2**40, with_changes=with_changes)
    result = fold_registry(None, log.rows(0, len(log.batches)), context)
    image = log.images[-1]
    assert image is not None
    assert result.registry.image == without_partitions(image)
    assert fold_registry(result.state, log.rows(0, 0), context).registry == result.registry


@pytest.mark.parametrize("level", [None, 7, 14, 29])
def test_registry_bytes_round_trip_at_any_metadata_version(level: int | None) -> None:
    log = Log.of(EveryHistory(2, 60).batches, 2)
    image = without_partitions(log.images[log.aligned()[-1]] or EMPTY_IMAGE)
    image = image._replace(features=image.features._replace(metadata_level=level))
    assert Registry.from_bytes(Registry(image).to_bytes()) == Registry(image)
    assert Registry(image).version == MetadataVersion(level or 7)


def test_invalid_registry_bytes_are_refused() -> None:
    with pytest.raises(InvalidSnapshot):
        Registry.from_bytes(b"nonsense" * 20)


def changes_of(*records: MetadataRecord) -> tuple[RegistryChange, ...]:
    return fold_registry(None, rows_with(*records), ALL).changes


def change_fields(changes: tuple[RegistryChange, ...]) -> list[tuple[str, Entity, str, str]]:
    return [(each.operation, each.entity, _value(each.before), _value(each.after)) for each in changes]


def _value(frame: bytes | None) -> str:
    return "" if frame is None else str(getattr(decode_record(frame), "value", "there"))


def test_configs_change_separately_and_are_removed_with_their_topic() -> None:
    def config(value: str | None, key: str = "k") -> messages.ConfigRecord:
        return messages.ConfigRecord(2, "t", key, value)

    changes = changes_of(
        *(messages.TopicRecord("t", ID), config("1"), config("2"), config(None), config(None)),
        *(config("3"), config("4", "j"), messages.RemoveTopicRecord(ID), messages.TopicRecord("t", ID), config("5")),
    )
    k, j = Entity("config", (2, "t", "k")), Entity("config", (2, "t", "j"))
    assert change_fields(changes) == [
        ("created", k, "", "1"),
        ("changed", k, "1", "2"),
        ("removed", k, "2", ""),
        ("created", k, "", "3"),
        ("created", j, "", "4"),
        ("removed", j, "4", ""),
        ("removed", k, "3", ""),
        ("created", k, "", "5"),
    ]
    assert [each.offset for each in changes] == [1, 2, 3, 5, 6, 7, 7, 9]


def test_every_entity_type_has_changes() -> None:
    log = log_without_transactions(EveryHistory(4, 400), 4)
    result = fold_registry(None, log.rows(0, len(log.batches)), FoldContext(0, 2**40, with_changes=True))
    kinds = {(each.entity.type, each.operation) for each in result.changes}
    assert {kind for kind, _ in kinds} == {
        "feature",
        "broker",
        "config",
        "quota",
        "producer-ids",
        "acl",
        "scram",
        "token",
    }
    assert {("config", "removed"), ("acl", "removed"), ("quota", "changed"), ("broker", "changed")} <= kinds
    now: dict[Entity, bytes | None] = {}
    for change in result.changes:
        assert now.get(change.entity) == change.before
        now[change.entity] = change.after
        assert change.operation == ("created" if not change.before else "changed" if change.after else "removed")


def test_snapshot_replaces_the_registry_and_reports_the_difference() -> None:
    log = log_without_transactions(EveryHistory(5, 200), 5)
    middle = len(log.batches) // 2
    before = fold_registry(None, log.rows(0, middle), FoldContext(0, 2**40))
    image = log.images[-1]
    assert image is not None
    data = b"".join(image_batches(image, None))
    end = image.offset + 1
    rows = pa.Table.from_batches([rows_of(data, start=0, end=end, origin=FROM_SNAPSHOT)])
    context = FoldContext(log.batches[middle - 1].last_offset + 1, end, snapshot_end=end, with_changes=True)
    after = fold_registry(before.registry, rows, context)
    assert after.changes
    assert all(change.is_summarized and change.offset == image.offset for change in after.changes)
    assert after.changed_records == sum(change.before is not None for change in after.changes)
    assert list(after.registry.image.configs.write()) == list(image.configs.write())
    again = fold_registry(after.registry, rows, FoldContext(end, end, with_changes=True))
    assert (again.registry, again.changes, again.records) == (after.registry, (), 0)


def test_contradicting_and_malformed_records_are_refused() -> None:
    topic = messages.TopicRecord("t", ID)
    contradictions: list[list[MetadataRecord]] = [
        [topic, messages.TopicRecord("t", Uuid(bytes([2]) * 16))],
        [messages.RemoveTopicRecord(ID)],
        [messages.UnregisterBrokerRecord(1, 1)],
        [messages.ClearElrRecord("missing")],
    ]
    for records in contradictions:
        with pytest.raises(InvalidMetadata):
            changes_of(*records)
    with pytest.raises(MalformedLog, match="offset 3 "):
        fold_registry(None, rows_of_frames(b"\x01\x04\x00\x02", base=3), ALL)
    snapshot = FoldContext(0, 40, snapshot_end=40)
    rows = rows_with(topic, messages.RemoveTopicRecord(ID), origin=FROM_SNAPSHOT, end=40)
    with pytest.raises(InvalidMetadata, match="not allowed in a snapshot"):
        fold_registry(None, rows, snapshot)


def test_first_records_of_a_cluster_are_folded() -> None:
    changes = changes_of(*(record.message for record in bootstrap_records()))
    assert {each.entity.key[0] for each in changes} >= {"metadata.version", "group.version"}
    assert all(each.operation == "created" for each in changes)
