"""Validation of produced batches (LogValidator, ProduceRequest.validateRecords)."""

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch import TimestampType, crc_is_valid, pack_batch, parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, end_transaction_marker
from protocol.records.reader import iter_records
from storage.config import CleanupPolicy, CompressionType, LogConfig, MessageTimestampType
from storage.errors import CorruptBatch, InvalidRecords, Rejection
from storage.producer_state import Origin
from storage.validation import MAX_RECORD_ERRORS, Admitted, admit, admit_generally, verify_replicated

NOW = 1_700_000_000_000
PLAIN = LogConfig()
COMPACTED = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
APPEND_TIME = LogConfig(message_timestamp_type=MessageTimestampType.LOG_APPEND_TIME)


def batch(*records: Record, **fields: int) -> bytes:
    return build_batch(records or (Record(NOW, b"k", b"v"),), **fields)  # type: ignore[arg-type]


def altered(data: bytes, **fields: int) -> bytes:
    """Return the batch with other header fields and a valid checksum."""
    return pack_batch(parse_header(data)._replace(**fields), data[61:])  # type: ignore[arg-type]


def refused(data: bytes, config: LogConfig = PLAIN, origin: Origin = Origin.CLIENT) -> InvalidRecords:
    with pytest.raises(InvalidRecords) as caught:
        admit(data, config, NOW, origin)
    return caught.value


def test_valid_batch_is_admitted_unchanged() -> None:
    data = batch(producer_id=4, producer_epoch=0, base_sequence=0, codec=Codec.ZSTD)
    (admitted,) = admit(data, PLAIN, NOW, Origin.CLIENT)
    assert bytes(admitted.batch) == data
    assert admitted.header == parse_header(data)


def test_incomplete_batch_at_the_end_is_left_out() -> None:
    data = batch()
    assert bytes(admit(data + data[:-1], PLAIN, NOW, Origin.CLIENT)[0].batch) == data
    assert bytes(admit(data + data[:30], PLAIN, NOW, Origin.CLIENT)[0].batch) == data


@pytest.mark.parametrize("data", [b"", batch()[:-1], batch()[:30], batch() + batch()])
def test_client_must_send_exactly_one_batch(data: bytes) -> None:
    assert refused(data).kind is Rejection.INVALID_RECORD


def test_coordinator_may_send_several_batches() -> None:
    assert len(admit(batch() + batch(), PLAIN, NOW, Origin.COORDINATOR)) == 2


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused(magic: int) -> None:
    data = bytearray(batch())
    data[16] = magic
    assert refused(bytes(data)).kind is Rejection.INVALID_RECORD


@pytest.mark.parametrize(("position", "value"), [(16, b"\x03"), (16, b"\xff"), (8, struct.pack(">i", 13))])
def test_invalid_batch_bytes_are_corrupt(position: int, value: bytes) -> None:
    data = bytearray(batch())
    data[position : position + len(value)] = value
    with pytest.raises(CorruptBatch):
        admit(data, PLAIN, NOW, Origin.CLIENT)


def test_wrong_checksum_is_corrupt() -> None:
    data = bytearray(batch())
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        admit(data, PLAIN, NOW, Origin.CLIENT)


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 1},
        {"record_count": 0},
        {"record_count": 2},
        {"last_offset_delta": 1},
        {"last_offset_delta": -1, "record_count": 0},
        {"attributes": 0x20},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1},
    ],
)
def test_headers_reserved_for_the_broker_are_refused(fields: dict[str, int]) -> None:
    assert refused(altered(batch(), **fields)).kind is Rejection.INVALID_RECORD


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    assert refused(altered(batch(), attributes=codec)).kind is Rejection.UNKNOWN_SERVER_ERROR


def test_batches_above_max_message_bytes_are_refused() -> None:
    data = batch(Record(NOW, None, b"x" * 1000))
    assert refused(data, LogConfig(max_message_bytes=len(data) - 1)).kind is Rejection.MESSAGE_TOO_LARGE
    assert admit(data, LogConfig(max_message_bytes=len(data)), NOW, Origin.CLIENT)


def test_batches_above_segment_bytes_are_refused() -> None:
    data = batch(Record(NOW, None, b"x" * 1000))
    assert refused(data, LogConfig(segment_bytes=len(data) - 1)).kind is Rejection.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", Codec)
def test_compacted_topic_requires_keys_and_lists_records_without_keys(codec: Codec) -> None:
    data = batch(
        Record(NOW, b"k", b"v"), Record(NOW, None, b"v"), Record(NOW, b"", b"v"), Record(NOW, None, None), codec=codec
    )
    refusal = refused(data, COMPACTED)
    assert refusal.kind is Rejection.INVALID_RECORD
    assert [index for index, _ in refusal.record_errors] == [1, 3]
    assert admit(batch(codec=codec), COMPACTED, NOW, Origin.CLIENT)


def test_coordinator_batches_skip_the_key_check() -> None:
    assert admit(batch(Record(NOW, None, b"v")), COMPACTED, NOW, Origin.COORDINATOR)


def test_list_of_invalid_records_is_bounded() -> None:
    data = build_batch([Record(NOW, None, b"v")] * (MAX_RECORD_ERRORS + 5))
    assert len(refused(data, COMPACTED).record_errors) == MAX_RECORD_ERRORS


def test_malformed_body_is_refused_if_it_must_be_read() -> None:
    assert refused(pack_batch(parse_header(batch()), b"nonsense"), COMPACTED).kind is Rejection.INVALID_RECORD


@pytest.mark.parametrize("offset_ms", [-10_001, 5_001])
def test_timestamps_out_of_bounds_are_refused_per_record(offset_ms: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=10_000, message_timestamp_after_max_ms=5_000)
    good, bad = Record(NOW, None, b"good"), Record(NOW + offset_ms, None, b"bad")
    for records, wrong in (((bad, good), [0]), ((good, bad), [1]) if offset_ms > 0 else ((bad, bad), [0, 1])):
        refusal = refused(batch(*records), config)
        assert refusal.kind is Rejection.INVALID_TIMESTAMP
        assert [index for index, _ in refusal.record_errors] == wrong


def test_timestamps_at_the_bounds_and_absent_ones_are_accepted() -> None:
    config = LogConfig(message_timestamp_before_max_ms=10_000, message_timestamp_after_max_ms=5_000)
    for timestamp in (NOW - 10_000, NOW + 5_000, -1):
        assert admit(batch(Record(timestamp, None, b"v")), config, NOW, Origin.CLIENT)


@pytest.mark.parametrize(("config", "timestamp"), [(APPEND_TIME, NOW), (PLAIN, -1)])
def test_producer_may_not_set_log_append_time(config: LogConfig, timestamp: int) -> None:
    marked = batch(*[Record(timestamp, None, b"v")] * 2, timestamp_type=TimestampType.LOG_APPEND_TIME)
    refusal = refused(marked, config)
    assert refusal.kind is Rejection.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [0, 1]


@pytest.mark.parametrize("writable", [True, False])
def test_log_append_time_attribute_is_cleared_under_create_time(writable: bool) -> None:
    marked = batch(timestamp_type=TimestampType.LOG_APPEND_TIME)
    (admitted,) = admit(bytearray(marked) if writable else marked, PLAIN, NOW, Origin.CLIENT)
    assert bytes(admitted.batch) == batch()
    assert admitted.header.timestamp_type is TimestampType.CREATE_TIME


def test_batch_shorter_than_its_own_header_is_corrupt() -> None:
    short = bytearray(batch())
    struct.pack_into(">i", short, 8, 48)
    for data in (short[:60], short):
        with pytest.raises(CorruptBatch):
            admit(data, PLAIN, NOW, Origin.CLIENT)


@pytest.mark.parametrize("writable", [True, False])
def test_log_append_time_is_stamped_into_the_header(writable: bool) -> None:
    data = batch(Record(5, None, b"a"), Record(6, None, b"b"))
    buffer = bytearray(data) if writable else data
    (admitted,) = admit(buffer, APPEND_TIME, NOW, Origin.CLIENT)
    assert admitted.header.max_timestamp == parse_header(admitted.batch).max_timestamp == NOW
    assert admitted.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert crc_is_valid(admitted.batch, 0, len(admitted.batch))
    assert [record.timestamp for record in iter_records(admitted.batch)] == [NOW, NOW]
    assert (bytes(buffer) == data) is not writable


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", [c for c in CompressionType if c is not CompressionType.PRODUCER])
def test_topic_codec_replaces_the_producers(source: Codec, target: CompressionType) -> None:
    data = batch(
        Record(NOW, b"k", b"v" * 100, [("h", b"x")]),
        Record(NOW - 5, None, None),
        codec=source,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
    )
    config = LogConfig(compression_type=target)
    (admitted,) = admit(data, config, NOW, Origin.CLIENT)
    header = admitted.header
    assert header == parse_header(admitted.batch)
    assert header.codec == config.target_codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 9)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW)
    found = list(iter_records(admitted.batch))
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found] == [
        (0, NOW, b"k", b"v" * 100, [("h", b"x")]),
        (1, NOW - 5, None, None, []),
    ]


def test_recompressed_batch_must_fit() -> None:
    data = batch(Record(NOW, None, b"x" * 10_000), codec=Codec.ZSTD)
    config = LogConfig(compression_type=CompressionType.UNCOMPRESSED, max_message_bytes=5_000)
    assert refused(data, config).kind is Rejection.MESSAGE_TOO_LARGE


def test_markers_are_never_recompressed() -> None:
    marker = end_transaction_marker(ControlType.COMMIT, 1, 0, 0, NOW)
    config = replace(PLAIN, compression_type=CompressionType.ZSTD)
    assert bytes(admit(marker, config, NOW, Origin.COORDINATOR)[0].batch) == marker


def test_replicas_check_checksums_and_order_only() -> None:
    one = batch(Record(5, None, b"a"), base_offset=10, leader_epoch=2)
    two = altered(batch(base_offset=20), record_count=0, last_offset_delta=4, attributes=0x20)
    assert [admitted.header.base_offset for admitted in verify_replicated(one + two + one[:-1])] == [10, 20]
    with pytest.raises(CorruptBatch, match="ascend"):
        verify_replicated(two + one)
    with pytest.raises(CorruptBatch, match="checksum"):
        verify_replicated(one[:-1] + b"?")


CONFIGS = st.sampled_from(
    (
        PLAIN,
        COMPACTED,
        APPEND_TIME,
        LogConfig(compression_type=CompressionType.LZ4),
        LogConfig(max_message_bytes=80),
        LogConfig(segment_bytes=80),
        LogConfig(message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=10),
        LogConfig(message_timestamp_before_max_ms=2**63 - 1, message_timestamp_after_max_ms=2**63 - 1),
    )
)
RECORDS = st.lists(
    st.builds(
        Record,
        st.sampled_from((-1, NOW - 11, NOW, NOW + 11, NOW + 4_000_000)),
        st.none() | st.binary(max_size=9),
        st.binary(max_size=30),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=4,
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": st.sampled_from((0, 7)),
        "attributes": st.integers(-1, 0x80),
        "last_offset_delta": st.integers(-1, 4),
        "record_count": st.integers(-1, 5),
        "producer_id": st.sampled_from((-1, 5)),
        "base_sequence": st.sampled_from((-1, 0, 3)),
        "base_timestamp": st.sampled_from((-1, NOW, NOW + 20)),
        "max_timestamp": st.sampled_from((-1, NOW, NOW + 20)),
    },
)
DAMAGES = st.sampled_from(("none", "cut", "more", "twice", "crc", "magic", "length"))


def damaged(data: bytes, damage: str) -> bytes:
    """Return the batch with one fault of its framing."""
    match damage:
        case "cut":
            return data[:-1]
        case "more":
            return data + data[:20]
        case "twice":
            return data + data
        case "crc":
            return data[:-1] + bytes((data[-1] ^ 1,))
        case "magic":
            return data[:16] + b"\1" + data[17:]
        case "length":
            return data[:8] + (len(data) - 11).to_bytes(4, "big") + data[12:]
        case _:
            return data


@given(RECORDS, HEADERS, DAMAGES, CONFIGS, st.sampled_from((Origin.CLIENT, Origin.COORDINATOR)))
def test_short_way_of_ordinary_batches_agrees_with_the_general_checks(
    records: list[Record], header: dict[str, int], damage: str, config: LogConfig, origin: Origin
) -> None:
    data = damaged(altered(batch(*records), **header), damage)

    def outcome(admitting: Callable[[memoryview, LogConfig, int, Origin], list[Admitted]]) -> object:
        try:
            return [
                (each.header, bytes(each.batch)) for each in admitting(memoryview(bytearray(data)), config, NOW, origin)
            ]
        except (CorruptBatch, InvalidRecords) as error:
            return type(error), str(error), getattr(error, "kind", None), getattr(error, "record_errors", None)

    assert outcome(admit) == outcome(admit_generally)
