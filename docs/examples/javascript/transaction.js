// Copies records from "orders" to "invoices", each exactly once: records and offsets are committed in one transaction.
"use strict";
const { Kafka, Partitioners, logLevel } = require("kafkajs");

async function main() {
  const kafka = new Kafka({ brokers: [process.env.BOOTSTRAP ?? "127.0.0.1:9092"], logLevel: logLevel.ERROR });
  const groupId = "javascript-invoicing";
  const consumer = kafka.consumer({ groupId, readUncommitted: false });
  const producer = kafka.producer({
    transactionalId: groupId, idempotent: true, maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topics: ["orders"], fromBeginning: true });
  let count = 0;
  const done = new Promise((resolve) => {
    consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch, resolveOffset }) => {
        const messages = batch.messages.map(({ key, value }) => ({ key, value: `invoice for ${value}` }));
        const transaction = await producer.transaction();
        try {
          await transaction.send({ topic: "invoices", messages });
          const partitions = [{ partition: batch.partition, offset: (BigInt(batch.lastOffset()) + 1n).toString() }];
          await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: batch.topic, partitions }] });
          await transaction.commit();
        } catch (error) {
          await transaction.abort();
          throw error;
        }
        resolveOffset(batch.lastOffset());
        count += messages.length;
        console.log(`committed ${count} records`);
        if (count >= 10) resolve();
      },
    });
  });
  await done;
  await consumer.disconnect();
  await producer.disconnect();
}

main().catch((error) => { console.error(error); process.exit(1); });
