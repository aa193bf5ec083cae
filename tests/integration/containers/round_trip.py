"""Start an image with Testcontainers' Python module, write a record, and print it as read back.

Arguments: the image, and "kraft" or "zookeeper" for the two ways in which the module starts it.
"""

import sys

from confluent_kafka import Consumer, Producer
from testcontainers.kafka import KafkaContainer

READ_TIMEOUT_S = 60


def main(image: str, mode: str) -> None:
    container = KafkaContainer(image)
    if mode == "kraft":
        container = container.with_kraft()
    container.start(timeout=120)
    try:
        bootstrap = container.get_bootstrap_server()
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("greetings", b"hello", b"key")
        assert producer.flush(READ_TIMEOUT_S) == 0
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe(["greetings"])
        record = consumer.poll(READ_TIMEOUT_S)
        consumer.close()
        assert record is not None, "no record within a minute"
        print(f"read {record.key().decode()}={record.value().decode()}")
    finally:
        container.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
