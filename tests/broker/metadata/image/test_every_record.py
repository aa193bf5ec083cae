"""Every metadata record type of the schemas is replayed, written, compared, counted and loaded."""

import pytest

from broker.metadata.image.changed_records import changed_records
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.image_difference import difference
from broker.metadata.image.loader import MetadataLoader, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, Provenance
from broker.metadata.image.records import METADATA_RECORDS, InvalidMetadata, decode_record, encode_record
from broker.metadata.image.slices import finish
from broker.metadata.snapshot.check import SnapshotCheck
from broker.metadata.snapshot.codec import image_batches
from broker.metadata.snapshot.fold import SnapshotFold
from protocol.ids import LeaderEpoch
from protocol.messages import metadata_records as messages
from tests.broker.metadata.record_samples import (
    IGNORED,
    IMAGE_SAMPLES,
    MARKERS,
    SAMPLES,
    SCHEMAS,
    Sample,
    sample_name,
)

NOT_IN_SNAPSHOTS = (*MARKERS, messages.PartitionChangeRecord, messages.RemoveTopicRecord, messages.ClearElrRecord)

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=sample_name)
every_image_sample = pytest.mark.parametrize("sample", IMAGE_SAMPLES, ids=sample_name)


def test_every_schema_has_a_record_type_and_a_sample() -> None:
    names = {path.stem for path in SCHEMAS.glob("*.json")}
    assert {each.__name__ for each in METADATA_RECORDS} == names
    assert {sample.name for sample in SAMPLES} == names


@every_sample
def test_every_record_is_decoded(sample: Sample) -> None:
    version = sample.record.MAX_VERSION
    assert decode_record(encode_record(sample.record, version)) == sample.record


@every_image_sample
def test_every_record_changes_the_image(sample: Sample) -> None:
    delta = MetadataDelta(sample.image_before)
    delta.replay(sample.record)
    assert not delta.is_empty
    after = delta.apply(Provenance())
    assert after != sample.image_before._replace(provenance=Provenance())


@pytest.mark.parametrize("record_type", IGNORED)
def test_ignored_records_change_nothing(record_type: type[messages.NoOpRecord]) -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(record_type())
    assert delta.is_empty


@every_sample
def test_loader_accepts_every_record(sample: Sample) -> None:
    records = [*sample.before, sample.record]
    publication = MetadataLoader().load([RecordBatch(0, len(records) - 1, LeaderEpoch(1), 1_000, records)])
    if not isinstance(sample.record, MARKERS):
        assert publication.image == sample.image


@every_image_sample
def test_canonical_snapshot_holds_what_every_record_states(sample: Sample) -> None:
    image, check, fold = sample.image, SnapshotCheck(sample.image.epoch), SnapshotFold(EMPTY_IMAGE)
    for batch in image_batches(image, None):
        check.feed(batch)
    check.end()
    for record in image.write():
        fold.add([encode_record(*record)])
    assert fold.finish(image.provenance) == image


@every_sample
def test_snapshot_fold_accepts_or_refuses_every_record(sample: Sample) -> None:
    fold = SnapshotFold(EMPTY_IMAGE)
    fold.add([encode_record(each, each.MAX_VERSION) for each in sample.before if not isinstance(each, MARKERS)])
    frame = encode_record(sample.record, sample.record.MAX_VERSION)
    if isinstance(sample.record, NOT_IN_SNAPSHOTS):
        with pytest.raises(InvalidMetadata, match=f"{sample.name} has no place in a snapshot"):
            fold.add([frame])
    else:
        fold.add([frame])
        assert fold.finish(sample.image.provenance) == sample.image


@every_image_sample
def test_difference_of_images_holds_what_every_record_changes(sample: Sample) -> None:
    before, after = sample.image_before, sample.image
    delta = finish(difference(before, after))
    assert not delta.is_empty
    assert delta.apply(after.provenance) == after


@every_image_sample
def test_changed_records_count_every_change_of_an_existing_record(sample: Sample) -> None:
    """A record that adds an entity counts from its second occurrence on; all others count at once."""
    delta = MetadataDelta(sample.image_before)
    delta.replay(sample.record)
    if changed_records(delta) == 0 and not isinstance(sample.record, messages.TopicRecord):
        repeated = sample.record
        if isinstance(repeated, messages.ProducerIdsRecord):  # the next id must grow
            repeated = messages.ProducerIdsRecord(1, 7, repeated.next_producer_id + 1)
        delta = MetadataDelta(sample.image)
        delta.replay(repeated)
        assert changed_records(delta) == 1
