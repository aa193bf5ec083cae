"""Copy records from `orders` to `invoices`, each exactly once: records and offsets are committed in one transaction."""

import os

from confluent_kafka import Consumer, Producer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:9092")

consumer = Consumer(
    {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": "python-invoicing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)
producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": "python-invoicing"})
producer.init_transactions()
consumer.subscribe(["orders"])
try:
    count = 0
    while count < 10:
        messages = consumer.consume(num_messages=10, timeout=1.0)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("invoices", key=message.key(), value=b"invoice for " + message.value())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        count += len(messages)
        print(f"committed {count} records")
finally:
    consumer.close()
