"""Valid and invalid requests in every version of every served API: one scenario per API.

A scenario is a generator that yields (name, request) and receives the response, None if the connection was closed. Run
in the same order against two fresh brokers, all scenarios must get the same responses.
"""

import struct
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache, partial

from protocol.api_keys import API_BY_KEY, ApiKey
from protocol.messages import Message
from protocol.messages import alter_configs as ac
from protocol.messages import api_versions as av
from protocol.messages import create_partitions as cp
from protocol.messages import create_topics as ct
from protocol.messages import delete_groups as dg
from protocol.messages import delete_records as dr
from protocol.messages import delete_topics as dt
from protocol.messages import describe_cluster as dcl
from protocol.messages import describe_configs as dc
from protocol.messages import describe_groups as dgr
from protocol.messages import describe_log_dirs as dld
from protocol.messages import describe_producers as dp
from protocol.messages import describe_topic_partitions as dtp
from protocol.messages import fetch as fe
from protocol.messages import find_coordinator as fc
from protocol.messages import heartbeat as hb
from protocol.messages import incremental_alter_configs as iac
from protocol.messages import init_producer_id as ip
from protocol.messages import join_group as jg
from protocol.messages import leave_group as lv
from protocol.messages import list_config_resources as lcr
from protocol.messages import list_groups as lg
from protocol.messages import list_offsets as lo
from protocol.messages import metadata as md
from protocol.messages import offset_commit as oc
from protocol.messages import offset_delete as od
from protocol.messages import offset_fetch as of
from protocol.messages import offset_for_leader_epoch as ofe
from protocol.messages import produce as pr
from protocol.messages import sync_group as sg
from protocol.primitives import ZERO_UUID, Uuid
from protocol.records.batch import ATTRIBUTES_POSITION
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec
from tests.interop.wire import mutation_quota_cases, transaction_cases
from tests.interop.wire.admin_cases import ADMIN_SCENARIOS
from tests.interop.wire.group_cases import CONSUMER_SCENARIOS, with_conversations
from tests.interop.wire.harness import WireHarness
from tests.interop.wire.share_cases import SHARE_SCENARIOS
from tests.interop.wire.streams_cases import STREAMS_SCENARIOS
from tests.interop.wire.transaction_cases import TRANSACTION_SCENARIOS

Step = tuple[str, Message]
Scenario = Generator[Step, Message | None, None]


@cache
def now() -> int:
    """Return the time of the first call: both brokers get the same records, soon after that time.

    The time of the import may be long before: a topic of the cases refuses records that are older than ten minutes.
    """
    return int(time.time() * 1000)


UNKNOWN_ID = Uuid(bytes(15) + b"\x77")
WAIT_MS = 10_000

TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "plain": (40, {}),
    "many": (3, {}),
    "twice": (1, {"message.timestamp.before.max.ms": "600000"}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "stamped-gzip": (1, {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"}),
    "timely": (1, {"message.timestamp.before.max.ms": "600000", "message.timestamp.after.max.ms": "600000"}),
    "small": (1, {"max.message.bytes": "200"}),
    "tiny-segments": (1, {"segment.bytes": "1048576"}),
    **{f"to-{codec}": (1, {"compression.type": codec}) for codec in ("gzip", "snappy", "lz4", "zstd", "uncompressed")},
    "two-replicas": (1, {"min.insync.replicas": "2"}),
}


def batch(*values: bytes | None, key: bytes | None = b"k", timestamp: int | None = None, **how: object) -> bytes:
    """Return a batch of records with these values."""
    first = now() if timestamp is None else timestamp
    records = [Record(first + index, key, value) for index, value in enumerate(values or (b"v",))]
    return build_batch(records, **how)  # type: ignore[arg-type]


def patched(data: bytes, position: int, code: str, *values: int, crc: bool = True) -> bytes:
    """Return the batch with a changed header field and, unless `crc` is false, a matching checksum."""
    import crc32c

    changed = bytearray(data)
    struct.pack_into(code, changed, position, *values)
    if crc:
        struct.pack_into(">I", changed, 17, crc32c.crc32c(bytes(changed[ATTRIBUTES_POSITION:])))
    return bytes(changed)


# ---- produce


def produce_request(
    harness: WireHarness,
    version: int,
    data: Iterable[tuple[str, int, bytes | None]],
    acks: int = -1,
    txn: str | None = None,
) -> pr.ProduceRequest:
    topics: dict[str, list[pr.PartitionProduceData]] = {}
    for topic, index, records in data:
        topics.setdefault(topic, []).append(pr.PartitionProduceData(index, records))
    by_id = version >= 13
    rows = [
        pr.TopicProduceData(
            "" if by_id else name, harness.topic_ids.get(name, UNKNOWN_ID) if by_id else ZERO_UUID, rows
        )
        for name, rows in topics.items()
    ]
    return pr.ProduceRequest(txn, acks, WAIT_MS, rows)


def bad_batches() -> Iterable[tuple[str, bytes | None]]:
    good = batch(b"one", b"two")
    yield "no records", b""
    yield "two batches", good + good
    yield "a batch and the beginning of another", good + good[:40]
    yield "a batch and 20 bytes", good + good[:20]
    yield "a batch cut short", good[:-3]
    yield "ten bytes", good[:10]
    yield "sixteen bytes", good[:16]
    yield "seventeen bytes", good[:17]
    yield "a header alone", good[:61]
    yield "a wrong checksum", patched(good, 60, ">b", 99, crc=False)
    yield "magic 1", patched(good, 16, ">b", 1)
    yield "magic 0", patched(good, 16, ">b", 0)
    yield "magic 3", patched(good, 16, ">b", 3)
    yield "magic -1", patched(good, 16, ">b", -1)
    yield "length 0", patched(good, 8, ">i", 0)
    yield "length 13", patched(good, 8, ">i", 13)
    yield "length 14", patched(good, 8, ">i", 14)
    yield "length 48", patched(good, 8, ">i", 48)
    yield "length -1", patched(good, 8, ">i", -1)
    yield "a huge length", patched(good, 8, ">i", 2**31 - 1)
    yield "base offset 5", patched(good, 0, ">q", 5)
    yield "base offset -1", patched(good, 0, ">q", -1)
    yield "leader epoch 7", patched(good, 12, ">i", 7)
    yield "last offset delta 5", patched(good, 23, ">i", 5)
    yield "last offset delta -1", patched(good, 23, ">i", -1)
    yield "last offset delta 0", patched(good, 23, ">i", 0)
    yield "record count 0", patched(good, 57, ">i", 0)
    yield "record count -1", patched(good, 57, ">i", -1)
    yield "record count 3", patched(good, 57, ">i", 3)
    yield "record count 1", patched(good, 57, ">i", 1)
    yield "no records at all", patched(patched(good[:61], 8, ">i", 49), 57, ">i", 0)
    yield "control", patched(good, 21, ">h", 0x20)
    yield "transactional without a transaction", patched(good, 21, ">h", 0x10)
    yield "transactional control", patched(good, 21, ">h", 0x30)
    yield "delete horizon", patched(good, 21, ">h", 0x40)
    yield "unused attribute bits", patched(good, 21, ">h", 0x7F80)
    yield "codec 5", patched(good, 21, ">h", 5)
    yield "codec 7", patched(good, 21, ">h", 7)
    yield "marked LogAppendTime", patched(good, 21, ">h", 8)
    yield "producer without sequence", batch(b"x", producer_id=7001, producer_epoch=0, base_sequence=-1)
    yield "producer without epoch", batch(b"x", producer_id=7002, producer_epoch=-1, base_sequence=0)
    yield "sequence without producer", batch(b"x", producer_id=-1, producer_epoch=-1, base_sequence=5)
    yield "producer id -2", batch(b"x", producer_id=-2, producer_epoch=0, base_sequence=0)
    yield "wrong max timestamp", patched(good, 35, ">q", now() + 777)
    yield "timestamp -1", batch(b"x", timestamp=-1)
    yield "null key and value", batch(None, key=None)


def produce(harness: WireHarness, version: int) -> Scenario:
    request = partial(produce_request, harness, version)
    good = batch(b"one", b"two")
    for acks in (1, -1, 2, -2):
        yield f"acks {acks}", request([("plain", 0, good)], acks)
    for codec in Codec:
        yield f"codec {codec.name}", request([("plain", 1, batch(b"v" * 50, b"w" * 50, codec=codec))])
    for index, (name, data) in enumerate(bad_batches()):
        yield name, request([("plain", 2 + index % 30, data)])
    yield "an unknown topic", request([("no-such-topic", 0, good)])
    yield "an unknown topic and bad acks", request([("no-such-topic", 0, good)], 5)
    yield "an unknown topic and bad records", request([("no-such-topic", 0, None)])
    yield "an unknown partition", request([("plain", 400, good)])
    yield "partition -1", request([("plain", -1, good)])
    yield "bad acks and bad records", request([("plain", 35, b"")], 5)
    yield "an invalid name", request([("../x", 0, good)])
    yield "an empty name", request([("", 0, good)])
    yield "nothing", request([])
    yield "a topic without partitions", pr.ProduceRequest(None, -1, WAIT_MS, [pr.TopicProduceData("plain")])
    mixed = [
        ("plain", 35, good),
        ("plain", 400, good),
        ("plain", 36, batch(b"x")[:-1]),
        ("no-such-topic", 0, good),
        ("many", 1, good),
    ]
    yield "good and bad ones mixed", request(mixed)
    yield "a partition twice", request([("twice", 0, good), ("twice", 0, good)])
    yield (
        "a compacted topic without key",
        request(
            [
                (
                    "compacted",
                    0,
                    build_batch([Record(now(), *each) for each in ((b"k", b"v"), (None, b"v"), (None, None))]),
                )
            ]
        ),
    )
    yield "a compacted topic with key", request([("compacted", 0, good)])
    yield (
        "a compacted topic, compressed without key",
        request([("compacted", 0, batch(b"a", key=None, codec=Codec.LZ4))]),
    )
    yield "a compacted topic with a tombstone", request([("compacted", 0, batch(None))])
    yield "stamped by the log", request([("stamped", 0, good)])
    yield "stamped by the log, marked already", request([("stamped", 0, patched(good, 21, ">h", 8))])
    yield "stamped by the log, compressed", request([("stamped", 0, batch(b"a", b"b", codec=Codec.GZIP))])
    yield "stamped and recompressed", request([("stamped-gzip", 0, batch(b"a", b"b", codec=Codec.LZ4))])
    yield (
        "too old",
        request([("timely", 0, build_batch([Record(now() - 9_000_000, b"k", b"v"), Record(now(), b"k", b"v")]))]),
    )
    middle = [Record(now(), b"k", b"v"), Record(now() - 9_000_000, b"k", b"v"), Record(now(), b"k", b"v")]
    yield "too old in the middle", request([("twice", 0, build_batch(middle))])
    yield "invalid records", request([("twice", 0, patched(good, 61, ">b", 99))])
    yield (
        "too new",
        request([("timely", 0, build_batch([Record(now(), b"k", b"v"), Record(now() + 9_000_000, b"k", b"v")]))]),
    )
    yield "in time", request([("timely", 0, batch(b"a", timestamp=now()))])
    yield "without a time", request([("timely", 0, batch(b"a", timestamp=-1))])
    yield "too large", request([("small", 0, batch(b"x" * 300))])
    yield "too large and corrupt", request([("small", 0, patched(batch(b"x" * 300), 70, ">b", 3, crc=False))])
    yield "just below the size limit", request([("small", 0, batch(b"x" * 100))])
    yield "larger than a segment", request([("tiny-segments", 0, batch(b"x" * 1_048_000))])
    for target in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        for codec in (Codec.NONE, Codec.SNAPPY, Codec.LZ4):
            yield f"{codec.name} to {target}", request([(f"to-{target}", 0, batch(b"a" * 40, b"b", None, codec=codec))])
    yield (
        "recompressed with a producer",
        request([("to-gzip", 0, batch(b"a", b"b", producer_id=7100 + version, producer_epoch=1, base_sequence=0))]),
    )
    yield "too few in-sync replicas", request([("two-replicas", 0, good)])
    yield "too few in-sync replicas, but acks 1", request([("two-replicas", 0, good)], 1)
    yield "an internal topic", request([("__consumer_offsets", 0, good)])
    yield "a transactional id", request([("plain", 0, good)], txn="some-id")
    yield "a transactional id and acks 1", request([("plain", 0, good)], 1, txn="some-id")
    yield from idempotence(harness, version)
    everything = [(topic, index) for topic, (count, _) in TOPICS.items() for index in range(count) if topic != "twice"]
    yield "a fetch afterwards", read_request(harness, 12, everything)


def idempotence(harness: WireHarness, version: int) -> Scenario:
    pid = 8000 + version

    def request(sequence: int, *values: bytes, epoch: int = 0, producer_id: int = pid) -> pr.ProduceRequest:
        data = batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        return produce_request(harness, version, [("plain", 38, data)])

    yield "sequence 0", request(0, b"a", b"b")
    yield "sequence 2", request(2, b"c")
    yield "sequence 0 again", request(0, b"a", b"b")
    yield "sequence 2 again", request(2, b"c")
    yield "sequence 2 again, but longer", request(2, b"c", b"d")
    yield "sequence 1, which overlaps", request(1, b"c")
    yield "a gap", request(9, b"z")
    yield "sequence 3", request(3, b"z")
    yield "an older epoch", request(4, b"z", epoch=-1)
    yield "a newer epoch, not from 0", request(4, b"z", epoch=3)
    yield "a newer epoch", request(0, b"z", epoch=3)
    yield "the epoch before", request(4, b"z", epoch=2)
    for sequence in range(1, 7):
        yield f"sequence {sequence} of the new epoch", request(sequence, b"z", epoch=3)
    yield "the fifth latest batch again", request(2, b"z", epoch=3)
    yield "the sixth latest batch again", request(1, b"z", epoch=3)
    yield "an unknown producer from the middle", request(77, b"z", producer_id=pid + 100)
    yield "the end of all sequences", request(2**31 - 2, b"z", b"y", producer_id=pid + 200)
    yield "the beginning after it", request(0, b"x", producer_id=pid + 200)
    yield "over the end", request(2**31 - 1, b"x", b"y", b"z", producer_id=pid + 300)
    yield "after it", request(2, b"w", producer_id=pid + 300)


# ---- fetch and offsets


def read_request(
    harness: WireHarness,
    version: int,
    what: Iterable[tuple[str, int] | tuple[str, int, int]],
    *,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_bytes: int = 1_000_000,
    epoch: int = -1,
    last_epoch: int = -1,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[str] = (),
    replica: int = -1,
) -> fe.FetchRequest:
    topics: dict[str, list[fe.FetchPartition]] = {}
    for topic, index, *offset in what:
        asked = fe.FetchPartition(index, epoch, offset[0] if offset else 0, last_epoch, -1, partition_bytes)
        topics.setdefault(topic, []).append(asked)

    def named(name: str) -> tuple[str, Uuid]:
        return (name, ZERO_UUID) if version < 13 else ("", harness.topic_ids.get(name, UNKNOWN_ID))

    rows = [fe.FetchTopic(*named(name), partitions) for name, partitions in topics.items()]
    request = fe.FetchRequest(
        max_wait_ms=0, min_bytes=min_bytes, max_bytes=max_bytes, isolation_level=isolation, topics=rows
    )
    if version >= 15:
        request.replica_state = fe.ReplicaState(replica, -1)
    else:
        request.replica_id = replica
    if version >= 7:
        request.session_id, request.session_epoch = session
        request.forgotten_topics_data = [fe.ForgottenTopic(*named(name), [0]) for name in forgotten]
    return request


def fetch(harness: WireHarness, version: int) -> Scenario:
    request = partial(read_request, harness, version)
    if version == API_BY_KEY[ApiKey.FETCH].min_version:
        for count in (3, 1, 5):
            yield (
                f"{count} records to read",
                produce_request(
                    harness, 9, [("many", 0, batch(*[b"v" * 30] * count)), ("many", 2, batch(*[b"w" * 30] * count))]
                ),
            )
    yield "from the start", request([("many", 0), ("many", 1), ("many", 2)])
    yield "from the middle of a batch", request([("many", 0, 1)])
    yield "at the end", request([("many", 0, 9)])
    yield "beyond the end", request([("many", 0, 1000)])
    yield "offset -1", request([("many", 0, -1)])
    yield "one byte at most", request([("many", 0), ("many", 2)], max_bytes=1)
    yield "one byte of each partition", request([("many", 0), ("many", 2)], partition_bytes=1)
    yield "150 bytes of each partition", request([("many", 0), ("many", 2)], partition_bytes=150)
    yield "no bytes", request([("many", 0)], max_bytes=0, partition_bytes=0)
    yield "negative bytes", request([("many", 0)], max_bytes=-1, partition_bytes=-1)
    yield "read_committed", request([("many", 0)], isolation=1)
    yield "an unknown isolation level", request([("many", 0)], isolation=7)
    yield "an unknown partition", request([("many", 90), ("many", 0, 8)])
    yield "an unknown topic", request([("no-such-topic", 0), ("many", 0, 8)])
    yield "leader epoch 0", request([("many", 0)], epoch=0)
    yield "a later leader epoch", request([("many", 0)], epoch=9)
    if version >= 12:
        yield "last fetched epoch 0", request([("many", 0)], last_epoch=0)
        yield "last fetched epoch 9", request([("many", 0)], last_epoch=9)
    yield "as replica 1", request([("many", 0)], replica=1)
    yield "as replica 9", request([("many", 0)], replica=9)
    yield "as replica -2", request([("many", 0)], replica=-2)
    yield "as replica -3", request([("many", 0)], replica=-3)
    yield "nothing", request([])
    yield "zstd", request([("to-zstd", 0)])
    yield "a partition twice", request([("many", 0, 8), ("many", 0, 8)])
    if version >= 7:
        yield from fetch_sessions(harness, version)


def fetch_sessions(harness: WireHarness, version: int) -> Scenario:
    request = partial(read_request, harness, version)
    yield "an unknown session", request([("many", 0)], session=(77, 1))
    yield "an unknown session to close", request([("many", 0, 8)], session=(77, -1))
    yield "session 0, epoch 5", request([("many", 0, 8)], session=(0, 5))
    answer = yield "a new session", request([("many", 0, 8), ("many", 1), ("no-such-topic", 0)], session=(0, 0))
    number = answer.session_id if isinstance(answer, fe.FetchResponse) else 0
    yield "an incremental fetch without new records", request([], session=(number, 1))
    yield "the offset moves", request([("many", 0, 9)], session=(number, 2))
    yield "the epoch again", request([], session=(number, 2))
    yield "a partition is forgotten", request([], session=(number, 3), forgotten=["many"])
    yield "a partition is added again", request([("many", 0, 8)], session=(number, 4))
    yield (
        "the other topic identifier",
        read_request(harness, 12 if version > 12 else 13, [], session=(number, 5)) if version > 6 else request([]),
    )
    yield "closed", request([], session=(number, -1))
    yield "gone", request([], session=(number, 5))
    answer = yield "a session of nothing", request([], session=(0, 0))


def list_offsets(harness: WireHarness, version: int) -> Scenario:
    def request(*asked: tuple[str, int, int], epoch: int = -1, isolation: int = 0, replica: int = -1) -> Message:
        topics: dict[str, list[lo.ListOffsetsPartition]] = {}
        for topic, index, timestamp in asked:
            topics.setdefault(topic, []).append(
                lo.ListOffsetsPartition(index, epoch if version >= 4 else -1, timestamp)
            )
        rows = [lo.ListOffsetsTopic(*row) for row in topics.items()]
        return lo.ListOffsetsRequest(replica, isolation if version >= 2 else 0, rows)

    for timestamp in (*range(-8, 2), now() - 1, now(), now() + 2, now() + 3, now() + 10**6):
        at = timestamp if timestamp < 2 else f"now {timestamp - now():+}"
        yield f"timestamp {at}", request(("many", 0, timestamp))
        yield f"timestamp {at}, empty partition", request(("many", 1, timestamp))
    yield "read_committed", request(("many", 0, -1), isolation=1)
    yield "unknown ones", request(("many", 90, -1), ("no-such-topic", 0, -1), ("many", 0, -1))
    yield "twice", request(("many", 0, -1), ("many", 0, -2))
    yield "leader epoch 0", request(("many", 0, -1), epoch=0)
    yield "leader epoch 9", request(("many", 0, -1), epoch=9)
    yield "as replica 1", request(("many", 0, -1), replica=1)
    yield "as replica 9", request(("many", 0, -1), replica=9)
    yield "as replica -2", request(("many", 0, -1), replica=-2)
    yield "nothing", request()
    yield "a compressed log", request(("to-gzip", 0, now() + 1))
    yield "a compressed log's greatest", request(("to-gzip", 0, -3))


def offset_for_leader_epoch(harness: WireHarness, version: int) -> Scenario:
    def request(*asked: tuple[str, int, int], current: int = -1, replica: int = -1) -> Message:
        topics = [
            ofe.OffsetForLeaderTopic(topic, [ofe.OffsetForLeaderPartition(index, current, epoch)])
            for topic, index, epoch in asked
        ]
        return ofe.OffsetForLeaderEpochRequest(replica if version >= 3 else -2, topics)

    for epoch in (-1, 0, 1, 9, -2):
        yield f"epoch {epoch}", request(("many", 0, epoch))
    yield "an empty partition", request(("many", 1, 0))
    yield "unknown ones", request(("many", 90, 0), ("no-such-topic", 0, 0))
    yield "current epoch 0", request(("many", 0, 0), current=0)
    yield "current epoch 9", request(("many", 0, 0), current=9)
    yield "as replica 1", request(("many", 0, 0), replica=1)
    yield "nothing", request()


def delete_records(harness: WireHarness, version: int) -> Scenario:
    def request(*asked: tuple[str, int, int]) -> Message:
        topics = [
            dr.DeleteRecordsTopic(topic, [dr.DeleteRecordsPartition(index, offset)]) for topic, index, offset in asked
        ]
        return dr.DeleteRecordsRequest(topics, WAIT_MS)

    at = version + 1
    yield "some", request(("plain", 0, at))
    yield "the same again", request(("plain", 0, at))
    yield "less", request(("plain", 0, 0))
    yield "beyond the end", request(("plain", 0, 10**6))
    yield "offset -2", request(("plain", 0, -2))
    yield "unknown ones", request(("plain", 400, 0), ("no-such-topic", 0, 0), ("many", 0, 0))
    yield "an empty partition", request(("many", 1, -1))
    yield "a compacted topic", request(("compacted", 0, 1))
    yield "an internal topic", request(("__consumer_offsets", 0, 0))
    yield "nothing", request()
    yield "a fetch below the log start", read_request(harness, 12, [("plain", 0, 0)])
    yield "all", request(("plain", 1, -1))
    yield "a fetch after all", read_request(harness, 12, [("plain", 1, 0)])


def init_producer_id(harness: WireHarness, version: int) -> Scenario:
    def request(txn: str | None = None, timeout: int = 60_000, producer: tuple[int, int] = (-1, -1)) -> Message:
        asked = ip.InitProducerIdRequest(txn, timeout)
        if version >= 3:
            asked.producer_id, asked.producer_epoch = producer
        return asked

    yield "new", request()
    yield "another", request()
    yield "no timeout", request(timeout=0)
    yield "a timeout of -1", request(timeout=-1)
    if version >= 3:
        yield "an id without epoch", request(producer=(5, -1))
        yield "an epoch without id", request(producer=(-1, 5))
        yield "id and epoch", request(producer=(5, 5))
        yield "the last epoch", request(producer=(5, 32767))
    yield "an empty transactional id", request("")
    yield from transaction_cases.init_producer_id(harness, version)


# ---- metadata and topics


def metadata(harness: WireHarness, version: int) -> Scenario:
    def request(
        *names: str | None, ids: Sequence[Uuid] = (), create: bool = False, everything: bool = False, ops: bool = False
    ) -> Message:
        rows = [md.MetadataRequestTopic(ZERO_UUID, name) for name in names]
        rows += [md.MetadataRequestTopic(each, None if version >= 10 else "") for each in ids]
        asked = md.MetadataRequest(None if everything else rows)
        if version >= 4:
            asked.allow_auto_topic_creation = create
        if version >= 8:
            asked.include_topic_authorized_operations = ops
            asked.include_cluster_authorized_operations = ops and version <= 10
        return asked

    yield "one", request("many")
    yield "one twice", request("many", "many")
    if version:
        yield "none", request()
    if version >= 4:
        yield "unknown ones", request("no-such-topic", "many", "../x", "", ".", "..", "x" * 250)
        yield "an internal one", request("__transaction_state")
    if version >= 4:
        yield "an invalid one to create", request("a b", "../y", create=True)
        yield "one to create", request(f"auto-{version}", create=True)
    yield "operations", request("many", ops=True)
    if version >= 10:
        yield "by id", request(ids=[harness.topic_ids["many"]])
        yield "by an unknown id", request(ids=[UNKNOWN_ID])
        yield "by id and by name", request("many", ids=[harness.topic_ids["many"]])
        yield "neither name nor id", request(ids=[ZERO_UUID])


def create_topics(harness: WireHarness, version: int) -> Scenario:
    def request(*topics: ct.CreatableTopic, validate_only: bool = False) -> Message:
        return ct.CreateTopicsRequest(list(topics), WAIT_MS, validate_only)

    def topic(
        name: str, count: int = 1, factor: int = 1, assigned: Sequence[Sequence[int]] = (), /, **configs: str | None
    ) -> ct.CreatableTopic:
        rows = [ct.CreatableReplicaAssignment(index, list(brokers)) for index, brokers in enumerate(assigned)]
        settings = [ct.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        return ct.CreatableTopic(name, count, factor, rows, settings)

    new = f"new-{version}"
    yield "validate only", request(topic(new, 3), validate_only=True)
    yield "new", request(topic(new, 3))
    yield "an existing topic", request(topic(new, 3))
    yield "an existing topic, validate only", request(topic(new, 3), validate_only=True)
    yield (
        "twice in one request",
        request(topic(f"twice-{version}"), topic(f"twice-{version}"), topic(f"once-{version}")),
    )
    for name in ("", ".", "..", "a/b", "a b", "x" * 249, "x" * 250, "__cluster_metadata", "ü"):
        yield f"named {name[:20]!r} {len(name)}", request(topic(name), validate_only=True)
    yield "a name that collides", request(topic("a_b-c"), validate_only=True)
    for count in (0, -1, -2, 10_001):
        yield f"{count} partitions", request(topic("v", count), validate_only=True)
    for factor in (0, -1, -2, 2):
        yield f"{factor} replicas", request(topic("v", 1, factor), validate_only=True)
    yield "assigned", request(topic("v", -1, -1, [[1], [1]]), validate_only=True)
    yield "assigned and counted", request(topic("v", 2, 1, [[1], [1]]), validate_only=True)
    yield "assigned, and a factor", request(topic("v", -1, 1, [[1]]), validate_only=True)
    yield "assigned to no broker", request(topic("v", -1, -1, [[]]), validate_only=True)
    yield "assigned to an unknown broker", request(topic("v", -1, -1, [[9]]), validate_only=True)
    yield "assigned to a negative broker", request(topic("v", -1, -1, [[-1]]), validate_only=True)
    yield "assigned twice to a broker", request(topic("v", -1, -1, [[1, 1]]), validate_only=True)
    yield "assigned unevenly", request(topic("v", -1, -1, [[1], []]), validate_only=True)
    gap = topic("v", -1, -1, [[1]])
    gap.assignments[0].partition_index = 1
    yield "assigned from 1 on", request(gap, validate_only=True)
    double = topic("v", -1, -1, [[1], [1]])
    double.assignments[1].partition_index = 0
    yield "assigned a partition twice", request(double, validate_only=True)
    yield "configured", request(topic(f"configured-{version}", retention_ms="1000", cleanup_policy="compact,delete"))
    yield "an unknown config", request(topic("v", no_such_key="1"), validate_only=True)
    yield "a bad config", request(topic("v", retention_ms="x"), validate_only=True)
    yield "a config out of bounds", request(topic("v", segment_bytes="1"), validate_only=True)
    yield "a null config", request(topic("v", retention_ms=None), validate_only=True)
    yield "a config with spaces", request(topic("v", retention_ms=" 5 "), validate_only=True)
    yield (
        "conflicting configs",
        request(topic("v", min_compaction_lag_ms="9", max_compaction_lag_ms="3"), validate_only=True),
    )
    yield "two policies, one bad", request(topic("v", cleanup_policy="delete,shrink"), validate_only=True)
    twice = topic("v", retention_ms="1")
    twice.configs.append(ct.CreatableTopicConfig("retention.ms", "2"))
    yield "a config twice", request(twice, validate_only=True)
    yield "nothing", request()
    yield from mutation_quota_cases.create_topics_above_quota(harness, version)


def delete_topics(harness: WireHarness, version: int) -> Scenario:
    def request(*names: str, ids: Sequence[Uuid] = ()) -> Message:
        if version < 6:
            return dt.DeleteTopicsRequest(topic_names=list(names), timeout_ms=WAIT_MS)
        rows = [dt.DeleteTopicState(name, ZERO_UUID) for name in names]
        return dt.DeleteTopicsRequest([*rows, *(dt.DeleteTopicState(None, each) for each in ids)], timeout_ms=WAIT_MS)

    yield "one", request(f"new-{version + 1}")
    yield "a deleted topic", request(f"new-{version + 1}")
    yield "unknown ones", request("no-such-topic", "../x", "")
    yield "twice in one request", request("once-2", "once-2")
    yield "nothing", request()
    yield from mutation_quota_cases.delete_topics_above_quota(harness, version)
    if version >= 6:
        yield "by an unknown id", request(ids=[UNKNOWN_ID])
        yield "by id and name", request("many", ids=[harness.topic_ids["many"]])
        yield "by no id", request(ids=[ZERO_UUID])
        yield "by an id twice", request(ids=[harness.topic_ids["two-replicas"], harness.topic_ids["two-replicas"]])
        both = dt.DeleteTopicsRequest([dt.DeleteTopicState("plain", harness.topic_ids["plain"])], timeout_ms=WAIT_MS)
        yield "name and id in one row", both
        yield "by id", request(ids=[harness.topic_ids["two-replicas"]])
        harness.wait_gone("two-replicas")
        yield "produce after the deletion", produce_request(harness, 13, [("two-replicas", 0, batch())])
        yield "fetch by id after the deletion", read_request(harness, 13, [("two-replicas", 0)])
        yield "fetch by name after the deletion", read_request(harness, 12, [("two-replicas", 0)])


def create_partitions(harness: WireHarness, version: int) -> Scenario:
    def request(
        name: str, count: int, assigned: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> Message:
        rows = None if assigned is None else [cp.CreatePartitionsAssignment(list(each)) for each in assigned]
        return cp.CreatePartitionsRequest([cp.CreatePartitionsTopic(name, count, rows)], WAIT_MS, validate_only)

    at = 5 + version
    for count in (0, -1, 3, 2, 10_002):
        yield f"to {count}", request("many", count, validate_only=True)
    yield "validate only", request("many", at, validate_only=True)
    yield "an unknown one", request("no-such-topic", 2)
    yield "assigned", request("many", at, [[1]] * (1 if version else 2))
    yield "assigned too few", request("many", at + 5, [[1]])
    yield "assigned to an unknown broker", request("many", at + 1, [[9]])
    yield "assigned two replicas", request("many", at + 1, [[1, 2]])
    yield "assigned none", request("many", at + 1, [[]])
    yield "no assignments", request("many", at + 1, [])
    again = cp.CreatePartitionsTopic("many", at + 9, None)
    yield "twice", cp.CreatePartitionsRequest([again, again], WAIT_MS, False)
    yield "nothing", cp.CreatePartitionsRequest([], WAIT_MS, False)
    yield from mutation_quota_cases.create_partitions_above_quota(harness, version)


def describe_topic_partitions(harness: WireHarness, version: int) -> Scenario:
    def request(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Message:
        at = None if cursor is None else dtp.DescribeTopicPartitionsRequestCursor(*cursor)
        return dtp.DescribeTopicPartitionsRequest([dtp.TopicRequest(name) for name in names], limit, at)

    yield "one", request("many")
    yield "several", request("plain", "many", "compacted")
    yield "one twice", request("many", "many")
    yield "an unknown one", request("no-such-topic")
    yield "an internal unknown one", request("__transaction_state")
    yield "an invalid one", request("../x")
    yield "no name", request("")
    yield "two at most", request("many", "compacted", limit=2)
    yield "from a cursor", request("many", "compacted", limit=2, cursor=("many", 2))
    yield "from a cursor beyond", request("many", cursor=("many", 900))
    yield "from a cursor of another topic", request("many", "compacted", cursor=("nothing", 0))
    yield "from a negative cursor", request("many", cursor=("many", -1))
    yield "limit 0", request("many", limit=0)
    yield "limit -1", request("many", limit=-1)


# ---- configs


def describe_configs(harness: WireHarness, version: int) -> Scenario:
    def request(kind: int, name: str, keys: Sequence[str] | None = None, synonyms: bool = True) -> Message:
        asked = dc.DescribeConfigsRequest(
            [dc.DescribeConfigsResource(kind, name, None if keys is None else list(keys))], synonyms
        )
        if version >= 3:
            asked.include_documentation = True
        return asked

    yield "a topic", request(2, "compacted")
    yield "some keys", request(2, "compacted", ["cleanup.policy", "no.such.key"])
    yield "no keys", request(2, "compacted", [])
    yield "without synonyms", request(2, "compacted", ["cleanup.policy", "retention.ms"], synonyms=False)
    yield "an unknown topic", request(2, "no-such-topic")
    yield "an invalid topic", request(2, "../x")
    yield "no topic", request(2, "")
    yield "another broker", request(4, "9")
    yield "an invalid broker id", request(4, "x")
    yield "all brokers", request(4, "")
    yield "loggers of another broker", request(8, "9")
    yield "an unknown resource type", request(77, "x")
    yield "kind 0", request(0, "x")
    yield "client metrics", request(16, "x")
    yield "client metrics without a name", request(16, "")
    yield "a group", request(32, "some-group")
    yield "no group", request(32, "")
    yield "nothing", dc.DescribeConfigsRequest()
    yield "twice", dc.DescribeConfigsRequest([dc.DescribeConfigsResource(2, "small", ["retention.ms"])] * 2)


def alter_configs(harness: WireHarness, version: int) -> Scenario:
    def request(kind: int, name: str, *configs: tuple[str, str | None], validate_only: bool = False) -> Message:
        rows = [ac.AlterableConfig(*each) for each in configs]
        return ac.AlterConfigsRequest([ac.AlterConfigsResource(kind, name, rows)], validate_only)

    yield "a topic", request(2, "small", ("max.message.bytes", "200"), ("retention.ms", "99999"))
    yield "validate only", request(2, "small", ("retention.ms", "1"), validate_only=True)
    yield "an unknown key", request(2, "small", ("no.such.key", "1"))
    yield "a bad value", request(2, "small", ("retention.ms", "x"))
    yield "a null value", request(2, "small", ("retention.ms", None))
    yield "a key twice", request(2, "small", ("retention.ms", "1"), ("retention.ms", "2"))
    yield "an unknown topic", request(2, "no-such-topic", ("retention.ms", "1"))
    yield "an invalid topic", request(2, "../x", ("retention.ms", "1"))
    yield "no topic", request(2, "", ("retention.ms", "1"))
    yield "another broker", request(4, "9", ("log.retention.ms", "1"))
    yield "a read-only key", request(4, "1", ("log.dirs", "/x"))
    yield "a broker", request(4, "1", ("log.cleaner.threads", "1"))
    yield "all brokers", request(4, "", ("log.cleaner.threads", "1"))
    yield "a logger", request(8, "1", ("root", "INFO"))
    yield "an unknown resource type", request(77, "x", ("a", "b"))
    yield "kind 0", request(0, "x", ("a", "b"))
    yield "a group", request(32, "some-group", ("consumer.session.timeout.ms", "45000"))
    yield "a group with a bad value", request(32, "some-group", ("consumer.session.timeout.ms", "1"))
    yield "client metrics", request(16, "m", ("interval.ms", "5000"))
    yield "nothing", ac.AlterConfigsRequest()
    harness.settle()
    yield "configs afterwards", dc.DescribeConfigsRequest([dc.DescribeConfigsResource(2, "small", None)])


def incremental_alter_configs(harness: WireHarness, version: int) -> Scenario:
    def request(kind: int, name: str, *configs: tuple[str, int, str | None], validate_only: bool = False) -> Message:
        rows = [iac.AlterableConfig(*each) for each in configs]
        return iac.IncrementalAlterConfigsRequest([iac.AlterConfigsResource(kind, name, rows)], validate_only)

    yield "set", request(2, "small", ("max.message.bytes", 0, "200"), ("retention.ms", 0, "99999"))
    yield "delete", request(2, "small", ("retention.ms", 1, None))
    yield "delete an unset key", request(2, "small", ("retention.ms", 1, None))
    yield "append", request(2, "small", ("cleanup.policy", 2, "compact"))
    yield "append again", request(2, "small", ("cleanup.policy", 2, "compact"))
    yield "subtract", request(2, "small", ("cleanup.policy", 3, "compact"))
    yield "subtract a missing value", request(2, "small", ("cleanup.policy", 3, "compact"))
    yield "append to a key that is not a list", request(2, "small", ("retention.ms", 2, "1"))
    yield "an unknown operation", request(2, "small", ("retention.ms", 9, "1"))
    yield "validate only", request(2, "small", ("retention.ms", 0, "1"), validate_only=True)
    yield "an unknown key", request(2, "small", ("no.such.key", 0, "1"))
    yield "an unknown key to delete", request(2, "small", ("no.such.key", 1, None))
    yield "a bad value", request(2, "small", ("retention.ms", 0, "x"))
    yield "a null value", request(2, "small", ("retention.ms", 0, None))
    yield "a key twice", request(2, "small", ("retention.ms", 0, "1"), ("retention.ms", 0, "2"))
    yield "an unknown topic", request(2, "no-such-topic", ("retention.ms", 0, "1"))
    yield "an invalid topic", request(2, "../x", ("retention.ms", 0, "1"))
    yield "another broker", request(4, "9", ("log.retention.ms", 0, "1"))
    yield "a read-only key", request(4, "1", ("log.dirs", 0, "/x"))
    yield "a bad logger", request(8, "1", ("no.such.logger", 0, "INFO"))
    yield "a bad level", request(8, "1", ("root", 0, "LOUD"))
    yield "append to a logger", request(8, "1", ("root", 2, "INFO"))
    yield "an unknown resource type", request(77, "x", ("a", 0, "b"))
    yield (
        "conflicting configs",
        request(2, "small", ("min.compaction.lag.ms", 0, "9"), ("max.compaction.lag.ms", 0, "3")),
    )
    yield "nothing", iac.IncrementalAlterConfigsRequest()
    harness.settle()
    yield "configs afterwards", dc.DescribeConfigsRequest([dc.DescribeConfigsResource(2, "small", None)])


def list_config_resources(harness: WireHarness, version: int) -> Scenario:
    for kinds in ([], [2], [4], [8], [16], [32], [77], [0], [2, 2], [16, 32]) if version else ([],):
        yield f"kinds {kinds}", lcr.ListConfigResourcesRequest(list(kinds))


# ---- the cluster


def api_versions(harness: WireHarness, version: int) -> Scenario:
    def request(name: str, software: str) -> Message:
        return av.ApiVersionsRequest(name, software) if version >= 3 else av.ApiVersionsRequest()

    yield "asked", request("wire", "1.0")
    if version >= 3:
        yield "no name", request("", "1.0")
        yield "no version", request("wire", "")
        yield "a bad name", request("wi re", "1.0")
        yield "a name with a bad last character", request("wire-", "1.0")


def describe_cluster(harness: WireHarness, version: int) -> Scenario:
    for operations in (False, True):
        asked = dcl.DescribeClusterRequest(operations)
        yield f"operations {operations}", asked
    if version >= 1:
        yield "controllers", dcl.DescribeClusterRequest(False, 2)
        yield "an unknown endpoint type", dcl.DescribeClusterRequest(False, 7)
    if version >= 2:
        yield "fenced brokers included", dcl.DescribeClusterRequest(False, 1, True)


def describe_log_dirs(harness: WireHarness, version: int) -> Scenario:
    yield "some", dld.DescribeLogDirsRequest([dld.DescribableLogDirTopic("many", [0, 1])])
    yield (
        "unknown ones",
        dld.DescribeLogDirsRequest(
            [dld.DescribableLogDirTopic("no-such-topic", [0]), dld.DescribableLogDirTopic("many", [90])]
        ),
    )
    yield "none", dld.DescribeLogDirsRequest([])


def describe_producers(harness: WireHarness, version: int) -> Scenario:
    yield "some", dp.DescribeProducersRequest([dp.TopicRequest("plain", [38])])
    yield (
        "unknown ones",
        dp.DescribeProducersRequest([dp.TopicRequest("no-such-topic", [0]), dp.TopicRequest("many", [90])]),
    )
    yield "none there", dp.DescribeProducersRequest([dp.TopicRequest("many", [1])])
    yield "an invalid topic", dp.DescribeProducersRequest([dp.TopicRequest("../x", [0])])
    yield "nothing", dp.DescribeProducersRequest([])


# ---- groups


def find_coordinator(harness: WireHarness, version: int) -> Scenario:
    for kind in (0, 1, 2, 9) if version else (0,):
        for key in ("some-group", ""):
            asked = (
                fc.FindCoordinatorRequest(key, kind) if version < 4 else fc.FindCoordinatorRequest("", kind, [key, key])
            )
            yield f"kind {kind} of {key!r}", asked


def join_group(harness: WireHarness, version: int) -> Scenario:
    def request(
        group: str, member: str = "", session: int = 30_000, kind: str = "consumer", names: Sequence[str] = ("range",)
    ) -> Message:
        rows = [jg.JoinGroupRequestProtocol(name, b"\x00") for name in names]
        return jg.JoinGroupRequest(group, session, 60_000 if version else -1, member, None, kind, rows)

    yield "no group", request("")
    yield "an unknown member", request("joined", "nobody")
    yield "too short a session", request("joined", session=1)
    yield "too long a session", request("joined", session=10**9)
    yield "no protocols", request("joined", names=())
    yield "no protocol type", request("joined", kind="")


def heartbeat(harness: WireHarness, version: int) -> Scenario:
    for group in ("", "no-such-group"):
        for member in ("", "nobody"):
            yield f"{group!r} {member!r}", hb.HeartbeatRequest(group, 1, member)


def leave_group(harness: WireHarness, version: int) -> Scenario:
    for group in ("", "no-such-group"):
        if version < 3:
            yield f"{group!r}", lv.LeaveGroupRequest(group, "nobody")
        else:
            yield (
                f"{group!r}",
                lv.LeaveGroupRequest(group, "", [lv.MemberIdentity("nobody"), lv.MemberIdentity("", "static")]),
            )


def sync_group(harness: WireHarness, version: int) -> Scenario:
    for group in ("", "no-such-group"):
        yield (
            f"{group!r}",
            sg.SyncGroupRequest(group, 1, "nobody", None, *(("consumer", "range") if version >= 5 else ())),
        )
        if version >= 5:
            yield f"{group!r} without protocol", sg.SyncGroupRequest(group, 1, "nobody")


def describe_groups(harness: WireHarness, version: int) -> Scenario:
    for group in ("", "no-such-group"):
        yield f"{group!r}", dgr.DescribeGroupsRequest([group, group])
    if version >= 3:
        yield "operations", dgr.DescribeGroupsRequest(["no-such-group"], True)


def list_groups(harness: WireHarness, version: int) -> Scenario:
    yield "all", lg.ListGroupsRequest()
    if version >= 4:
        yield "by state", lg.ListGroupsRequest(["empty", "no-such-state"])
    if version >= 5:
        yield "by type", lg.ListGroupsRequest([], ["classic", "no-such-type"])


def offset_commit(harness: WireHarness, version: int) -> Scenario:
    def request(group: str, *topics: str, member: str = "", generation: int = -1, note: str = "note") -> Message:
        by_id = version >= 10
        rows = [
            oc.OffsetCommitRequestTopic(
                "" if by_id else topic,
                harness.topic_ids.get(topic, UNKNOWN_ID) if by_id else ZERO_UUID,
                [oc.OffsetCommitRequestPartition(index, 5, -1, note) for index in (0, 77)],
            )
            for topic in topics
        ]
        return oc.OffsetCommitRequest(group, generation, member, topics=rows)

    yield "some", request("committed", "many", "no-such-topic")
    yield "no group", request("", "many")
    yield "a generation", request("committed", "many", generation=3)
    yield "a member", request("committed", "many", member="nobody", generation=1)
    yield "long notes", request("committed", "many", note="x" * 5000)
    yield "nothing", request("committed")


def offset_fetch(harness: WireHarness, version: int) -> Scenario:
    by_id = version >= 10

    def request(group: str, *topics: str, everything: bool = False) -> Message:
        if version < 8:
            rows = None if everything else [of.OffsetFetchRequestTopic(topic, [0, 1, 77]) for topic in topics]
            return of.OffsetFetchRequest(group, rows)
        many = [
            of.OffsetFetchRequestTopics(
                "" if by_id else topic, harness.topic_ids.get(topic, UNKNOWN_ID) if by_id else ZERO_UUID, [0, 1, 77]
            )
            for topic in topics
        ]
        return of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group, topics=None if everything else many)])

    for group in ("committed", "no-such-group", ""):
        yield f"{group!r}", request(group, "many", "no-such-topic")
        if version >= 2:
            yield f"{group!r}, everything", request(group, everything=True)
        yield f"{group!r}, nothing", request(group)


def offset_delete(harness: WireHarness, version: int) -> Scenario:
    rows = [od.OffsetDeleteRequestPartition(0), od.OffsetDeleteRequestPartition(77)]
    topics = [od.OffsetDeleteRequestTopic("many", rows), od.OffsetDeleteRequestTopic("no-such-topic", rows)]
    for group in ("committed", "no-such-group", ""):
        yield f"{group!r}", od.OffsetDeleteRequest(group, topics)


def delete_groups(harness: WireHarness, version: int) -> Scenario:
    yield "some", dg.DeleteGroupsRequest(["no-such-group", "", "committed"])
    yield "some again", dg.DeleteGroupsRequest(["committed", "committed"])


SCENARIOS: Mapping[ApiKey, Callable[[WireHarness, int], Scenario]] = {
    ApiKey.API_VERSIONS: api_versions,
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.METADATA: metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.DELETE_TOPICS: delete_topics,
    **with_conversations(
        {
            ApiKey.JOIN_GROUP: join_group,
            ApiKey.HEARTBEAT: heartbeat,
            ApiKey.LEAVE_GROUP: leave_group,
            ApiKey.SYNC_GROUP: sync_group,
        }
    ),
    **CONSUMER_SCENARIOS,
    **TRANSACTION_SCENARIOS,
    **ADMIN_SCENARIOS,
    **STREAMS_SCENARIOS,
    **SHARE_SCENARIOS,
}
