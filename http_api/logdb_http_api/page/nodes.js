// The nodes of a cluster, the voters of its quorum, partitions that lack replicas, and what recovery has found.

import { ask, call, inCluster } from './api.js'
import { html } from './html.js'
import { href, known, Loaded, Table, Text, useLoad } from './parts.js'
import { count } from './text.js'

const EVERY_MS = 5_000
const SILENT_MS = 10_000 // a voter answers several times a second

export const nodes = { id: 'nodes', title: 'Nodes', View: Nodes }

async function load(signal) {
  const [clusters, brokers, cluster] = await Promise.all([ask('v3/clusters', { signal }), inCluster('brokers', { signal }), call('cluster_nodes', {}, signal)])
  const { cluster_id, controller } = clusters.data[0]
  const controllerId = controller?.related ? Number(controller.related.split('/').at(-1)) : null
  const partitions = cluster.partitions.map(([place, state]) => ({ ...place, ...state }))
  const rows = new Map(brokers.data.map((one) => [one.broker_id, { id: one.broker_id, http: `${one.host.includes(':') ? `[${one.host}]` : one.host}:${one.port}`, rack: one.rack, isUp: true }]))
  const named = [...partitions.flatMap((one) => one.replicas), ...cluster.addresses.map(([id]) => id)]
  for (const id of named) if (!rows.has(id)) rows.set(id, { id, http: null, rack: null, isUp: cluster.serving.includes(id) })
  for (const row of rows.values()) {
    row.isController = row.id === controllerId
    row.leads = partitions.filter((one) => one.leader === row.id).length
    row.replicas = partitions.filter((one) => one.replicas.includes(row.id)).length
    row.inSync = partitions.filter((one) => one.in_sync.includes(row.id)).length
  }
  const lacking = partitions.filter((one) => one.leader === null || one.in_sync.length < one.replicas.length || one.target.length > 0)
  return { id: cluster_id, isCluster: partitions.length > 0 || rows.size > 1, rows: [...rows.values()].sort((a, b) => a.id - b.id), lacking }
}

const NODE = [
  { title: 'Node', value: (row) => row.id, cell: (row) => row.id },
  { title: 'Address', isData: true, cell: (row) => known(row.http, (place) => (place === location.host ? place : html`<a href=${`${location.protocol}//${place}/`} rel="noreferrer">${place}</a>`)) },
  { title: 'Rack', value: (row) => row.rack ?? '', isData: true, cell: (row) => known(row.rack, (rack) => html`<${Text} of=${rack} />`) },
  { title: 'State', value: (row) => Number(row.isUp), cell: (row) => (row.isUp ? 'serves' : html`<span class="bad">is down</span>`) },
]
const IN_CLUSTER = [
  { title: 'Controller', cell: (row) => (row.isController ? 'leads the quorum' : '') },
  { title: 'Leads', isNumber: true, value: (row) => row.leads, cell: (row) => count(row.leads) },
  { title: 'Replicas', isNumber: true, value: (row) => row.replicas, cell: (row) => count(row.replicas) },
  { title: 'In sync', isNumber: true, value: (row) => row.inSync, cell: (row) => html`<span class=${row.inSync < row.replicas ? 'bad' : ''}>${count(row.inSync)}</span>` },
]
const VOTER = [
  { title: 'Node', value: (row) => row.node_id, cell: (row) => row.node_id },
  { title: 'Address', isData: true, cell: (row) => known(row.address, (place) => html`<${Text} of=${place} />`) },
  { title: 'State', cell: (row) => (row.isBad ? html`<span class="bad">${row.state}</span>` : row.state) },
  { title: 'Commands behind', isNumber: true, value: (row) => row.behind, cell: (row) => known(row.behind, count) },
]
const LACKING = [
  { title: 'Topic', value: (row) => row.topic, isData: true, cell: (row) => html`<a href=${href('topics', row.topic)}><${Text} of=${row.topic} /></a>` },
  { title: 'Partition', isNumber: true, value: (row) => row.partition, cell: (row) => row.partition },
  { title: 'Leader', isNumber: true, cell: (row) => row.leader ?? html`<span class="bad">none</span>` },
  { title: 'Replicas', cell: (row) => row.replicas.join(', ') },
  { title: 'In sync', cell: (row) => row.in_sync.join(', ') || 'none' },
  { title: 'Moves to', cell: (row) => row.target.join(', ') },
]

/** Each voter with its state, as the leader knows it; without a leader nothing is known. */
function votersOf({ leader, committed, voters }) {
  return voters.map((one) => {
    const behind = leader === null || one.end === null ? null : Math.max(committed - one.end, 0)
    if (leader === null) return { ...one, behind, state: 'unknown' }
    if (one.node_id === leader) return { ...one, behind, state: 'leads' }
    if (one.answered_ms_ago === null) return { ...one, behind, state: 'has not answered the leader', isBad: true }
    if (one.answered_ms_ago > SILENT_MS) return { ...one, behind, state: `silent for ${count(Math.round(one.answered_ms_ago / 1000))} s`, isBad: true }
    return { ...one, behind, state: 'follows' }
  })
}

function Quorum() {
  const loaded = useLoad((signal) => ask('logdb/v1/quorum', { signal }), [], EVERY_MS)
  return html`
    <h2>Quorum</h2>
    <${Loaded} from=${loaded} what="the quorum">
      ${(quorum) => html`
        <p>${quorum.leader === null ? html`<span class="bad">No voter leads the quorum, as far as this node knows.</span>` : `Node ${quorum.leader} leads the quorum, in term ${count(quorum.term)}.`}</p>
        <${Table} caption="Voters of the quorum" columns=${VOTER} rows=${votersOf(quorum)} id=${(row) => row.node_id} />`}
    <//>
  `
}

function Nodes() {
  const loaded = useLoad(load, [], EVERY_MS)
  const reports = useLoad((signal) => ask('logdb/v1/reports', { signal }), [])
  return html`
    <h1>Nodes</h1>
    <${Loaded} from=${loaded} what="nodes">
      ${({ id, isCluster, rows, lacking }) => html`
        <dl><dt>Cluster</dt><dd class="data">${id}</dd></dl>
        <${Table} caption="Nodes" columns=${isCluster ? [...NODE, ...IN_CLUSTER] : NODE} rows=${rows} id=${(row) => row.id} />
        ${isCluster && html`<${Quorum} />
          <h2>Partitions without all their replicas in sync</h2>
          <${Table} caption="Partitions without all their replicas in sync" columns=${LACKING} rows=${lacking} id=${(row) => `${row.topic}/${row.partition}`} />`}`}
    <//>
    <h2>Recovery</h2>
    <${Loaded} from=${reports} what="the reports of recovery">
      ${(all) => (all.length === 0 ? html`<p class="quiet">The last opening found nothing to recover.</p>` : html`<ul>${all.map((one, at) => html`<li key=${at}><${Text} of=${one} /></li>`)}</ul>`)}
    <//>
  `
}
