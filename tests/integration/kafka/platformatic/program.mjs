// What applications do with @platformatic/kafka, which names topics by ids: `node program.mjs HOST:PORT TOPIC COUNT`.
// Two members of a group read in turn what was produced; what each has seen goes to stdout as JSON.
import { Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [address, topic, count] = process.argv.slice(2)
const client = { clientId: 'test', bootstrapBrokers: [address] }

async function produced(values, options = {}) {
  const producer = new Producer({ ...client, serializers: stringSerializers, ...options })
  try {
    await producer.send({ messages: values.map(value => ({ topic, key: 'k', value })) })
  } finally {
    await producer.close(true)
  }
}

/** What a member reads up to a number of records, which it commits. */
async function consumed(wanted) {
  const consumer = new Consumer({ ...client, groupId: 'g', deserializers: stringDeserializers })
  const options = { mode: 'committed', fallbackMode: 'earliest', autocommit: false, maxWaitTime: 100 }
  const stream = await consumer.consume({ topics: [topic], ...options })
  const found = []
  for await (const message of stream) {
    found.push(message.value)
    await message.commit()
    if (found.length === wanted) break
  }
  await stream.close()
  await consumer.close(true)
  return found
}

const first = Array.from({ length: Number(count) }, (_, number) => String(number))
await produced(first)
const seen = [await consumed(first.length)]
await produced(['later'], { idempotent: true })
seen.push(await consumed(1))
console.log(JSON.stringify(seen))
process.exit(0)
