// Writes ten records to the topic "orders", and waits until all in-sync replicas have them.
"use strict";
const { Kafka, Partitioners, logLevel } = require("kafkajs");

async function main() {
  const kafka = new Kafka({ brokers: [process.env.BOOTSTRAP ?? "127.0.0.1:9092"], logLevel: logLevel.ERROR });
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const messages = Array.from({ length: 10 }, (_, n) => ({ key: `customer-${n % 3}`, value: `order ${n}` }));
  for (const written of await producer.send({ topic: "orders", messages, acks: -1 })) {
    console.log(`${written.topicName}-${written.partition} from offset ${written.baseOffset}`);
  }
  await producer.disconnect();
}

main().catch((error) => { console.error(error); process.exit(1); });
