"""Worker with librdkafka: consume, transform and produce in transactions.

Arguments: bootstrap servers, input topic, output topic, group, group protocol, transactional id, incarnation, seed. The
reports on standard output are those of tests/exactly_once/checker.py. A fatal error ends the program with code 1.
"""

import os
import random
import sys
import threading
import time
from typing import NoReturn

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

BATCH = 500
POLL_S = 0.1
TIMEOUT_S = 30.0
SLOW_SHARE, SLOW_S = 0.03, 0.4
ABORTED_SHARE = 0.04
COMMON = {
    "socket.timeout.ms": 5000,
    "socket.connection.setup.timeout.ms": 2000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 2,
}


def report(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """End this process when its standard input closes."""
    sys.stdin.read()
    os._exit(0)


class Worker:
    """One incarnation of a worker. Rebalances happen only between transactions, within a poll."""

    def __init__(
        self,
        bootstrap: str,
        source: str,
        target: str,
        group: str,
        protocol: str,
        name: str,
        incarnation: str,
        seed: str,
    ) -> None:
        self._target = target
        self._name = f"{name}.{incarnation}"
        self._random = random.Random(f"{seed} {self._name}")
        self._assignment_changed = False
        self._producer = Producer(
            {**COMMON, "bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 30_000}
        )
        sessions = {} if protocol == "consumer" else {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
        self._consumer = Consumer(
            {
                **COMMON,
                **sessions,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._producer.init_transactions(60)
        self._consumer.subscribe([source], on_assign=self._changed, on_revoke=self._changed, on_lost=self._changed)

    def _changed(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._assignment_changed = True

    def run(self) -> NoReturn:
        number = 0
        while True:
            self._assignment_changed = False
            messages = [each for each in self._consumer.consume(BATCH, POLL_S) if each.error() is None]
            if self._assignment_changed:
                self._rewind()  # the batch may have records of a partition that another member has now
            elif messages:
                number += 1
                self._transact(f"{self._name}.{number}", messages)

    def _transact(self, transaction: str, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        try:
            for each in messages:
                self._produce(each, transaction.encode())
            if self._random.random() < ABORTED_SHARE:
                self._producer.flush(TIMEOUT_S)
                self._abort(transaction)
                return
            next_offsets = {each.partition(): each.offset() + 1 for each in messages}
            topic = messages[0].topic() or ""
            offsets = [TopicPartition(topic, partition, offset) for partition, offset in next_offsets.items()]
            self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), TIMEOUT_S)
            if self._random.random() < SLOW_SHARE:
                self._producer.flush(TIMEOUT_S)
                time.sleep(SLOW_S)
            report(f"commit {transaction} {time.time_ns() // 1_000_000} {len(messages)}")
            self._commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(transaction)
        else:
            report(f"committed {transaction}")

    def _produce(self, message: Message, transaction: bytes) -> None:
        value = b"%s %s" % (message.key() or b"", transaction)
        while True:
            try:
                self._producer.produce(self._target, value, message.key(), message.partition())
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT_S)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _abort(self, transaction: str) -> None:
        while True:
            try:
                self._producer.abort_transaction(TIMEOUT_S)
                break
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        report(f"aborted {transaction}")
        self._rewind()

    def _rewind(self) -> None:
        """Continue at the committed offsets."""
        assigned = self._consumer.assignment()
        for each in self._consumer.committed(assigned, TIMEOUT_S) if assigned else ():
            if each.error:
                raise KafkaException(each.error)
            offset = each.offset if each.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(TopicPartition(each.topic, each.partition, offset))


def main() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        Worker(*sys.argv[1:9]).run()
    except KafkaException as error:
        sys.stderr.write(f"{sys.argv[6]}.{sys.argv[7]}: {error}\n")
        sys.stderr.flush()
        os._exit(1)  # without the time that a clean end of the clients takes


if __name__ == "__main__":
    main()
