"""A producer whose records become visible in transactions (KIP-98).

Each transaction has an epoch of its own if the cluster has transaction version 2 (KIP-890).
"""

import random

from broker.cli.console.producer import RETRIED_ERRORS, Producer, ProducerSettings
from broker.cli.shared.transactions import TRANSACTION_COORDINATOR
from broker.client import Client, Connection, raise_for
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FEATURE = "transaction.version"
IMPLICIT_ADDITION = 2
"""The transaction version with which Produce adds partitions to a transaction."""

LAST_PRODUCE_VERSION_1 = 11
LAST_ADD_PARTITIONS_OF_CLIENTS = 3
LAST_END_VERSION_1 = 4


class TransactionalProducer(Producer):
    """Producer with a transactional id. `commit` ends the transaction that the first record began."""

    def __init__(self, client: Client, settings: ProducerSettings, rng: random.Random) -> None:
        assert settings.transactional_id is not None
        super().__init__(client, settings, rng)
        self._id = settings.transactional_id
        self._is_version_2 = False
        self._added: set[int] = set()

    def flush(self) -> None:
        """Send all batches and wait for their acknowledgements. Raises KafkaError or ClientError."""
        new = self._open.keys() - self._added
        if new and not self._is_version_2:
            self._client.retrying(lambda: self._add_partitions(sorted(new)), RETRIED_ERRORS)
        self._added |= new
        super().flush()

    def commit(self) -> None:
        """Flush and commit; do nothing if no record was sent. Raises KafkaError or ClientError."""
        self.flush()
        if not self._added:
            return
        self._client.retrying(self._commit, RETRIED_ERRORS)
        self._added.clear()

    def _init_producer_id(self) -> None:
        levels = {each.name: each.max_version_level for each in self._client.any().api_versions.finalized_features}
        self._is_version_2 = levels.get(FEATURE, 0) >= IMPLICIT_ADDITION
        if not self._is_version_2:
            self._highest_version = LAST_PRODUCE_VERSION_1
        request = InitProducerIdRequest(self._id, self._settings.transaction_timeout_ms)
        response = self._coordinator().call(request, InitProducerIdResponse)
        raise_for(response.error_code, f"transactional id {self._id!r}")
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch

    def _add_partitions(self, partitions: list[int]) -> None:
        topics = [AddPartitionsToTxnTopic(self._settings.topic, partitions)]
        request = AddPartitionsToTxnRequest([], self._id, self._producer_id, self._producer_epoch, topics)
        response = self._coordinator().call(request, AddPartitionsToTxnResponse, highest=LAST_ADD_PARTITIONS_OF_CLIENTS)
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                raise_for(result.partition_error_code, f"{topic.name}-{result.partition_index}")

    def _commit(self) -> None:
        request = EndTxnRequest(self._id, self._producer_id, self._producer_epoch, True)
        highest = None if self._is_version_2 else LAST_END_VERSION_1
        response = self._coordinator().call(request, EndTxnResponse, highest=highest)
        raise_for(response.error_code, f"transactional id {self._id!r}")
        if self._is_version_2:
            self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()

    def _coordinator(self) -> Connection:
        return self._client.coordinator(self._id, TRANSACTION_COORDINATOR)
