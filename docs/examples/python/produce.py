"""Write ten records to the topic `orders`, and wait until all in-sync replicas have them."""

import os

from confluent_kafka import KafkaError, Message, Producer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")


def report(error: KafkaError | None, message: Message) -> None:
    """Print where a record is, or the reason for which it was not written."""
    if error is not None:
        print("not written:", error)
    else:
        print(f"{message.topic()}-{message.partition()} offset {message.offset()}")


producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
for number in range(10):
    producer.produce("orders", key=f"customer-{number % 3}", value=f"order {number}", on_delivery=report)
    producer.poll(0)
producer.flush()
