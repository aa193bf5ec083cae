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
from tests.spark_jobs.tiered_records.stage import BEGAN_MS, TOPIC_ID, Expected, Stage, options_of


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def planned(bucket: Path, **more: str) -> list[SegmentRange]:
    return plan(Options.of(options_of(bucket, **more)))


def read(bucket: Path, **more: str) -> list[Expected]:
    return [each for _, each in read_all(bucket, **more)]


def read_all(bucket: Path, **more: str) -> list[tuple[int, Expected]]:
    options = Options.of(options_of(bucket, **more))
    return [found for part in plan(options) for found in _rows(options, part)]


def _rows(options: Options, part: SegmentRange) -> Iterator[tuple[int, Expected]]:
    for batch in read_slice(bucket_of(options).storage, part, may_miss=options.may_miss):
        for row in batch.to_pylist():
            assert row["topic"] == "orders"
            assert row["headers"] == [{"key": "h", "value": b"1"}]
            timestamp_ms = round(row["timestamp"].timestamp() * 1000)
            yield row["partition"], Expected(row["offset"], timestamp_ms, row["key"], row["value"])


def three_segments(stage: Stage) -> None:
    for codec in (Codec.NONE, Codec.ZSTD, Codec.SNAPPY):
        for _ in range(4):
            stage.append(5, codec=codec)
        stage.roll()
        stage.lead_again()


def test_every_record_of_closed_segments_is_read_once_in_order(stage: Stage) -> None:
    three_segments(stage)
    expected = stage.read_by_now()
    stage.append(2)
    assert read(stage.bucket) == expected
    assert len(expected) == 60


@pytest.mark.parametrize("storage", [{"compression.enabled": "true", "chunk.size": "200"}, {"chunk.size": "100"}])
def test_compressed_segments_are_read(tmp_path: Path, storage: Mapping[str, str]) -> None:
    stage = Stage(tmp_path, storage=storage)
    three_segments(stage)
    assert read(stage.bucket) == stage.read_by_now()


@pytest.mark.parametrize(("first", "end"), [(0, 1), (7, 8), (19, 21), (33, 60), (59, 1000), (60, 70)])
def test_offset_bounds_exclude_segments_and_records(first: int, end: int, stage: Stage) -> None:
    three_segments(stage)
    found = read(stage.bucket, startingOffsets=str(first), endingOffsets=f'{{"0": {end}}}')
    assert found == [each for each in stage.read_by_now() if first <= each.offset < end]
    touched = {part.segment.start_offset for part in planned(stage.bucket, startingOffsets=str(first))}
    assert touched == {start for start in (0, 20, 40) if start + 20 > first}


@pytest.mark.parametrize(("first", "end"), [(0, 5), (21, 22), (35, 60), (60, 99)])
def test_time_bounds_exclude_segments_and_records(first: int, end: int, stage: Stage) -> None:
    three_segments(stage)
    bounds = {"startingTimestamp": str(BEGAN_MS + first), "endingTimestamp": str(BEGAN_MS + end)}
    assert read(stage.bucket, **bounds) == [each for each in stage.read_by_now() if first <= each.offset < end]
    assert all(part.segment.end_offset >= first for part in planned(stage.bucket, **bounds))


def test_time_bound_starts_at_the_indexed_position(stage: Stage) -> None:
    three_segments(stage)
    options = Options.of(options_of(stage.bucket, startingTimestamp=str(BEGAN_MS + 18)))
    assert byte_range_of(bucket_of(options).storage, plan(options)[0]).begin > 0


def test_records_of_aborted_transactions_are_left_out(stage: Stage) -> None:
    stage.append(3, producer_id=1)
    stage.append(3, producer_id=2)
    stage.append(2)
    stage.end_transaction(1, ControlType.ABORT)
    stage.append(3, producer_id=1)
    stage.end_transaction(2, ControlType.COMMIT)
    stage.end_transaction(1, ControlType.COMMIT)
    stage.append(2)
    stage.roll()
    assert read(stage.bucket) == stage.read_by_now()
    assert len(read(stage.bucket, isolationLevel="read_uncommitted")) == len(stage.read_by_now()) + 3


def test_a_marker_in_a_later_segment_decides(stage: Stage) -> None:
    stage.append(3, producer_id=1)
    stage.roll()
    stage.append(3)
    stage.end_transaction(1, ControlType.ABORT)
    stage.roll()
    assert [each.offset for each in read(stage.bucket)] == [3, 4, 5]
    assert read(stage.bucket, endingOffsets="3") == []


def test_transactions_undecided_in_the_store_are_not_read(stage: Stage) -> None:
    stage.append(3)
    stage.append(3, producer_id=1)
    stage.append(3)
    stage.roll()
    stage.end_transaction(1, ControlType.COMMIT)
    assert [each.offset for each in read(stage.bucket)] == [0, 1, 2]
    assert len(read(stage.bucket, isolationLevel="read_uncommitted")) == 9


def test_large_segments_are_cut(stage: Stage) -> None:
    for _ in range(40):
        stage.append(3, size=50)
    stage.roll()
    parts = planned(stage.bucket, maxPartitionBytes="2000")
    assert len(parts) > 5
    assert read(stage.bucket, maxPartitionBytes="2000") == stage.read_by_now()


def test_all_partitions_or_some(tmp_path: Path) -> None:
    stages = [Stage(tmp_path, partition) for partition in range(3)]
    for count, stage in enumerate(stages, 1):
        stage.append(count)
        stage.roll()
    whole = [(number, each) for number, stage in enumerate(stages) for each in stage.read_by_now()]
    assert read_all(tmp_path / "bucket") == whole
    assert read_all(tmp_path / "bucket", partitions="0, 2") == [each for each in whole if each[0] != 1]


def test_several_topics(tmp_path: Path) -> None:
    for number, topic in enumerate(("orders", "payments", "payments-eu", "carts")):
        stage = Stage(tmp_path, topic=topic, topic_id=Uuid(bytes([*bytes(15), number + 1])))
        stage.append(10 + number)
        stage.roll()

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
        stage = Stage(tmp_path / directory, topic_id=topic_id, storage={"storage.root": str(tmp_path / "bucket")})
        stage.append()
        stage.roll()
    with pytest.raises(InvalidOption, match="set topicId to one of"):
        planned(tmp_path / "bucket")
    assert len(read(tmp_path / "bucket", topicId=uuid_to_text(other))) == 3


def test_missing_offsets_are_an_error_unless_data_loss_is_allowed(stage: Stage) -> None:
    three_segments(stage)
    for each in stage.bucket.rglob("00000000000000000020-*"):
        each.unlink()
    with pytest.raises(RecordsMissing, match="offsets 20 to 39 of orders-0"):
        planned(stage.bucket)
    assert [each.offset for each in read(stage.bucket, failOnDataLoss="false")] == [*range(20), *range(40, 60)]
    assert len(read(stage.bucket, endingOffsets="20")) == 20


def test_committed_records_of_any_history_are_read(tmp_path: Path) -> None:
    random = Random(405)
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        stage = Stage(tmp_path / str(number))
        _live(stage, random)
        stage.roll()
        assert read(stage.bucket) == stage.read_by_now()
        size = str(random.choice((100, 1000, 10_000)))
        assert read(stage.bucket, maxPartitionBytes=size) == stage.read_by_now()


def _live(stage: Stage, random: Random) -> None:
    under_way: set[int] = set()
    for _ in range(40):
        match random.randrange(6):
            case 0:
                stage.roll()
            case 1:
                stage.lead_again()
            case 2 if under_way:
                producer_id = random.choice(sorted(under_way))
                under_way.discard(producer_id)
                stage.end_transaction(producer_id, random.choice((ControlType.ABORT, ControlType.COMMIT)))
            case 3 | 4:
                producer_id = random.randrange(3)
                under_way.add(producer_id)
                stage.append(random.randrange(1, 5), producer_id=producer_id)
            case _:
                stage.append(random.randrange(1, 5), codec=random.choice((Codec.NONE, Codec.GZIP)))
    for producer_id in sorted(under_way):
        stage.end_transaction(producer_id, random.choice((ControlType.ABORT, ControlType.COMMIT)))


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
def test_a_wrong_option_is_named(more: Mapping[str, str], sentence: str, stage: Stage) -> None:
    three_segments(stage)
    with pytest.raises(InvalidOption, match=sentence):
        plan(Options.of({**options_of(stage.bucket), **more}))


def test_key_pairs_keep_their_names_although_spark_does_not(stage: Stage) -> None:
    pairs = {"rsm.encryption.key.pairs": "Old,New.1", "rsm.encryption.key.pairs.new.1.public.key.file": "/k"}
    settings = dict(Options.of({**options_of(stage.bucket), **pairs}).storage_settings)
    assert settings["encryption.key.pairs.New.1.public.key.file"] == "/k"
