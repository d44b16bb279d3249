// Consumer groups with their lag; the members and partitions of one group.

import { call, extents, forEach } from './api.js'
import { html, useState } from './html.js'
import { href, known, Loaded, Table, Text, useLoad } from './parts.js'
import { count, fromBase64, plural } from './text.js'

const EVERY_MS = 5_000
const WITH_LAG_MAX = 200 // groups: each is a request

export const groups = { id: 'groups', title: 'Groups', View: ({ parts }) => (parts[0] ? html`<${Group} key=${parts[0]} name=${parts[0]} />` : html`<${Groups} />`) }

/** What a group has committed: `{topic, partition, offset, end, lag}`, the last two null where no node tells. */
async function positions(group_id, signal) {
  const committed = await call('fetch_offsets', { group_id }, signal)
  const found = await extents(committed.map(([one]) => [one.topic, one.partition]), signal)
  return committed.map(([one, { offset, metadata }], at) => {
    const end = found[at]?.end ?? null
    return { ...one, offset, metadata, end, lag: end === null ? null : Math.max(end - offset, 0) }
  })
}

function sumOfLag(rows) {
  return rows.some((row) => row.lag === null) ? null : rows.reduce((sum, row) => sum + row.lag, 0)
}

async function summaries(signal) {
  const found = await call('groups', {}, signal)
  const lags = await forEach(found.slice(0, WITH_LAG_MAX), async ({ group_id }) => {
    try {
      const [rows, info] = await Promise.all([positions(group_id, signal), call('describe_group', { group_id }, signal)])
      return { lag: sumOfLag(rows), topics: new Set(rows.map((row) => row.topic)).size, members: info.members.length }
    } catch (error) {
      if (error.status === 404) return undefined // it was deleted meanwhile
      throw error
    }
  })
  return found.map((group, at) => ({ ...group, ...(lags[at] ?? { lag: null, topics: null, members: null }) }))
}

const COLUMNS = [
  { title: 'Group', value: (row) => row.group_id, isData: true, cell: (row) => html`<a href=${href('groups', row.group_id)}><${Text} of=${row.group_id} /></a>` },
  { title: 'State', value: (row) => row.state, cell: (row) => html`<${Text} of=${row.state} />` },
  { title: 'Members', isNumber: true, value: (row) => row.members, cell: (row) => known(row.members, count) },
  { title: 'Topics', isNumber: true, value: (row) => row.topics, cell: (row) => known(row.topics, count) },
  { title: 'Lag', isNumber: true, value: (row) => row.lag, cell: (row) => known(row.lag, count) },
]

function Groups() {
  const [filter, setFilter] = useState('')
  const loaded = useLoad(summaries, [], EVERY_MS)
  return html`
    <h1>Groups</h1>
    <form class="bar" onSubmit=${(event) => event.preventDefault()}>
      <label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} spellcheck="false" /></label>
    </form>
    <${Loaded} from=${loaded} what="groups">
      ${(all) => {
        const rows = all.filter((row) => row.group_id.includes(filter))
        return html`
          <p class="quiet">${plural(rows.length, 'group')}</p>
          <${Table} caption="Groups" columns=${COLUMNS} rows=${rows} id=${(row) => row.group_id} empty="There are no groups that you may see." />`
      }}
    <//>
  `
}

/** The partitions of a member, "topic/number", from the bytes that its group's leader has assigned; empty if they have another form. */
function assigned(bytes) {
  const found = []
  try {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    const text = new TextDecoder()
    let at = 2
    const topics = view.getInt32(at)
    at += 4
    for (let n = 0; n < topics; n += 1) {
      const length = view.getInt16(at)
      const topic = text.decode(bytes.subarray(at + 2, at + 2 + length))
      const partitions = view.getInt32(at + 2 + length)
      at += 6 + length
      for (let p = 0; p < partitions; p += 1, at += 4) found.push(`${topic}/${view.getInt32(at)}`)
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    return []
  }
  return found
}

const MEMBERS = [
  { title: 'Member', value: (row) => row.member_id, isData: true, cell: (row) => html`<${Text} of=${row.member_id} />` },
  { title: 'Instance', isData: true, cell: (row) => known(row.group_instance_id, (id) => html`<${Text} of=${id} />`) },
  { title: 'Client', value: (row) => row.client_id, isData: true, cell: (row) => html`<${Text} of=${row.client_id} />` },
  { title: 'Host', value: (row) => row.client_host, isData: true, cell: (row) => html`<${Text} of=${row.client_host} empty="–" />` },
  { title: 'Partitions', isNumber: true, value: (row) => row.assigned.length, cell: (row) => count(row.assigned.length) },
]

const POSITIONS = [
  { title: 'Topic', value: (row) => row.topic, isData: true, cell: (row) => html`<a href=${href('records', row.topic, row.partition)}><${Text} of=${row.topic} /></a>` },
  { title: 'Partition', isNumber: true, value: (row) => row.partition, cell: (row) => row.partition },
  { title: 'Committed', isNumber: true, value: (row) => row.offset, cell: (row) => count(row.offset) },
  { title: 'End', isNumber: true, value: (row) => row.end, cell: (row) => known(row.end, count) },
  { title: 'Lag', isNumber: true, value: (row) => row.lag, cell: (row) => known(row.lag, count) },
  { title: 'Member', isData: true, cell: (row) => known(row.member, (id) => html`<${Text} of=${id} />`) },
]

function Group({ name }) {
  const loaded = useLoad(async (signal) => {
    const [info, rows] = await Promise.all([call('describe_group', { group_id: name }, signal), positions(name, signal)])
    const isConsumers = info.protocol_type === 'consumer'
    const members = info.members.map((one) => ({ ...one, assigned: isConsumers ? assigned(fromBase64(one.assignment)) : [] }))
    const owners = new Map(members.flatMap((member) => member.assigned.map((partition) => [partition, member.member_id])))
    return { info, members, rows: rows.map((row) => ({ ...row, member: owners.get(`${row.topic}/${row.partition}`) ?? null })) }
  }, [name], EVERY_MS)
  return html`
    <h1><a href=${href('groups')}>Groups</a> / <span class="data"><${Text} of=${name} /></span></h1>
    <${Loaded} from=${loaded} what="this group">
      ${({ info, members, rows }) => html`
        <dl>
          <dt>State</dt><dd><${Text} of=${info.state} /></dd>
          <dt>Protocol</dt><dd><${Text} of=${[info.protocol_type, info.protocol].filter(Boolean).join(', ')} empty="none" /></dd>
          <dt>Generation</dt><dd>${count(info.generation)}</dd>
          <dt>Lag</dt><dd>${known(sumOfLag(rows), count)}</dd>
        </dl>
        <h2>Partitions</h2>
        <${Table} caption="Partitions" columns=${POSITIONS} rows=${rows} id=${(row) => `${row.topic}/${row.partition}`} empty="The group has committed no offsets of topics that you may see." />
        <h2>Members</h2>
        <${Table} caption="Members" columns=${MEMBERS} rows=${members} id=${(row) => row.member_id} empty="The group has no members." />`}
    <//>
  `
}
