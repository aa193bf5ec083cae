"""Bodies of record batches round-trip in every codec, also with other implementations."""

import subprocess
import sys
import warnings
from collections.abc import Sequence

import cramjam
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.ids import LeaderEpoch
from protocol.records.batch import HEADER_SIZE, TRANSACTIONAL_FLAG, crc_is_valid, pack_batch, parse_header
from protocol.records.builder import Record, build_batch, build_single_record, empty_batch, encode_record, rebuild_batch
from protocol.records.compression import Codec, compress, decompress
from protocol.records.errors import MalformedBatch, MalformedRecords, UnknownCodec
from protocol.records.reader import FullRecord, iter_records
from tests.protocol.profile import more_examples
from tests.support.fakes.batches import iter_all_records

codecs = st.sampled_from(Codec)
nullable_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), nullable_bytes), max_size=3)
timestamps = st.integers(-1, 2**45)
records = st.lists(st.builds(Record, timestamps, nullable_bytes, nullable_bytes, headers), min_size=1, max_size=20)


def plain(found: FullRecord) -> Record:
    return Record(found.timestamp, found.key, found.value, found.headers)


@more_examples
@given(records, codecs, st.integers(0, 2**40))
def test_built_records_are_read_back(written: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(written, base_offset=base_offset, codec=codec)
    found = list(iter_records(batch))
    assert [plain(record) for record in found] == written
    assert [record.offset for record in found] == list(range(base_offset, base_offset + len(written)))
    header = parse_header(batch)
    assert (header.codec, header.record_count, header.size) == (codec, len(written), len(batch))
    assert (header.base_timestamp, header.max_timestamp) == (
        written[0].timestamp,
        max(record.timestamp for record in written),
    )
    assert crc_is_valid(batch, 0, len(batch))


@pytest.mark.parametrize("first", [-1, 0, 5])
def test_timestamps_count_from_the_first_record_even_without_timestamp(first: int) -> None:
    written = [Record(timestamp, b"k", b"v", ()) for timestamp in (first, 0, -1, 7)]
    batch = build_batch(written)
    found = list(iter_records(batch))
    assert [record.timestamp for record in found] == [first, 0, -1, 7]
    for horizon in (None, -1, 3):
        rebuilt = rebuild_batch(parse_header(batch), found, delete_horizon_ms=horizon)
        assert [record.timestamp for record in iter_records(rebuilt)] == [first, 0, -1, 7]


@pytest.mark.parametrize("attributes", [0x01, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_attributes_of_records_are_ignored(attributes: int, codec: Codec) -> None:
    written = [Record(10, b"a", b"1", ()), Record(12, None, b"2" * 100, [("h", b"v")]), Record(13, b"c", None, ())]
    batch = bytearray(build_batch(written))
    changed = HEADER_SIZE + batch[HEADER_SIZE] // 2 + 1  # the length of the second record takes two bytes
    assert batch[changed + 2] == 0
    batch[changed + 2] = attributes
    if codec is not Codec.NONE:
        header = parse_header(batch)._replace(attributes=codec)
        batch = bytearray(pack_batch(header, compress(codec, batch[HEADER_SIZE:])))
    found = [Record(each.timestamp, each.key, each.value, tuple(each.headers)) for each in iter_records(batch)]
    assert found == [each._replace(headers=tuple(each.headers)) for each in written]


@more_examples
@given(records, st.sampled_from((Codec.NONE, Codec.GZIP)))
def test_kafka_python_reads_built_batches(written: list[Record], codec: Codec) -> None:
    # kafka-python treats a first timestamp of -1 as absent, and then returns -1 for every record.
    assume(written[0].timestamp >= 0)
    with warnings.catch_warnings(action="ignore"):
        from kafka.record.default_records import DefaultRecordBatch
    other = DefaultRecordBatch(build_batch(written, codec=codec))
    assert other.validate_crc()
    assert [(r.timestamp, r.key, r.value, r.headers) for r in other] == [
        (r.timestamp, r.key, r.value, list(r.headers)) for r in written
    ]


def test_log_append_time_overrides_the_time_of_every_record() -> None:
    batch = build_batch([Record(5, None, b"a"), Record(9, None, b"b")], timestamp_type=1)
    assert [record.timestamp for record in iter_records(batch)] == [9, 9]


def test_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


@given(
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=20_000),
    timestamp=st.integers(0, 2**62),
    producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    transactional=st.booleans(),
)
def test_single_record_is_built_as_any_batch(
    key: bytes | None, value: bytes | None, timestamp: int, producer_id: int, producer_epoch: int, transactional: bool
) -> None:
    single = build_single_record(
        encode_record(key, value),
        timestamp,
        attributes=TRANSACTIONAL_FLAG if transactional else 0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    assert single == build_batch(
        [Record(timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
    )


def test_rebuilding_keeps_offsets_producer_and_flags() -> None:
    batch = build_batch(
        [Record(100 + n, b"%d" % n, b"v", [("h", None)]) for n in range(5)],
        base_offset=70,
        leader_epoch=LeaderEpoch(3),
        codec=Codec.ZSTD,
        producer_id=9,
        producer_epoch=2,
        base_sequence=4,
        transactional=True,
    )
    header = parse_header(batch)
    kept = [record for record in iter_records(batch) if record.offset in (71, 74)]
    rebuilt = rebuild_batch(header, kept)
    found = parse_header(rebuilt)
    assert [(r.offset, r.timestamp, r.headers) for r in iter_records(rebuilt)] == [
        (71, 101, [("h", None)]),
        (74, 104, [("h", None)]),
    ]
    assert found == header._replace(
        batch_length=found.batch_length, crc=found.crc, base_timestamp=101, max_timestamp=104, record_count=2
    )


@pytest.mark.parametrize("codec", Codec)
def test_delete_horizon_changes_no_timestamp(codec: Codec) -> None:
    batch = build_batch([Record(100, b"a", None), Record(90, b"b", None)], base_offset=7, codec=codec)
    rebuilt = rebuild_batch(parse_header(batch), list(iter_records(batch)), delete_horizon_ms=10**12)
    assert parse_header(rebuilt).delete_horizon_ms == parse_header(rebuilt).base_timestamp == 10**12
    assert [(r.offset, r.timestamp) for r in iter_records(rebuilt)] == [(7, 100), (8, 90)]
    again = rebuild_batch(parse_header(rebuilt), list(iter_records(rebuilt))[1:])
    assert parse_header(again).delete_horizon_ms == 10**12
    assert [(r.offset, r.timestamp) for r in iter_records(again)] == [(8, 90)]


def test_rebuilding_without_records_returns_a_bare_header() -> None:
    header = parse_header(build_batch([Record(5, b"k", b"v")] * 3, base_offset=7, codec=Codec.GZIP, producer_id=1))
    for batch in (empty_batch(header), rebuild_batch(header, [])):
        found = parse_header(batch)
        assert len(batch) == HEADER_SIZE
        assert (found.base_offset, found.last_offset, found.record_count, found.codec) == (7, 9, 0, 0)
        assert (found.base_timestamp, found.max_timestamp, found.producer_id) == (-1, 5, 1)
        assert list(iter_records(batch)) == []


def test_all_records_of_several_batches_are_read_with_their_headers() -> None:
    one = build_batch([Record(1, None, b"a")])
    two = build_batch([Record(2, None, b"b"), Record(3, None, b"c")], base_offset=1, leader_epoch=LeaderEpoch(4))
    found = [(h.leader_epoch, r.offset) for h, r in iter_all_records(one + two + two[:-1])]
    assert found == [(-1, 0), (4, 1), (4, 2)]


# -- bytes that make no sense --------------------------------------------------------------------------------------


def broken(body: bytes, count: int = 1, codec: int = 0) -> bytes:
    header = parse_header(build_batch([Record(1, b"k", b"v")], codec=0))
    return pack_batch(header._replace(record_count=count, attributes=codec), body)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 1),
        (b"\x10", 1),
        (b"\xff" * 20, 1),
        (bytes(build_batch([Record(1, b"k", b"v")])[HEADER_SIZE:]) + b"x", 1),
        (bytes(build_batch([Record(1, b"k", b"v")])[HEADER_SIZE:]), 2),
        (bytes(build_batch([Record(1, b"k", b"v")])[HEADER_SIZE:]), 2**31 - 1),
    ],
)
def test_bodies_with_another_record_count_are_refused(body: bytes, count: int) -> None:
    with pytest.raises(MalformedRecords):
        list(iter_records(broken(body, count)))


@more_examples
@given(st.binary(max_size=300), st.integers(-1, 3), codecs)
def test_random_bodies_raise_only_malformed_records(body: bytes, count: int, codec: Codec) -> None:
    try:
        for _ in iter_records(broken(body, count, codec)):
            pass
    except MalformedRecords:
        pass


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(UnknownCodec):
        list(iter_records(broken(b"abc", codec=codec)))


def test_truncated_batch_is_refused() -> None:
    with pytest.raises(MalformedBatch):
        iter_records(build_batch([Record(1, b"k", b"v")])[:-1])


# -- codecs --------------------------------------------------------------------------------------------------------


@more_examples
@given(st.binary(max_size=100_000), codecs)
def test_every_codec_round_trips(data: bytes, codec: Codec) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 17)), (Codec.ZSTD, (-5, 1, 22))]
)
def test_compression_levels_are_accepted(codec: Codec, levels: Sequence[int]) -> None:
    data = b"the same again and again " * 1000
    for level in levels:
        assert bytes(decompress(codec, compress(codec, data, level))) == data


def test_lz4_frames_have_independent_blocks_and_no_checksums() -> None:
    """Apache Kafka's reader accepts only version 1 with independent blocks."""
    frame = compress(Codec.LZ4, b"x" * 200_000)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0b1110_0000 == 0b0110_0000


def test_snappy_is_written_in_xerial_framing_and_read_with_or_without() -> None:
    data = b"some text, more text, " * 5000
    framed = compress(Codec.SNAPPY, data)
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert bytes(decompress(Codec.SNAPPY, framed)) == data
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))) == data


@pytest.mark.parametrize("cut", [17, 19, 22, 30])
def test_truncated_snappy_stream_is_refused(cut: int) -> None:
    with pytest.raises(MalformedRecords):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"some text" * 100)[:cut])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompression_bomb_is_refused_at_the_limit(codec: Codec) -> None:
    """The library's text for a small output buffer distinguishes the limit from bad input."""
    bomb = compress(codec, bytes(10_000_000))
    with pytest.raises(MalformedRecords, match="more than"):
        decompress(codec, bomb, limit=1_000_000)
    assert len(decompress(codec, bomb, limit=10_000_000)) == 10_000_000


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_garbage_is_refused(codec: Codec) -> None:
    with pytest.raises(MalformedRecords):
        decompress(codec, b"garbage, garbage and garbage again")


def test_opening_records_does_not_import_a_kafka_client() -> None:
    """aiokafka's compiled code is loaded alone, and a later import of the whole client still works."""
    program = (
        "import sys\n"
        "from protocol.records.builder import Record, build_batch\n"
        "from protocol.records.reader import iter_records\n"
        "list(iter_records(build_batch([Record(1, None, b'x')])))\n"
        "assert not [name for name in sys.modules if name.startswith(('aiokafka', 'importlib.metadata'))]\n"
        "import aiokafka\n"
        "assert aiokafka.AIOKafkaProducer and aiokafka.record and aiokafka.errors\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_first_records_may_be_read_in_several_threads() -> None:
    """Another thread imports other modules meanwhile, as at a start, when the loop and the recovery threads read
    records.
    """
    program = (
        "import sys, threading\n"
        "from types import ModuleType\n"
        "from protocol.records.compiled import record_code\n"
        "sys.setswitchinterval(1e-6)\n"
        "over, failed, begun = threading.Event(), [], threading.Barrier(4)\n"
        "def churn():\n"
        "    number = 0\n"
        "    while not over.is_set():\n"
        "        number += 1\n"
        "        sys.modules[f'churn-{number}'] = ModuleType('churn')\n"
        "        sys.modules.pop(f'churn-{number - 50}', None)\n"
        "def load():\n"
        "    begun.wait()\n"
        "    try:\n"
        "        record_code()\n"
        "    except BaseException as error:\n"
        "        failed.append(error)\n"
        "churner = threading.Thread(target=churn)\n"
        "loaders = [threading.Thread(target=load) for _ in range(4)]\n"
        "for each in (churner, *loaders): each.start()\n"
        "for each in loaders: each.join()\n"
        "over.set()\n"
        "assert not failed, failed\n"
    )
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
