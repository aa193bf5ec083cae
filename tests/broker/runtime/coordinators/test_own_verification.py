"""Questions of a node to its own transaction coordinator (`broker.runtime.coordinators.own_verification`)."""

from collections.abc import Awaitable, Iterable, Mapping
from typing import cast

import pytest

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.runtime.coordinators.own_verification import OwnVerification
from broker.runtime.coordinators.transaction_coordinator import Result, TransactionCoordinator
from broker.transactions.state import ProducerIdAndEpoch, TransactionPartition
from broker.transactions.verification import Verification, VerificationMode
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import PartitionRecord, TopicRecord
from protocol.primitives import Uuid

T0, T1, NOWHERE = ("t", 0), ("t", 1), ("t", 9)
Codes = Mapping[TransactionPartition, ErrorCode]


class Coordinator:
    """A coordinator with one answer, at once or after a commit."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE, *, late: bool = False) -> None:
        self._code = code
        self._late = late
        self.added: list[tuple[str, ProducerIdAndEpoch, list[TransactionPartition], int]] = []

    def add_partitions(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Iterable[TransactionPartition], version: int
    ) -> Result[None]:
        self.added.append((name, producer, [*partitions], version))
        if self._late:
            return self._after_commit()
        self._check()
        return None

    def verify_partitions(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Iterable[TransactionPartition]
    ) -> Result[Codes]:
        return dict.fromkeys(partitions, self._code)

    async def _after_commit(self) -> None:
        self._check()

    def _check(self) -> None:
        if self._code:
            raise KafkaError(self._code)


def image() -> MetadataImage:
    identity = Uuid(b"t" * 16)
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(
        [
            TopicRecord("t", identity),
            *(
                PartitionRecord(partition_id=number, topic_id=identity, replicas=[1], isr=[1], leader=1)
                for number in (0, 1)
            ),
        ]
    )
    return delta.apply(Provenance(0, LeaderEpoch(1), 0))


def ask(
    coordinator: Coordinator, mode: VerificationMode, *partitions: tuple[str, int]
) -> Result[Mapping[tuple[str, int], ErrorCode]]:
    own = OwnVerification(cast(TransactionCoordinator, coordinator), image)
    return own(Verification("mine", 7, 3, partitions or (T0, T1), mode))


def test_partitions_are_added_for_the_client() -> None:
    coordinator = Coordinator()
    assert ask(coordinator, VerificationMode.ADD) == {}
    assert coordinator.added == [
        ("mine", ProducerIdAndEpoch(7, 3), [TransactionPartition(*T0), TransactionPartition(*T1)], 2)
    ]


def test_partitions_outside_of_the_transaction_are_errors() -> None:
    coordinator = Coordinator(ErrorCode.TRANSACTION_ABORTABLE)
    assert ask(coordinator, VerificationMode.VERIFY) == dict.fromkeys((T0, T1), ErrorCode.TRANSACTION_ABORTABLE)
    old = ask(coordinator, VerificationMode.VERIFY_FOR_OLD_CLIENT)
    assert old == dict.fromkeys((T0, T1), ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
async def test_refusal_is_the_error_of_each_partition(code: ErrorCode, expected: ErrorCode) -> None:
    assert ask(Coordinator(code), VerificationMode.ADD) == dict.fromkeys((T0, T1), expected)
    answer = ask(Coordinator(code, late=True), VerificationMode.ADD)
    assert isinstance(answer, Awaitable)
    assert await answer == dict.fromkeys((T0, T1), expected)


def test_one_unknown_partition_adds_none() -> None:
    coordinator = Coordinator()
    assert ask(coordinator, VerificationMode.ADD, T0, NOWHERE) == {
        T0: ErrorCode.OPERATION_NOT_ATTEMPTED,
        NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert coordinator.added == []
