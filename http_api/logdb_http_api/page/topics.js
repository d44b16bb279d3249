// Topics with sizes and rates; the partitions of one topic.

import { call, extents } from './api.js'
import { html, useMemo, useRef, useState } from './html.js'
import { rate, useMeasured } from './measured.js'
import { href, known, Loaded, Table, Text, useLoad } from './parts.js'
import { count, plural, short, size } from './text.js'

const EVERY_MS = 5_000
const IN = 'kafka_server_brokertopicmetrics_bytesin_total'
const OUT = 'kafka_server_brokertopicmetrics_bytesout_total'

export const topics = { id: 'topics', title: 'Topics', View: ({ parts }) => (parts[0] ? html`<${Topic} key=${parts[0]} name=${parts[0]} />` : html`<${Topics} />`) }

/** All topics: `{name, partitions, end, records, bytes, ms}`; null where no node tells. */
async function sums(internal, signal) {
  const found = await call('topics', { internal }, signal)
  const partitions = found.flatMap((topic) => Array.from({ length: topic.partition_count }, (_, number) => [topic.name, number]))
  const all = await extents(partitions, signal)
  const byTopic = new Map(found.map((topic) => [topic.name, []]))
  partitions.forEach(([name], at) => byTopic.get(name).push(all[at]))
  const ms = performance.now()
  return found.map((topic) => {
    const parts = byTopic.get(topic.name)
    const sum = (of) => (parts.includes(null) ? null : parts.reduce((before, one) => before + of(one), 0))
    return { name: topic.name, partitions: topic.partition_count, ms, end: sum((one) => one.end), records: sum((one) => one.end - one.start), bytes: sum((one) => one.bytes) }
  })
}

function Topics() {
  const [internal, setInternal] = useState(false)
  const [filter, setFilter] = useState('')
  const before = useRef(new Map())
  const measured = useMeasured()
  const loaded = useLoad(async (signal) => {
    const rows = await sums(internal, signal)
    for (const row of rows) {
      const last = before.current.get(row.name)
      row.rate = last && last.end !== null && row.end !== null ? (Math.max(row.end - last.end, 0) * 1000) / (row.ms - last.ms) : null
    }
    before.current = new Map(rows.map((row) => [row.name, row]))
    return rows
  }, [internal], EVERY_MS)
  const [older, newer] = measured.snapshots.slice(-2)
  const perSecond = (name, row) => (newer ? rate(older, newer, name, { topic: row.name }) : null)
  const columns = [
    { title: 'Topic', value: (row) => row.name, isData: true, cell: (row) => html`<a href=${href('topics', row.name)}><${Text} of=${row.name} /></a>` },
    { title: 'Partitions', isNumber: true, value: (row) => row.partitions, cell: (row) => count(row.partitions) },
    { title: 'Records', isNumber: true, value: (row) => row.records, cell: (row) => known(row.records, count) },
    { title: 'Size', isNumber: true, value: (row) => row.bytes, cell: (row) => known(row.bytes, size) },
    { title: 'Records/s', isNumber: true, value: (row) => row.rate, cell: (row) => known(row.rate, short) },
  ]
  if (measured.snapshots.length > 0) {
    columns.push(
      { title: 'Bytes in/s', isNumber: true, value: (row) => perSecond(IN, row), cell: (row) => known(perSecond(IN, row), size) },
      { title: 'Bytes out/s', isNumber: true, value: (row) => perSecond(OUT, row), cell: (row) => known(perSecond(OUT, row), size) },
    )
  }
  columns.push({ title: 'Go to', cell: (row) => html`<a href=${href('records', row.name)} aria-label=${`Read ${row.name}`}>Read</a>` })
  return html`
    <h1>Topics</h1>
    <form class="bar" onSubmit=${(event) => event.preventDefault()}>
      <label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} spellcheck="false" /></label>
      <label><input type="checkbox" checked=${internal} onChange=${(event) => setInternal(event.target.checked)} /> Internal topics</label>
    </form>
    <${Loaded} from=${loaded} what="topics">
      ${(rows) => html`<${Shown} rows=${rows.filter((row) => row.name.includes(filter))} columns=${columns} />`}
    <//>
    ${measured.error?.isDenied && html`<p class="quiet">Rates in bytes need Describe Cluster.</p>`}
  `
}

function Shown({ rows, columns }) {
  const bytes = useMemo(() => rows.reduce((sum, row) => sum + (row.bytes ?? 0), 0), [rows])
  return html`
    <p class="quiet">${plural(rows.length, 'topic')}, ${size(bytes)}</p>
    <${Table} caption="Topics" columns=${columns} rows=${rows} id=${(row) => row.name} empty="There are no topics that you may see." />
  `
}

const PARTITION_COLUMNS = [
  { title: 'Partition', value: (row) => row.partition, cell: (row) => html`<a href=${href('records', row.topic, row.partition)}>${row.partition}</a>` },
  { title: 'Start', isNumber: true, value: (row) => row.start_offset, cell: (row) => count(row.start_offset) },
  { title: 'End', isNumber: true, value: (row) => row.end_offset, cell: (row) => count(row.end_offset) },
  { title: 'Size', isNumber: true, value: (row) => row.size_bytes, cell: (row) => size(row.size_bytes) },
  { title: 'Segments', isNumber: true, value: (row) => row.segment_count, cell: (row) => count(row.segment_count) },
  { title: 'Leader', isNumber: true, value: (row) => row.leader, cell: (row) => row.leader ?? 'none' },
  { title: 'Epoch', isNumber: true, cell: (row) => row.leader_epoch },
  { title: 'Replicas', cell: (row) => row.replicas.join(', ') },
  { title: 'In sync', cell: (row) => html`<span class=${row.in_sync.length < row.replicas.length ? 'bad' : ''}>${row.in_sync.join(', ') || 'none'}</span>` },
  { title: 'State', cell: (row) => (row.read_only_reason ? html`<span class="bad">Read only: <${Text} of=${row.read_only_reason} /></span>` : 'Writable') },
]

function Topic({ name }) {
  const loaded = useLoad((signal) => call('describe_topic', { name }, signal), [name], EVERY_MS)
  return html`
    <h1><a href=${href('topics')}>Topics</a> / <span class="data"><${Text} of=${name} /></span></h1>
    <p class="bar"><a href=${href('records', name)}>Records</a><a href=${href('configs', name)}>Configs</a></p>
    <${Loaded} from=${loaded} what=${`the topic ${name}`}>
      ${(topic) => html`
        <p class="quiet">Id <span class="data">${topic.topic_id}</span></p>
        <${Table} caption="Partitions" columns=${PARTITION_COLUMNS} rows=${topic.partitions.map((one) => ({ ...one, topic: name }))} id=${(row) => row.partition} />`}
    <//>
  `
}
