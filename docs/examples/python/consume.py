"""Read ten records of the topic `orders` in a consumer group, and commit their offsets."""

import os

from confluent_kafka import Consumer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")

consumer = Consumer(
    {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": "python-billing",
        "group.protocol": "consumer",  # KIP-848; without this line the classic protocol
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
consumer.subscribe(["orders"])
try:
    count = 0
    while count < 10:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise SystemExit(str(message.error()))
        print(message.key().decode(), message.value().decode())
        count += 1
    consumer.commit(asynchronous=False)
finally:
    consumer.close()
