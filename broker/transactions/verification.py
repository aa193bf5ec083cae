"""Verification of transactions by partition leaders (KIP-890): pure rules of the requests to one coordinator.

Before the first batch of a transaction, the leader of a partition asks the transaction coordinator whether the
partition belongs to the transaction, or adds it on behalf of a client of transaction version 2. Questions wait in a
queue per coordinator; one AddPartitionsToTxn request is in flight and carries all questions that waited for it.

The queue holds one question per transactional id. Of two questions the one with the later producer epoch stays. With
equal epochs the client has repeated its request, so that the earlier question fails with a retriable error.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

MAX_WAITING: Final = 10_000
"""Limit of the questions that wait for one coordinator. Each waiting question blocks one connection of a client."""

TopicPartition = tuple[str, int]


class VerificationMode(Enum):
    """The question to the coordinator, by the version of the client's request."""

    VERIFY_FOR_OLD_CLIENT = auto()
    """The client does not know TRANSACTION_ABORTABLE."""
    VERIFY = auto()
    ADD = auto()
    """The client relies on the leader to add the partition (transaction version 2)."""


@lazy_dataclass(frozen=True, slots=True, eq=False)
class Verification:
    """A question about partitions of one transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    mode: VerificationMode

    def errors(self, codes: Mapping[TopicPartition, ErrorCode]) -> Mapping[TopicPartition, ErrorCode]:
        """Return the errors by partition, as the client gets them, for the coordinator's codes.

        A partition without a code is not verified.
        """
        verdicts = {
            partition: _client_error(codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR), self.mode)
            for partition in self.partitions
        }
        return {partition: code for partition, code in verdicts.items() if code is not ErrorCode.NONE}

    def failed(self, code: ErrorCode) -> "Verdict":
        return Verdict(self, dict.fromkeys(self.partitions, code))


class Verdict(NamedTuple):
    """The coordinator's answer. Partitions without error are verified or added."""

    verification: Verification
    errors: Mapping[TopicPartition, ErrorCode]


class VerificationQueue:
    """The questions to one coordinator. Methods return the verdicts that they settle."""

    def __init__(self) -> None:
        self._waiting: dict[str, Verification] = {}
        self._in_flight: dict[str, Verification] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no question waits or is in flight."""
        return not self._waiting and not self._in_flight

    def add(self, verification: Verification) -> list[Verdict]:
        """Queue a question."""
        key = verification.transactional_id
        waiting = self._waiting.get(key)
        if waiting is None:
            if len(self._waiting) >= MAX_WAITING:
                return [verification.failed(ErrorCode.NETWORK_EXCEPTION)]
            self._waiting[key] = verification
            return []
        if verification.producer_epoch < waiting.producer_epoch:
            return [verification.failed(ErrorCode.INVALID_PRODUCER_EPOCH)]
        self._waiting[key] = verification
        is_repeated = verification.producer_epoch == waiting.producer_epoch
        return [waiting.failed(ErrorCode.NETWORK_EXCEPTION if is_repeated else ErrorCode.INVALID_PRODUCER_EPOCH)]

    def take_request(self) -> AddPartitionsToTxnRequest | None:
        """Return the request with all waiting questions; None while one is in flight, or without a question."""
        if self._in_flight or not self._waiting:
            return None
        self._in_flight, self._waiting = self._waiting, {}
        return AddPartitionsToTxnRequest(transactions=[_transaction(one) for one in self._in_flight.values()])

    def on_response(self, response: AddPartitionsToTxnResponse) -> list[Verdict]:
        """Settle the questions in flight."""
        if response.error_code:
            error = _known(response.error_code)
            # Clients cannot act on missing rights of a broker.
            is_denied = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return self.on_failure(ErrorCode.INVALID_TXN_STATE if is_denied else error)
        results = {result.transactional_id: result for result in response.results_by_transaction}
        return [Verdict(one, _errors(one, results.get(one.transactional_id))) for one in self._take_in_flight()]

    def on_failure(self, code: ErrorCode) -> list[Verdict]:
        """Fail the questions in flight."""
        return [one.failed(code) for one in self._take_in_flight()]

    def on_unsupported(self) -> list[Verdict]:
        """Settle the questions in flight to a coordinator without verification: batches pass unverified, as in Kafka.

        Such a coordinator cannot add a partition for a client either.
        """
        return [
            one.failed(ErrorCode.UNSUPPORTED_VERSION) if one.mode is VerificationMode.ADD else Verdict(one, {})
            for one in self._take_in_flight()
        ]

    def _take_in_flight(self) -> Iterable[Verification]:
        in_flight, self._in_flight = self._in_flight, {}
        return in_flight.values()


def _transaction(one: Verification) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, index in one.partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(topic)).partitions.append(index)
    return AddPartitionsToTxnTransaction(
        one.transactional_id,
        one.producer_id,
        one.producer_epoch,
        one.mode is not VerificationMode.ADD,
        list(topics.values()),
    )


def _errors(one: Verification, result: AddPartitionsToTxnResult | None) -> Mapping[TopicPartition, ErrorCode]:
    return one.errors(
        {
            (topic.name, each.partition_index): _known(each.partition_error_code)
            for topic in (() if result is None else result.topic_results)
            for each in topic.results_by_partition
        }
    )


def _client_error(code: ErrorCode, mode: VerificationMode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and mode is VerificationMode.VERIFY_FOR_OLD_CLIENT:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _known(code: int) -> ErrorCode:
    return ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
