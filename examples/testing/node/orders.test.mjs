import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import kafkajs from "kafkajs";
import { startLogdb } from "./logdb.mjs";

const { Kafka, logLevel } = kafkajs;
let logdb, kafka;

before(async () => {
  logdb = await startLogdb();
  kafka = new Kafka({ brokers: logdb.brokers, logLevel: logLevel.ERROR });
});
after(() => logdb.stop());

test("an order comes out as it went in", async () => {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ key: "7", value: "paid" }] }); // creates the topic
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "test" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const message = await new Promise((resolve, reject) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message) }).catch(reject);
  });
  await consumer.disconnect();
  assert.equal(`${message.key} ${message.value}`, "7 paid");
});
