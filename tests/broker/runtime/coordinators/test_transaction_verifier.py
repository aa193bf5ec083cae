"""Questions to transaction coordinators over sockets (`broker.runtime.coordinators.transaction_verifier`)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import cast

import pytest
import pytest_asyncio

from broker.clock import SystemClock
from broker.coordination.partitioner import partition_for
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.net.peer import NetworkClient, TcpConnect
from broker.runtime.coordinators.transaction_guards import TransactionGuards
from broker.runtime.coordinators.transaction_verifier import (
    TRANSACTION_STATE_TOPIC,
    Errors,
    TransactionVerifier,
    VerifierSettings,
)
from broker.transactions.verification import Verification, VerificationMode
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    FenceBrokerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from protocol.primitives import Uuid
from tests.support.fakes.fake_broker import FakeBroker, HangUp
from tests.support.fakes.runtimes import make_runtime
from tests.support.fakes.transaction_coordinators import all_partitions

LISTENER, PARTITIONS = "INTERNAL", 4
T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def coordinator() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.answer(ApiKey.ADD_PARTITIONS_TO_TXN, lambda request: all_partitions(request, ErrorCode.NONE))
        yield broker


class VerifierHarness:
    """A verifier in a cluster in which broker 2 leads the partition of every transactional id."""

    def __init__(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        self.runtime = make_runtime(loop, clock=SystemClock())
        self.peers = NetworkClient(loop, TcpConnect(loop), client_id="1")
        self.image: MetadataImage = EMPTY_IMAGE
        identity = Uuid(b"s" * 16)
        self.apply(
            RegisterBrokerRecord(broker_id=2, end_points=[BrokerEndpoint(LISTENER, "127.0.0.1", port)], fenced=False),
            TopicRecord(TRANSACTION_STATE_TOPIC, identity),
            *(
                PartitionRecord(partition_id=index, topic_id=identity, replicas=[2], isr=[2], leader=2, leader_epoch=0)
                for index in range(PARTITIONS)
            ),
        )
        self.verifier = TransactionVerifier(
            self.runtime, self.peers, lambda: self.image, LISTENER, lambda: VerifierSettings(10_000, 1, 60_000)
        )

    def apply(self, *records: RegisterBrokerRecord | TopicRecord | PartitionRecord | FenceBrokerRecord) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(Provenance(self.image.offset + 1, LeaderEpoch(1), 0))

    async def verify(
        self, transactional_id: str = "a", mode: VerificationMode = VerificationMode.VERIFY, epoch: int = 0
    ) -> Errors:
        return await self.verifier.verify(Verification(transactional_id, 7, epoch, (T0, T1), mode))

    def close(self) -> None:
        self.peers.close()
        self.runtime.deadlines.close()


@pytest_asyncio.fixture
async def harness(coordinator: FakeBroker) -> AsyncIterator[VerifierHarness]:
    made = VerifierHarness(coordinator.port)
    yield made
    made.close()


async def test_questions_that_arrive_meanwhile_share_the_next_request(
    harness: VerifierHarness, coordinator: FakeBroker
) -> None:
    ids = ["a", "b", "c", "d"]
    assert {partition_for(one, PARTITIONS) for one in ids} == {0, 1, 2, 3}
    answers = await asyncio.gather(*(harness.verify(one) for one in ids))
    assert answers == [{}] * len(ids)
    requests = coordinator.received(AddPartitionsToTxnRequest)
    assert [[one.transactional_id for one in request.transactions] for request in requests] == [["a"], ["b", "c", "d"]]
    assert harness.verifier.figures.verifications == 4


class RenewedGuards:
    """Guards that are valid, and ask the same question again."""

    are_valid = True

    def __init__(self, question: Verification) -> None:
        self._question = question

    def take(self) -> Verification:
        return self._question


async def confirmed(harness: VerifierHarness, mode: VerificationMode) -> Errors:
    question = Verification("a", 7, 0, (T0, T1), mode)
    return await harness.verifier.confirm(cast(TransactionGuards, RenewedGuards(question)), question)


async def test_addition_is_repeated_until_the_former_transaction_is_over(
    harness: VerifierHarness, coordinator: FakeBroker
) -> None:
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    coordinator.answer(ApiKey.ADD_PARTITIONS_TO_TXN, lambda request: all_partitions(request, codes.pop(0)))
    assert await confirmed(harness, VerificationMode.ADD) == {}
    assert not codes
    codes.append(ErrorCode.CONCURRENT_TRANSACTIONS)
    refused = await confirmed(harness, VerificationMode.VERIFY)
    assert refused == dict.fromkeys((T0, T1), ErrorCode.CONCURRENT_TRANSACTIONS)
    assert harness.verifier.figures.failures == 6


async def test_lost_connection_fails_the_question_and_not_the_next_one(
    harness: VerifierHarness, coordinator: FakeBroker
) -> None:
    def hang_up(_: object) -> None:
        raise HangUp

    coordinator.answer(ApiKey.ADD_PARTITIONS_TO_TXN, hang_up)
    assert await harness.verify() == dict.fromkeys((T0, T1), ErrorCode.NETWORK_EXCEPTION)
    coordinator.answer(ApiKey.ADD_PARTITIONS_TO_TXN, lambda request: all_partitions(request, ErrorCode.NONE))
    assert await harness.verify() == {}


async def test_old_coordinator_lets_batches_pass_and_adds_nothing(
    harness: VerifierHarness, coordinator: FakeBroker
) -> None:
    coordinator.answer(ApiKey.ADD_PARTITIONS_TO_TXN, lambda _: None, versions=(0, 3))
    assert await harness.verify() == {}
    added = await harness.verify(mode=VerificationMode.ADD)
    assert added == dict.fromkeys((T0, T1), ErrorCode.UNSUPPORTED_VERSION)


async def test_fenced_coordinator_is_not_asked(harness: VerifierHarness, coordinator: FakeBroker) -> None:
    harness.apply(FenceBrokerRecord(id=2, epoch=0))
    assert await harness.verify() == dict.fromkeys((T0, T1), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert not coordinator.received(AddPartitionsToTxnRequest)
