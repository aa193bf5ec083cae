"""`ottla start --brokers` as real processes: three brokers that serve a client through a rolling restart."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.ottla_machine import OttlaMachine

pytestmark = pytest.mark.integration

BROKERS = 3
TIMEOUT_S = 120
POLL_S = 0.05


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(POLL_S)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[OttlaMachine]:
    with OttlaMachine(tmp_path, BROKERS, {"min.insync.replicas": "2"}) as running:
        yield running


def test_rolling_restart_loses_no_record_and_racks_are_the_machine(machine: OttlaMachine) -> None:
    bootstrap = machine.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(TIMEOUT_S)
    failed: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    before = {broker.id for broker in admin.list_topics(timeout=TIMEOUT_S).brokers.values()}

    machine.process.send_signal(signal.SIGHUP)
    sent = 0

    def has_restarted_all() -> bool:
        nonlocal sent
        producer.produce("t", str(sent).encode(), on_delivery=lambda error, _: failed.append(error) if error else None)
        sent += 1
        producer.poll(0.01)
        return machine.log.count("ready again") == BROKERS

    until(has_restarted_all)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    assert sum(_end(bootstrap, partition) for partition in range(3)) == sent
    assert before == {1, 2, 3}
    nodes = admin.describe_cluster().result(TIMEOUT_S).nodes
    assert len({node.rack for node in nodes}) == 1
    until(lambda: machine.readiness()[0] == 200)
    assert set(machine.readiness()[1]["brokers"]) == {"1", "2", "3"}
    brokers = psutil.Process(machine.process.pid).children()
    assert [os.sched_getscheduler(each.pid) for each in brokers] == [os.SCHED_BATCH] * BROKERS

    machine.process.terminate()
    assert machine.process.wait(TIMEOUT_S) == 0


def _end(bootstrap: str, partition: int) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        low_and_high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition("t", partition), TIMEOUT_S)
        return int(low_and_high[1])
    finally:
        consumer.close()
