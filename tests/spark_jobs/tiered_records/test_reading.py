"""Plans and reads of a bucket without Spark: every committed record once, and no more than necessary."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from protocol.primitives import Uuid, uuid_to_text
from protocol.records.compression import Codec
from protocol.records.control import ControlType
from spark_jobs.tiered_records.bucket import bucket_of, plan
from spark_jobs.tiered_records.options import InvalidOption, Options
from spark_jobs.tiered_records.planning import RecordsMissing, SegmentRange
from spark_jobs.tiered_records.reading import byte_range_of
from spark_jobs.tiered_records.reading import read as read_slice
from tests.spark_jobs.tiered_records.tiered_partition import (
    BEGAN_MS,
    TOPIC_ID,
    ExpectedRecord,
    TieredPartitionHarness,
    options_of,
)


@pytest.fixture
def harness(tmp_path: Path) -> TieredPartitionHarness:
    return TieredPartitionHarness(tmp_path)


def planned(bucket: Path, **more: str) -> list[SegmentRange]:
    return plan(Options.of(options_of(bucket, **more)))


def read(bucket: Path, **more: str) -> list[ExpectedRecord]:
    return [each for _, each in read_all(bucket, **more)]


def read_all(bucket: Path, **more: str) -> list[tuple[int, ExpectedRecord]]:
    options = Options.of(options_of(bucket, **more))
    return [found for part in plan(options) for found in _rows(options, part)]


def _rows(options: Options, part: SegmentRange) -> Iterator[tuple[int, ExpectedRecord]]:
    for batch in read_slice(bucket_of(options).storage, part, may_miss=options.may_miss):
        for row in batch.to_pylist():
            assert row["topic"] == "orders"
            assert row["headers"] == [{"key": "h", "value": b"1"}]
            timestamp_ms = round(row["timestamp"].timestamp() * 1000)
            yield row["partition"], ExpectedRecord(row["offset"], timestamp_ms, row["key"], row["value"])


def three_segments(harness: TieredPartitionHarness) -> None:
    for codec in (Codec.NONE, Codec.ZSTD, Codec.SNAPPY):
        for _ in range(4):
            harness.append(5, codec=codec)
        harness.roll()
        harness.bump_leader_epoch()


def test_every_record_of_closed_segments_is_read_once_in_order(harness: TieredPartitionHarness) -> None:
    three_segments(harness)
    expected = harness.readable_records()
    harness.append(2)
    assert read(harness.bucket) == expected
    assert len(expected) == 60


@pytest.mark.parametrize("storage", [{"compression.enabled": "true", "chunk.size": "200"}, {"chunk.size": "100"}])
def test_compressed_segments_are_read(tmp_path: Path, storage: Mapping[str, str]) -> None:
    harness = TieredPartitionHarness(tmp_path, storage=storage)
    three_segments(harness)
    assert read(harness.bucket) == harness.readable_records()


@pytest.mark.parametrize(("first", "end"), [(0, 1), (7, 8), (19, 21), (33, 60), (59, 1000), (60, 70)])
def test_offset_bounds_exclude_segments_and_records(first: int, end: int, harness: TieredPartitionHarness) -> None:
    three_segments(harness)
    found = read(harness.bucket, startingOffsets=str(first), endingOffsets=f'{{"0": {end}}}')
    assert found == [each for each in harness.readable_records() if first <= each.offset < end]
    touched = {part.segment.start_offset for part in planned(harness.bucket, startingOffsets=str(first))}
    assert touched == {start for start in (0, 20, 40) if start + 20 > first}


@pytest.mark.parametrize(("first", "end"), [(0, 5), (21, 22), (35, 60), (60, 99)])
def test_time_bounds_exclude_segments_and_records(first: int, end: int, harness: TieredPartitionHarness) -> None:
    three_segments(harness)
    bounds = {"startingTimestamp": str(BEGAN_MS + first), "endingTimestamp": str(BEGAN_MS + end)}
    assert read(harness.bucket, **bounds) == [each for each in harness.readable_records() if first <= each.offset < end]
    assert all(part.segment.end_offset >= first for part in planned(harness.bucket, **bounds))


def test_time_bound_starts_at_the_indexed_position(harness: TieredPartitionHarness) -> None:
    three_segments(harness)
    options = Options.of(options_of(harness.bucket, startingTimestamp=str(BEGAN_MS + 18)))
    assert byte_range_of(bucket_of(options).storage, plan(options)[0]).begin > 0


def test_records_of_aborted_transactions_are_left_out(harness: TieredPartitionHarness) -> None:
    harness.append(3, producer_id=1)
    harness.append(3, producer_id=2)
    harness.append(2)
    harness.end_transaction(1, ControlType.ABORT)
    harness.append(3, producer_id=1)
    harness.end_transaction(2, ControlType.COMMIT)
    harness.end_transaction(1, ControlType.COMMIT)
    harness.append(2)
    harness.roll()
    assert read(harness.bucket) == harness.readable_records()
    assert len(read(harness.bucket, isolationLevel="read_uncommitted")) == len(harness.readable_records()) + 3


def test_marker_in_a_later_segment_ends_the_transaction(harness: TieredPartitionHarness) -> None:
    harness.append(3, producer_id=1)
    harness.roll()
    harness.append(3)
    harness.end_transaction(1, ControlType.ABORT)
    harness.roll()
    assert [each.offset for each in read(harness.bucket)] == [3, 4, 5]
    assert read(harness.bucket, endingOffsets="3") == []


def test_transactions_undecided_in_the_store_are_not_read(harness: TieredPartitionHarness) -> None:
    harness.append(3)
    harness.append(3, producer_id=1)
    harness.append(3)
    harness.roll()
    harness.end_transaction(1, ControlType.COMMIT)
    assert [each.offset for each in read(harness.bucket)] == [0, 1, 2]
    assert len(read(harness.bucket, isolationLevel="read_uncommitted")) == 9


def test_large_segments_are_divided(harness: TieredPartitionHarness) -> None:
    for _ in range(40):
        harness.append(3, size=50)
    harness.roll()
    parts = planned(harness.bucket, maxPartitionBytes="2000")
    assert len(parts) > 5
    assert read(harness.bucket, maxPartitionBytes="2000") == harness.readable_records()


def test_partition_option_selects_partitions(tmp_path: Path) -> None:
    harnesses = [TieredPartitionHarness(tmp_path, partition) for partition in range(3)]
    for count, harness in enumerate(harnesses, 1):
        harness.append(count)
        harness.roll()
    whole = [(number, each) for number, harness in enumerate(harnesses) for each in harness.readable_records()]
    assert read_all(tmp_path / "bucket") == whole
    assert read_all(tmp_path / "bucket", partitions="0, 2") == [each for each in whole if each[0] != 1]


def test_several_topics_are_read(tmp_path: Path) -> None:
    for number, topic in enumerate(("orders", "payments", "payments-eu", "carts")):
        harness = TieredPartitionHarness(tmp_path, topic=topic, topic_id=Uuid(bytes([*bytes(15), number + 1])))
        harness.append(10 + number)
        harness.roll()

    def counts(**more: str) -> dict[str, int]:
        options = {name: value for name, value in {**options_of(tmp_path / "bucket"), **more}.items() if value}
        parts = plan(Options.of(options))
        return {part.segment.id.partition.topic: part.last + 1 - part.first for part in parts}

    assert counts(topic="payments, orders") == {"orders": 10, "payments": 11}
    assert counts(topic="", topicPattern="pay.*|carts") == {"carts": 13, "payments": 11, "payments-eu": 12}
    assert counts(topic="", topicPattern="payments") == {"payments": 11}
    started = {"startingOffsets": '{"orders": {"0": 4}, "0": 2}'}
    assert counts(topic="orders,payments", **started) == {"orders": 6, "payments": 9}
    with pytest.raises(InvalidOption, match="no segments of topic refunds"):
        counts(topic="orders,refunds")
    with pytest.raises(InvalidOption, match="no segments of a topic that matches topicPattern=order"):
        counts(topic="", topicPattern="order")


def test_topic_id_is_required_for_two_topics_of_one_name(tmp_path: Path) -> None:
    other = Uuid(bytes(15) + b"\x0a")
    for directory, topic_id in (("a", TOPIC_ID), ("b", other)):
        (tmp_path / directory).mkdir()
        harness = TieredPartitionHarness(
            tmp_path / directory, topic_id=topic_id, storage={"storage.root": str(tmp_path / "bucket")}
        )
        harness.append()
        harness.roll()
    with pytest.raises(InvalidOption, match="set topicId to one of"):
        planned(tmp_path / "bucket")
    assert len(read(tmp_path / "bucket", topicId=uuid_to_text(other))) == 3


def test_missing_offsets_are_an_error_unless_data_loss_is_allowed(harness: TieredPartitionHarness) -> None:
    three_segments(harness)
    for each in harness.bucket.rglob("00000000000000000020-*"):
        each.unlink()
    with pytest.raises(RecordsMissing, match="offsets 20 to 39 of orders-0"):
        planned(harness.bucket)
    assert [each.offset for each in read(harness.bucket, failOnDataLoss="false")] == [*range(20), *range(40, 60)]
    assert len(read(harness.bucket, endingOffsets="20")) == 20


def test_committed_records_of_any_history_are_read(tmp_path: Path) -> None:
    random = Random(405)
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        harness = TieredPartitionHarness(tmp_path / str(number))
        _live(harness, random)
        harness.roll()
        assert read(harness.bucket) == harness.readable_records()
        size = str(random.choice((100, 1000, 10_000)))
        assert read(harness.bucket, maxPartitionBytes=size) == harness.readable_records()


def _live(harness: TieredPartitionHarness, random: Random) -> None:
    under_way: set[int] = set()
    for _ in range(40):
        match random.randrange(6):
            case 0:
                harness.roll()
            case 1:
                harness.bump_leader_epoch()
            case 2 if under_way:
                producer_id = random.choice(sorted(under_way))
                under_way.discard(producer_id)
                harness.end_transaction(producer_id, random.choice((ControlType.ABORT, ControlType.COMMIT)))
            case 3 | 4:
                producer_id = random.randrange(3)
                under_way.add(producer_id)
                harness.append(random.randrange(1, 5), producer_id=producer_id)
            case _:
                harness.append(random.randrange(1, 5), codec=random.choice((Codec.NONE, Codec.GZIP)))
    for producer_id in sorted(under_way):
        harness.end_transaction(producer_id, random.choice((ControlType.ABORT, ControlType.COMMIT)))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"topic": ""}, "topic is required"),
        ({"topic": "nothing"}, "no segments of topic nothing"),
        ({"uri": "ftp://x"}, "uri: ftp:// is no object store"),
        ({"partitions": "1,x"}, "partitions must be numbers"),
        ({"startingOffsets": "soon"}, "startingOffsets must be a number"),
        ({"endingOffsets": '{"0": "soon"}'}, "endingOffsets must be a number, or JSON"),
        ({"isolationLevel": "serializable"}, "isolationLevel must be read_committed or read_uncommitted"),
        ({"startingOffset": "3"}, "startingoffset is not an option"),
        ({"topicId": "x"}, "topicId=x is not a topic id"),
        ({"topicId": uuid_to_text(Uuid(bytes(15) + b"\x01"))}, "no segments of topic orders-AAAAAAAAAAAAAAAAAAAAAQ"),
        ({"topicPattern": "o.*"}, "Either topic or topicPattern must be given"),
        ({"topic": "a,,b"}, "topic must be names separated by commas"),
        ({"topicPattern": "("}, r"topicPattern=\( is not a regular expression"),
        ({"uri": "/nowhere/at/all"}, "uri: there is no directory /nowhere/at/all"),
        ({"rsm.chunk.size": "many"}, "chunk.size"),
    ],
)
def test_error_names_an_invalid_option(more: Mapping[str, str], sentence: str, harness: TieredPartitionHarness) -> None:
    three_segments(harness)
    with pytest.raises(InvalidOption, match=sentence):
        plan(Options.of({**options_of(harness.bucket), **more}))


def test_key_pair_names_keep_their_case(harness: TieredPartitionHarness) -> None:
    pairs = {"rsm.encryption.key.pairs": "Old,New.1", "rsm.encryption.key.pairs.new.1.public.key.file": "/k"}
    settings = dict(Options.of({**options_of(harness.bucket), **pairs}).storage_settings)
    assert settings["encryption.key.pairs.New.1.public.key.file"] == "/k"
