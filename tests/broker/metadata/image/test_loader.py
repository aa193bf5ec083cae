"""Loading batches into images: offsets, metadata transactions (KIP-868), unsupported levels."""

import pytest

from broker.metadata.controller.activation import activation_records
from broker.metadata.image.features import UnsupportedFeatureLevel, bootstrap_records, feature_record
from broker.metadata.image.loader import LoaderState, MetadataLoader, RecordBatch
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.records import InvalidMetadata, MetadataRecord
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from tests.broker.metadata.images import image_with


def ids(next_id: int) -> ProducerIdsRecord:
    return ProducerIdsRecord(1, 1, next_id)


def batch(base: int, *records: MetadataRecord, epoch: int = 1) -> RecordBatch:
    return RecordBatch(base, base + max(len(records), 1) - 1, LeaderEpoch(epoch), 1_000 + base, records)


def test_provenance_follows_every_batch() -> None:
    loader = MetadataLoader()
    loader.load([batch(0), batch(1, ids(1000), NoOpRecord(), epoch=2)])
    assert (loader.image.offset, loader.image.epoch, loader.image.provenance.timestamp_ms) == (2, 2, 1_001)
    assert loader.image.producer_ids.next_id == 1000


def test_first_batch_may_have_any_offset_and_later_gaps_are_refused() -> None:
    loader = MetadataLoader()
    loader.load([batch(100, NoOpRecord())])
    with pytest.raises(InvalidMetadata, match="begins at 102 after offset 100"):
        loader.load([batch(102, NoOpRecord())])


def test_control_batch_only_advances_the_offset() -> None:
    loader = MetadataLoader()
    loader.load([batch(0)])
    assert not loader.state.has_records
    loader.load([batch(1, NoOpRecord())])
    assert loader.state.has_records


class TestTransactions:
    def test_transaction_takes_effect_at_its_end(self) -> None:
        loader = MetadataLoader()
        loader.load([batch(0, ids(1000), BeginTransactionRecord(), ids(2000))])
        assert (loader.image.producer_ids.next_id, loader.image.offset) == (1000, 0)
        loader.load([batch(3, ids(3000))])
        assert (loader.image.producer_ids.next_id, loader.image.offset) == (1000, 0)
        publication = loader.load([batch(4, EndTransactionRecord(), ids(4000))])
        assert (publication.image.producer_ids.next_id, publication.image.offset) == (4000, 5)

    def test_aborted_transaction_has_no_effect(self) -> None:
        loader = MetadataLoader()
        loader.load([batch(0, BeginTransactionRecord(), ids(2000))])
        publication = loader.load([batch(2, AbortTransactionRecord(), ids(500))])
        assert publication.image.producer_ids.next_id == 500

    @pytest.mark.parametrize(
        "records",
        [
            [EndTransactionRecord()],
            [AbortTransactionRecord()],
            [BeginTransactionRecord(), BeginTransactionRecord()],
        ],
    )
    def test_markers_out_of_order_are_refused(self, records: list[MetadataRecord]) -> None:
        with pytest.raises(InvalidMetadata):
            MetadataLoader().load([batch(0, *records)])


class TestFeatures:
    @pytest.mark.parametrize(("name", "level"), [("metadata.version", 99), ("group.version", 2), ("surprise", 1)])
    def test_node_refuses_an_unsupported_level(self, name: str, level: int) -> None:
        with pytest.raises(UnsupportedFeatureLevel, match=name):
            MetadataLoader().load([batch(0, FeatureLevelRecord(name, level))])

    def test_tool_accepts_an_unsupported_level(self) -> None:
        loader = MetadataLoader(supported=None)
        loader.load([batch(0, FeatureLevelRecord("metadata.version", 99), FeatureLevelRecord("surprise", 1))])
        assert loader.image.features.finalized() == {"metadata.version": 99, "surprise": 1}

    def test_level_0_disables_and_kraft_version_is_ignored(self) -> None:
        loader = MetadataLoader()
        names = ("group.version", 1), ("kraft.version", 1), ("group.version", 0)
        loader.load([batch(0, *(FeatureLevelRecord(*each) for each in names))])
        assert loader.image.features.finalized() == {}


class TestActivation:
    """The first records of an active controller."""

    def test_empty_log_gets_the_bootstrap_in_one_transaction(self) -> None:
        records = [each.message for each in activation_records(LoaderState(), bootstrap_records(), "1")]
        assert isinstance(records[0], BeginTransactionRecord)
        assert isinstance(records[-1], EndTransactionRecord)
        loader = MetadataLoader()
        loader.load([batch(0, *records)])
        assert loader.image.features.finalized() == {
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "metadata.version": 29,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        }
        assert dict(loader.image.configs.cluster_default()) == {"min.insync.replicas": "1"}

    def test_older_bootstrap_is_one_batch_without_transaction(self) -> None:
        records = activation_records(LoaderState(), bootstrap_records(MetadataVersion.IV_3_6_0), "1")
        assert [each.message for each in records] == [FeatureLevelRecord("metadata.version", 12)]

    def test_log_in_use_gets_no_first_records(self) -> None:
        state = LoaderState(image_with(), 10, has_records=True)
        assert activation_records(state, bootstrap_records(), "1") == []

    def test_open_transaction_of_a_previous_leader_is_aborted(self) -> None:
        loader = MetadataLoader(LoaderState(image_with(), 10, has_records=True))
        loader.load([batch(11, BeginTransactionRecord(), ids(1000))])
        (abort,) = activation_records(loader.state, bootstrap_records(), "1")
        assert isinstance(abort.message, AbortTransactionRecord)

    def test_interrupted_bootstrap_is_aborted_and_repeated(self) -> None:
        loader = MetadataLoader()
        loader.load([batch(0, BeginTransactionRecord(), FeatureLevelRecord("metadata.version", 29))])
        records = [each.message for each in activation_records(loader.state, bootstrap_records(), "1")]
        assert isinstance(records[0], AbortTransactionRecord)
        loader.load([batch(2, *records)])
        assert loader.image.features.metadata_level == 29

    def test_activation_needs_a_metadata_version(self) -> None:
        with pytest.raises(InvalidMetadata):
            activation_records(LoaderState(), [feature_record("group.version", 1)], "1")
        with pytest.raises(InvalidMetadata):
            activation_records(LoaderState(has_records=True), bootstrap_records(), "1")
