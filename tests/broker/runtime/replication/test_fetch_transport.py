"""Fetches of followers over a real connection, to leaders of several versions."""

import asyncio
from typing import TypeVar

from broker.net.peer import SocketAddress, TcpConnect
from broker.replication.fetch_plan import FetcherSettings, Sender, fetch_request
from broker.runtime.replication.fetch_transport import NetworkFetchTransport, Unanswered
from protocol.api_keys import ApiKey
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from protocol.primitives import Uuid
from tests.support.fakes.fake_broker import FakeBroker

TOPIC = Uuid(b"t" * 16)
T = TypeVar("T")


def request() -> FetchRequest:
    return fetch_request(
        Sender(BrokerId(9), BrokerEpoch(77)), FetcherSettings(), [], session_id=3, session_epoch=4, wait_ms=500
    )


def answer(_request: object) -> FetchResponse:
    partition = PartitionData(0, high_watermark=4, records=b"x" * 100_000)
    return FetchResponse(session_id=3, responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=[partition])])


async def fetch(broker: FakeBroker) -> FetchResponse | Unanswered:
    loop = asyncio.get_running_loop()
    transport = NetworkFetchTransport(loop, TcpConnect(loop), timeout_ms=5_000, response_max_bytes=1_000_000)
    connection = transport.connect(SocketAddress("127.0.0.1", broker.port), "broker-9-fetcher-0")
    outcome: asyncio.Future[FetchResponse | Unanswered] = loop.create_future()
    connection.fetch(request(), outcome.set_result)
    result = await outcome
    connection.close()
    return result


async def test_records_are_a_view_of_the_receive_buffer() -> None:
    with FakeBroker() as broker:
        broker.answer(ApiKey.FETCH, answer)
        response = await fetch(broker)
    assert isinstance(response, FetchResponse)
    records = response.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"x" * 100_000


async def test_fetch_has_the_replica_id_and_broker_epoch() -> None:
    with FakeBroker() as broker:
        broker.answer(ApiKey.FETCH, answer)
        await fetch(broker)
    (received,) = (each for each in broker.requests if isinstance(each.request, FetchRequest))
    assert (received.header.api_version, received.header.client_id) == (17, "broker-9-fetcher-0")
    assert isinstance(received.request, FetchRequest)
    assert received.request.replica_state.replica_id == 9
    assert received.request.replica_state.replica_epoch == 77


async def test_fetch_is_adapted_to_an_older_leader() -> None:
    with FakeBroker() as broker:
        broker.answer(ApiKey.FETCH, answer, versions=(4, 14))
        await fetch(broker)
    (received,) = broker.received(FetchRequest)
    assert (received.replica_id, received.session_id, received.session_epoch) == (9, 3, 4)


async def test_leader_without_topic_ids_cannot_be_followed() -> None:
    with FakeBroker() as broker:
        broker.answer(ApiKey.FETCH, answer, versions=(4, 12))
        response = await fetch(broker)
    assert isinstance(response, Unanswered)
    assert "versions 4 to 12" in response.reason


async def test_list_offsets_uses_the_same_connection() -> None:
    loop = asyncio.get_running_loop()
    with FakeBroker() as broker:
        broker.answer(ApiKey.LIST_OFFSETS, lambda _: ListOffsetsResponse())
        transport = NetworkFetchTransport(loop, TcpConnect(loop), timeout_ms=5_000, response_max_bytes=1_000_000)
        connection = transport.connect(SocketAddress("127.0.0.1", broker.port), "broker-9-fetcher-0")
        outcome: asyncio.Future[ListOffsetsResponse | Unanswered] = loop.create_future()
        connection.list_offsets(ListOffsetsRequest(replica_id=9), outcome.set_result)
        assert isinstance(await outcome, ListOffsetsResponse)
        connection.close()


async def test_epoch_ends_use_the_same_connection_and_name_the_replica() -> None:
    loop = asyncio.get_running_loop()
    with FakeBroker() as broker:
        broker.answer(ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda _: OffsetForLeaderEpochResponse())
        transport = NetworkFetchTransport(loop, TcpConnect(loop), timeout_ms=5_000, response_max_bytes=1_000_000)
        connection = transport.connect(SocketAddress("127.0.0.1", broker.port), "broker-9-fetcher-0")
        outcome: asyncio.Future[OffsetForLeaderEpochResponse | Unanswered] = loop.create_future()
        connection.epoch_ends(OffsetForLeaderEpochRequest(replica_id=9), outcome.set_result)
        assert isinstance(await outcome, OffsetForLeaderEpochResponse)
        connection.close()
    (received,) = broker.received(OffsetForLeaderEpochRequest)
    assert received.replica_id == 9


async def test_closing_leaves_open_requests_unanswered() -> None:
    loop = asyncio.get_running_loop()
    with FakeBroker() as broker:
        broker.answer(ApiKey.FETCH, lambda _: None)
        transport = NetworkFetchTransport(loop, TcpConnect(loop), timeout_ms=5_000, response_max_bytes=1_000_000)
        connection = transport.connect(SocketAddress("127.0.0.1", broker.port), "broker-9-fetcher-0")
        outcome: asyncio.Future[FetchResponse | Unanswered] = loop.create_future()
        connection.fetch(request(), outcome.set_result)
        connection.close()
        assert isinstance(await outcome, Unanswered)
