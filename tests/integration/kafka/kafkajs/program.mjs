// What applications do with kafkajs: `node program.mjs HOST:PORT,… TASK TOPIC [CODEC]`.
// Records to produce come by stdin as JSON, what was seen goes to stdout as JSON.
import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4js'
import { ZstdCodec } from 'zstd-codec'

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const [address, task, topic, codec = 'none'] = process.argv.slice(2)
const kafka = new Kafka({ brokers: address.split(','), logLevel: logLevel.ERROR })

const zstd = await new Promise(resolve => ZstdCodec.run(library => resolve(new library.Simple())))
const codecOf = (compress, decompress) => () => ({
  compress: async encoder => Buffer.from(compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(decompress(buffer)),
})
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = codecOf(lz4.compress, lz4.decompress)
CompressionCodecs[CompressionTypes.ZSTD] = codecOf(data => zstd.compress(data), data => zstd.decompress(data))
const COMPRESSION = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }

const text = bytes => (bytes === null || bytes === undefined ? null : bytes.toString())
const values = messages => messages.map(message => message.value).sort()

async function during(client, use) {
  await client.connect()
  try {
    return await use(client)
  } finally {
    await client.disconnect()
  }
}

/** A consumer that has begun: what it reads, what it is given, and a promise of any state of both. */
function member(groupId, options = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 200, maxWaitTimeInMs: 50, ...options })
  const found = { consumer, messages: [], partitions: 0, check: () => {} }
  found.until = wanted => new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    found.check = () => wanted() && resolve()
    found.check()
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    found.partitions = (payload.memberAssignment[topic] ?? []).length
    found.check()
  })
  found.begin = async () => {
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ message }) => {
        const headers = Object.entries(message.headers).map(([name, value]) => [name, text(value)])
        found.messages.push({ key: text(message.key), value: text(message.value), headers, timestamp: Number(message.timestamp) })
        found.check()
      },
    })
    return found
  }
  return found
}

async function consumed(groupId, count, options) {
  const one = await member(groupId, options).begin()
  await one.until(() => one.messages.length >= count)
  await one.consumer.disconnect()
  return one.messages
}

const tasks = {
  async records() {
    const messages = JSON.parse(readFileSync(0)).map(one => ({ ...one, headers: Object.fromEntries(one.headers), timestamp: String(one.timestamp) }))
    const compression = CompressionTypes[COMPRESSION[codec]]
    await during(kafka.producer(), producer => producer.send({ topic, messages, compression, acks: -1 }))
    return consumed(`of ${topic}`, messages.length)
  },

  async group() {
    const [one, two] = [await member('g').begin(), member('g')]
    await one.until(() => one.partitions === 4)
    await two.begin()
    await Promise.all([one, two].map(each => each.until(() => each.partitions === 2)))
    await two.consumer.disconnect()
    await one.until(() => one.partitions === 4)
    const late = [0, 1, 2, 3].map(partition => ({ partition, value: `late ${partition}` }))
    await during(kafka.producer(), producer => producer.send({ topic, messages: late }))
    await one.until(() => one.messages.filter(({ value }) => value.startsWith('late')).length === 4)
    const described = await during(kafka.admin(), admin => admin.describeGroups(['g']))
    await one.consumer.disconnect()
    return {
      values: [...new Set(values([...one.messages, ...two.messages]))],
      groups: described.groups.map(({ state, protocol, members }) => [state, protocol, members.length]),
    }
  },

  async transactions() {
    const options = { idempotent: true, maxInFlightRequests: 1 }
    await during(kafka.producer(options), producer => producer.send({ topic, messages: [{ value: 'idempotent' }] }))
    await during(kafka.producer({ ...options, transactionalId: 'js' }), async producer => {
      for (const [value, commit] of [['0', true], ['1', false], ['2', true]]) {
        const transaction = await producer.transaction()
        await transaction.send({ topic, messages: [{ value }] })
        await transaction.sendOffsets({ consumerGroupId: 'of js', topics: [{ topic, partitions: [{ partition: 0, offset: value }] }] })
        await (commit ? transaction.commit() : transaction.abort())
      }
    })
    const readers = [consumed('committed', 3), consumed('uncommitted', 4, { readUncommitted: true })]
    const [committed, uncommitted] = (await Promise.all(readers)).map(values)
    return { committed, uncommitted }
  },

  admin: () => during(kafka.admin(), async admin => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const config = async () => {
      const { resources } = await admin.describeConfigs({ resources: [resource], includeSynonyms: true })
      return resources[0].configEntries.find(({ configName }) => configName === 'retention.ms').configValue
    }
    const seen = { created: await admin.createTopics({ topics: [{ topic, numPartitions: 2, configEntries: [{ name: 'retention.ms', value: '5000' }] }] }) }
    seen.again = await admin.createTopics({ topics: [{ topic }] })
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    seen.partitions = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
    seen.retention = [await config()]
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '6000' }] }] })
    seen.retention.push(await config())
    const messages = [1, 2, 3].map(second => ({ partition: 0, value: String(second), timestamp: String(1_700_000_000_000 + 1000 * second) }))
    await during(kafka.producer(), producer => producer.send({ topic, messages }))
    const first = offsets => Number(offsets.find(({ partition }) => partition === 0).offset)
    seen.end = first(await admin.fetchTopicOffsets(topic))
    seen.at = first(await admin.fetchTopicOffsetsByTimestamp(topic, 1_700_000_001_500))
    await consumed('read', 3)
    seen.groups = (await admin.listGroups()).groups.map(({ groupId }) => groupId).filter(name => name === 'read')
    seen.committed = first((await admin.fetchOffsets({ groupId: 'read', topics: [topic] }))[0].partitions)
    seen.deleted = (await admin.deleteGroups(['read']))[0].errorCode ?? 0
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
    seen.begin = Number((await admin.fetchTopicOffsets(topic)).find(({ partition }) => partition === 0).low)
    const { brokers, controller, clusterId } = await admin.describeCluster()
    const addresses = brokers.map(({ host, port }) => `${host}:${port}`).sort()
    seen.cluster = [addresses, brokers.some(({ nodeId }) => nodeId === controller), clusterId]
    await admin.deleteTopics({ topics: [topic] })
    seen.left = (await admin.listTopics()).includes(topic)
    return seen
  }),
}

console.log(JSON.stringify(await tasks[task]()))
