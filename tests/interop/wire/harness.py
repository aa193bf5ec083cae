"""A raw connection to one broker: sends requests of any version and makes responses of two brokers comparable.

Values that must differ between two brokers (ids, addresses, clocks, message texts) are replaced by placeholders that
still show whether there was a value. Everything else is compared as received.
"""

import dataclasses
import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Mapping

from protocol.api_keys import response_class
from protocol.headers import decode_response, encode_request
from protocol.messages import Message
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.primitives import ZERO_UUID, Uuid
from protocol.records.batch import iter_headers
from protocol.records.reader import iter_records
from tests.interop.metadata_lag import MetadataLag

CLIENT_ID = "wire"
UNKNOWN_MEMBER_ID = 25
TIMEOUT_S = 60.0
CLOSED = "connection closed"
NO_ANSWER = "no answer"

Plain = object
"""A JSON value."""


class WireHarness:
    """A connection to one broker, re-opened after every close, and the topic ids of that broker."""

    def __init__(self, bootstrap: str, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        host, _, port = bootstrap.rpartition(":")
        self._address = (host, int(port))
        self._socket: socket.socket | None = None
        self._correlation = 0
        self.client_id = CLIENT_ID
        self.topic_ids: dict[str, Uuid] = {}
        self._bootstrap = bootstrap
        self._metadata_lag: MetadataLag | None = None

    def settle(self) -> None:
        """Wait until the broker has applied all changes made so far."""
        self._metadata_lag = self._metadata_lag or MetadataLag(self._bootstrap)
        self._metadata_lag.catch_up()

    def close(self) -> None:
        if self._metadata_lag is not None:
            self._metadata_lag.close()
        self._disconnect()

    def reconnect(self) -> None:
        """Use another connection from now on: the broker may have muted this one."""
        self._disconnect()

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, request: Message, version: int) -> Message | None:
        """Return the response, None if the broker closed the connection."""
        chunks = encode_request(request, version, self._next_correlation(), self.client_id)
        frame = self.exchange(b"".join(chunks))
        if frame is None:
            return None
        correlation, answer = decode_response(response_class(request.API_KEY), version, frame)
        assert correlation == self._correlation
        return answer

    def exchange(self, frame: bytes) -> bytes | None:
        """Send one frame and receive one; None if the broker closed the connection."""
        try:
            self._send(frame)
            return self._receive()
        except (ConnectionError, EOFError):
            self._disconnect()
            return None

    def send_silently(self, request: Message, version: int) -> str:
        """Send a request without a response. Return whether the connection stayed open."""
        self._send(b"".join(encode_request(request, version, self._next_correlation(), self.client_id)))
        after = self.call(ApiVersionsRequest(), 0)
        return CLOSED if after is None else NO_ANSWER

    def _next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation

    def _send(self, frame: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                self._socket = self._tls.wrap_socket(self._socket, server_hostname=self._address[0])
        self._socket.sendall(frame)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def warm_up(self) -> None:
        """Wait until producer ids and coordinators are available; the first request creates them."""
        coordinator = FindCoordinatorRequest(coordinator_keys=["some-group"])
        self._until_zero(lambda: self._error_of(InitProducerIdRequest(None, 60_000), 5))
        self._until_zero(lambda: self._error_of(coordinator, 5))
        self._until_zero(lambda: self._error_of(HeartbeatRequest("some-group", 1, "nobody"), 4) - UNKNOWN_MEMBER_ID)

    def _error_of(self, request: Message, version: int) -> int:
        answer = self.call(request, version)
        if isinstance(answer, FindCoordinatorResponse):
            return answer.coordinators[0].error_code
        assert isinstance(answer, InitProducerIdResponse | HeartbeatResponse)
        return answer.error_code

    def _until_zero(self, value: Callable[[], int]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while value():
            assert time.monotonic() < deadline, "the broker has not become ready"
            time.sleep(0.05)

    def create_topics(self, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
        """Create topics with these partition counts and configs, and wait until their partitions have leaders."""
        creatable = [
            CreatableTopic(name, count, 1, [], [CreatableTopicConfig(*config) for config in configs.items()])
            for name, (count, configs) in topics.items()
        ]
        answer = self.call(CreateTopicsRequest(creatable, 30_000), 7)
        assert isinstance(answer, CreateTopicsResponse)
        for topic in answer.topics:
            assert topic.error_code == 0, (topic.name, topic.error_code, topic.error_message)
            self.topic_ids[topic.name] = topic.topic_id
        wanted = ListOffsetsRequest(
            -1,
            0,
            [
                ListOffsetsTopic(name, [ListOffsetsPartition(index, -1, -1) for index in range(count)])
                for name, (count, _) in topics.items()
            ],
        )
        self._until_zero(lambda: not self._all_led(wanted))

    def _all_led(self, wanted: ListOffsetsRequest) -> bool:
        answer = self.call(wanted, 7)
        assert isinstance(answer, ListOffsetsResponse)
        return all(partition.error_code == 0 for topic in answer.topics for partition in topic.partitions)

    def wait_gone(self, name: str) -> None:
        """Wait until the broker no longer hosts partition 0 of the topic. Deletions are answered before."""
        asked = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, -1)])])
        self._until_zero(lambda: self._all_led(asked))

    def name_of(self, topic_id: bytes) -> str:
        if topic_id == ZERO_UUID:
            return "no id"
        return next((f"id of {name}" for name, known in self.topic_ids.items() if known == topic_id), "some id")


# ---- comparable responses

LEFT_OUT = frozenset({"throttle_time_ms", "cluster_id", "host", "port", "log_dir", "total_bytes", "usable_bytes"})
WORDS = frozenset(
    {"error_message", "acknowledge_error_message", "batch_index_error_message", "documentation", "status_detail"}
)
IDENTITIES = (
    *("api_key", "node_id", "resource_type", "resource_name", "topic_name", "name", "topic", "topic_id"),
    *("user", "feature", "entity_type", "entity_name", "entity"),
    *("group_id", "key", "partition_index", "partition", "index", "last_sequence", "producer_epoch", "process_id"),
    "token_requester_principal_name",
)
"""Fields that sort the items of a list, since brokers answer in the order of their hash tables."""

_MEMBER = re.compile(r"(.*-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def plain(harness: WireHarness, value: object, field: str = "") -> Plain:
    """Return a response as JSON, without values that differ between any two brokers."""
    if dataclasses.is_dataclass(value):
        named = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return {name: plain(harness, one, name) for name, one in named.items() if name not in LEFT_OUT}
    if isinstance(value, list):
        items = [plain(harness, one, field) for one in value]
        return sorted(items, key=_identity)
    if field in WORDS:
        return "some words" if value else value
    if field == "records":
        return None if value is None else _batches(value)
    if isinstance(value, bytes):
        return harness.name_of(value) if len(value) == 16 else value.hex()
    if isinstance(value, str) and _MEMBER.fullmatch(value):
        return "some member id"
    if isinstance(value, int) and (field in MASKED or value > EPOCH_MS):
        return f"some {field}" if value >= 0 else value
    return value


EPOCH_MS = 1_500_000_000_000
MASKED = frozenset({"session_id", "finalized_features_epoch", "last_timestamp", "producer_id"})


def _identity(item: Plain) -> list[str]:
    return [f"{item[name]!s:>6}" for name in IDENTITIES if name in item] if isinstance(item, dict) else []


def _batches(data: object) -> Plain:
    assert isinstance(data, bytes | memoryview)
    found = []
    for position, header in iter_headers(data):
        view = memoryview(data)[position : position + header.size]
        found.append(
            {
                "base_offset": header.base_offset,
                "leader_epoch": header.leader_epoch,
                "attributes": header.attributes,
                "last_offset_delta": header.last_offset_delta,
                "producer": [header.producer_id, header.producer_epoch, header.base_sequence],
                "records": [
                    [
                        record.offset,
                        "stamped" if header.attributes & 8 else record.timestamp,
                        str(record.key),
                        len(record.value or b""),
                    ]
                    for record in iter_records(view)
                ],
            }
        )
    return found


def differences(theirs: Plain, ours: Plain, path: str = "") -> Iterable[tuple[str, Plain, Plain]]:
    """Yield (path, theirs, ours) of every leaf that differs."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in {**theirs, **ours}:
            yield from differences(theirs.get(name), ours.get(name), f"{path}.{name}" if path else name)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(their, our, f"{path}[{index}]")
    elif theirs != ours:
        yield path, theirs, ours
