// kafkajs client: see test_clients.py for what it does and prints.
"use strict";
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const env = (name) => process.env["SECURE_" + name];
const read = (name) => fs.readFileSync(env(name), "utf-8");
const retry = { retries: 3, initialRetryTime: 100, maxRetryTime: 500 };

const withScram = (password) =>
  new Kafka({
    clientId: "kafkajs", brokers: [env("SCRAM")], logLevel: logLevel.NOTHING, retry,
    ssl: { ca: [read("CA")] },
    sasl: { mechanism: "scram-sha-512", username: env("USER"), password },
  });
const withCertificate = () =>
  new Kafka({
    clientId: "kafkajs", brokers: [env("MTLS")], logLevel: logLevel.NOTHING, retry,
    ssl: { ca: [read("CA")], cert: read("CERT"), key: read("KEY") },
  });

async function produce(kafka, topic, value) {
  const producer = kafka.producer();
  try {
    await producer.connect();
    await producer.send({ topic, messages: [{ value }] });
  } finally {
    await producer.disconnect();
  }
}

async function consume(kafka, topic, value) {
  const consumer = kafka.consumer({ groupId: "g-" + value });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error("read nothing")), 20000).unref();
    consumer.run({
      eachMessage: async ({ message }) => {
        if (message.value.toString() === value) resolve();
      },
    });
  });
  await consumer.disconnect();
}

async function refusal(kafka, topic) {
  try {
    await produce(kafka, topic, "refused");
    return "accepted";
  } catch (error) {
    for (let cause = error; cause; cause = cause.cause) {
      if (cause.type === "TOPIC_AUTHORIZATION_FAILED") return "not authorized";
      if (cause.name === "KafkaJSSASLAuthenticationError") return "not authenticated";
    }
    throw error;
  }
}

async function main() {
  const allowed = withScram(env("PASSWORD"));
  await produce(allowed, "allowed", "kafkajs");
  await consume(allowed, "allowed", "kafkajs");
  console.log("scram: wrote and read");
  console.log("forbidden topic: " + (await refusal(allowed, "forbidden")));
  console.log("wrong password: " + (await refusal(withScram("wrong"), "allowed")));
  const certificate = withCertificate();
  await produce(certificate, "allowed", "kafkajs");
  console.log("certificate: wrote");
  console.log("certificate, forbidden topic: " + (await refusal(certificate, "forbidden")));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
