// Reads ten records of the topic "orders" in a consumer group, and commits their offsets.
"use strict";
const { Kafka, logLevel } = require("kafkajs");

async function main() {
  const kafka = new Kafka({ brokers: [process.env.BOOTSTRAP ?? "127.0.0.1:9092"], logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({ groupId: "javascript-billing" });
  await consumer.connect();
  await consumer.subscribe({ topics: ["orders"], fromBeginning: true });
  let count = 0;
  const done = new Promise((resolve) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        console.log(message.key.toString(), message.value.toString());
        if (++count === 10) resolve();
      },
    });
  });
  await done;
  await consumer.disconnect(); // commits the offsets of the records that eachMessage has processed
}

main().catch((error) => { console.error(error); process.exit(1); });
