// Reads records of one topic: a page backward or forward in some partitions, and new ones as they come.

import { ask, events, forEach, partitionStates, path } from './api.js'
import { fromBase64, searchable } from './text.js'

const KEPT_BYTES = 16 << 20 // of the records of one page: a browser has to hold them
const SCAN = 2_000 // records at a time, where a search goes backward
const AGAIN_MS = 1_000

/** A record with its bytes; `size`: of key and value. */
function recordOf(data) {
  const [key, value] = [fromBase64(data.key), fromBase64(data.value)]
  const headers = data.headers.map((one) => ({ name: one.name, value: fromBase64(one.value) }))
  return { ...data, key, value, headers, size: (key?.length ?? 0) + (value?.length ?? 0) }
}

/** Whether a record has a text in its key, its value or a header; no text: every record has. */
export function matcher(wanted) {
  if (wanted === '') return () => true
  const low = wanted.toLowerCase()
  const has = (text) => text.toLowerCase().includes(low)
  return (record) => has(searchable(record.value)) || has(searchable(record.key)) || record.headers.some((one) => has(one.name) || has(searchable(one.value)))
}

/** The partitions of a topic that the server lets us read: `{partition, start, end, elsewhere}`. */
export async function ranges(topic, numbers, isolation, signal) {
  const states = await partitionStates(numbers.map((number) => [topic, number]), signal, isolation)
  return states.map((state, at) => ({
    partition: numbers[at],
    start: state?.start_offset ?? 0,
    end: state?.readable_end_offset ?? 0,
    elsewhere: state?.leader_address ?? null,
  }))
}

/** The first offset of a time in a partition. */
export async function offsetAt(topic, range, ms, signal) {
  const found = await ask(path`logdb/v1/topics/${topic}/partitions/${range.partition}/timestamps/${ms}`, { signal })
  return found.offset === null ? range.end : Math.max(found.offset, range.start)
}

/**
 * A page of records.
 *
 * topic, isolation, matches(record), max: which and how many. isBackward: from `at` of each range down, otherwise up.
 * tell(scanned): how many records were read. Returns `{records, ranges, scanned}`: the ranges go on behind the page.
 */
export async function page({ topic, isolation, matches, max, isBackward }, from, tell, signal) {
  const scan = { topic, isolation, matches, max, bytes: KEPT_BYTES / from.length, scanned: 0, tell, signal }
  const results = await forEach(from, (range) => (isBackward ? backward : forward)(scan, range))
  const { records, taken } = merged(results.map((result) => result.records), max, isBackward)
  const ranges = from.map((range, index) => {
    const { records: found, at } = results[index]
    if (taken[index] === found.length) return { ...range, at }
    const left = found[taken[index]].offset // the first that is not of this page
    return { ...range, at: isBackward ? left + 1 : left }
  })
  return { records, ranges, scanned: scan.scanned }
}

/** The first records of some lists by their time, and how many of each list. A list keeps its order, whatever its times are. */
function merged(lists, max, isBackward) {
  const taken = lists.map(() => 0)
  const records = []
  while (records.length < max) {
    let best = -1
    for (let index = 0; index < lists.length; index += 1) {
      const head = lists[index][taken[index]]
      if (head === undefined) continue
      const other = lists[best]?.[taken[best]]
      if (other === undefined || (isBackward ? head.timestamp_ms > other.timestamp_ms : head.timestamp_ms < other.timestamp_ms)) best = index
    }
    if (best < 0) break
    records.push(lists[best][taken[best]])
    taken[best] += 1
  }
  return { records, taken }
}

/** The records from `range.at` up: `{records, at}`, at most `max`, and no more bytes than a page holds. */
async function forward(scan, range) {
  const records = []
  let at = range.at
  let bytes = 0
  if (at < range.end) {
    for await (const record of stream(scan, range.partition, at, range.end)) {
      at = record.offset + 1
      if (!scan.matches(record)) continue
      records.push(record)
      bytes += record.size
      if (records.length >= scan.max || bytes >= scan.bytes) return { records, at }
    }
    at = range.end
  }
  return { records, at }
}

/** The records below `range.at`, the newest first, in windows that grow where there are few. */
async function backward(scan, range) {
  let found = []
  let bytes = 0
  let at = range.at
  let width = scan.max
  while (at > range.start && found.length < scan.max && bytes < scan.bytes) {
    const low = Math.max(range.start, at - width)
    const window = []
    for await (const record of stream(scan, range.partition, low, at)) {
      if (!scan.matches(record)) continue
      window.push(record)
      bytes += record.size
      while (window.length > 1 && (window.length > scan.max - found.length || bytes > scan.bytes)) bytes -= window.shift().size
    }
    const isCut = window.length > 0 && (found.length + window.length >= scan.max || bytes >= scan.bytes)
    found = [...found, ...window.reverse()]
    at = isCut ? window.at(-1).offset : low
    width = Math.min(Math.max(width * 4, SCAN), 100_000)
  }
  return { records: found, at }
}

/** The records of a partition in [from, to). */
async function* stream(scan, partition, from, to) {
  const control = new AbortController()
  const stop = () => control.abort()
  scan.signal.addEventListener('abort', stop)
  try {
    const query = new URLSearchParams({ offset: from, follow: false, isolation_level: scan.isolation })
    const url = `${path`logdb/v1/topics/${scan.topic}/partitions/${partition}/events`}?${query}`
    for await (const event of events(url, { signal: control.signal })) {
      if (event.type === 'error') throw new Error(event.data.message)
      if (event.data.offset >= to) return
      scan.scanned += 1
      scan.tell(scan.scanned)
      yield recordOf(event.data)
      if (event.data.offset === to - 1) return
    }
  } finally {
    scan.signal.removeEventListener('abort', stop)
    control.abort()
  }
}

/**
 * New records, as they come, until the signal says so: `see(record)` for each, `tell(problem)` when the connection is lost and "" when it is
 * there again. partition null: all. After a lost connection it goes on behind the last record.
 */
export async function follow({ topic, partition, isolation }, see, tell, signal) {
  let lastId = null
  const offset = partition === null ? 'latest' : Math.max((await ranges(topic, [partition], isolation, signal))[0].end, 0)
  const place = partition === null ? path`logdb/v1/topics/${topic}/events` : path`logdb/v1/topics/${topic}/partitions/${partition}/events`
  while (!signal.aborted) {
    try {
      tell('')
      for await (const event of events(`${place}?${new URLSearchParams({ offset, isolation_level: isolation })}`, { lastId, signal })) {
        if (event.type === 'error') throw new Error(event.data.message)
        lastId = event.id
        see(recordOf(event.data))
      }
    } catch (error) {
      if (signal.aborted) return
      if (error.status !== 0 && error.status !== 503) throw error
      tell(error.message)
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS))
  }
}
