// kafkajs during restarts: `node kafkajs.mjs HOST:PORT,… TOPIC`; what it prints is as in clients.py.
import kafkajs from 'kafkajs'

const [address, topic] = process.argv.slice(2)
const kafka = new kafkajs.Kafka({ brokers: address.split(','), logLevel: kafkajs.logLevel.NOTHING, retry: { retries: 100, maxRetryTime: 1000 } })
let stopped = false
process.stdin.once('data', () => { stopped = true })

async function read() {
  const consumer = kafka.consumer({ groupId: 'kafkajs' })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => console.log('r', message.value.toString()) })
}

const reading = read().catch(error => console.log('x', error.message))
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
await producer.connect()
for (let number = 0; !stopped; number++) {
  try {
    await producer.send({ topic, acks: -1, messages: [{ value: String(number) }] })
    console.log('a', String(number))
  } catch (error) {
    console.log('x', error.message)
  }
  await new Promise(resolve => setTimeout(resolve, 10))
}
console.log('sent')
await reading
