"""Repetition of deletions, without brokers."""

import random

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.chaos.deletions import Deletions

ATTEMPTS = 4


class CountedDeletions(Deletions):
    """Deletions of which the first fails, and which end after ATTEMPTS."""

    attempts = 0

    def _delete(self, _admin: AdminClient, _partition: int) -> None:
        self.attempts += 1
        if self.attempts == ATTEMPTS:
            self._over.set()
        if self.attempts == 1:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        self.done += 1


def test_records_are_deleted_until_the_stop_despite_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.chaos.deletions.REST_S", (0.0, 0.0))
    deletions = CountedDeletions("127.0.0.1:1", "topic", 3, random.Random(1))
    deletions._run()
    assert deletions.attempts == ATTEMPTS
    assert deletions.done == ATTEMPTS - 1
    assert deletions.failures == {"NOT_LEADER_FOR_PARTITION": 1}
