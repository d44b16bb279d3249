// Connectors and tasks of the Connect worker that the server knows: states, traces, and what a user may do with them.

import { ask, path } from './api.js'
import { html, useState } from './html.js'
import { href, Loaded, Problem, Table, Text, useLoad } from './parts.js'
import { plural } from './text.js'

const EVERY_MS = 5_000
const LOOK_MS = 700 // after a change: the worker obeys soon

export const connect = { id: 'connect', title: 'Connect', View: ({ parts }) => html`<${Connect} key=${parts[0] ?? ''} name=${parts[0] || null} />` }

const load = (signal) => ask('logdb/v1/connect/connectors', { signal })

function State({ of }) {
  return html`<span class=${of === 'FAILED' ? 'bad' : ''}><${Text} of=${of} /></span>`
}

/** "3 RUNNING, 1 FAILED". */
function Tasks({ of }) {
  const counts = new Map()
  for (const { state } of of) counts.set(state, (counts.get(state) ?? 0) + 1)
  if (counts.size === 0) return html`<span class="quiet">none</span>`
  return [...counts].map(([state, number], at) => html`${at > 0 && ', '}${number} <${State} of=${state} />`)
}

const COLUMNS = [
  { title: 'Connector', value: (row) => row.name, isData: true, cell: (row) => html`<a href=${href('connect', row.name)}><${Text} of=${row.name} /></a>` },
  { title: 'Type', value: (row) => row.type, cell: (row) => html`<${Text} of=${row.type} />` },
  { title: 'State', value: (row) => row.state, cell: (row) => html`<${State} of=${row.state} />` },
  { title: 'Tasks', cell: (row) => html`<${Tasks} of=${row.tasks} />` },
  { title: 'Worker', value: (row) => row.worker, isData: true, cell: (row) => html`<${Text} of=${row.worker} empty="–" />` },
]

function Connect({ name }) {
  const loaded = useLoad(load, [], EVERY_MS)
  return html`
    <h1>${name === null ? 'Connect' : html`<a href=${href('connect')}>Connect</a> / <span class="data"><${Text} of=${name} /></span>`}</h1>
    <${Loaded} from=${loaded} what="connectors">
      ${({ worker, connectors }) => {
        if (worker === null) return html`<p class="quiet">This server knows no Connect worker. Start it with <span class="data">--connect-url URL</span>.</p>`
        if (name === null) return html`<${Connectors} worker=${worker} rows=${connectors} />`
        const found = connectors.find((one) => one.name === name)
        return found ? html`<${Connector} of=${found} reload=${loaded.reload} />` : html`<p class="quiet">The worker has no connector of this name.</p>`
      }}
    <//>
  `
}

function Connectors({ worker, rows }) {
  return html`
    <p class="quiet">${plural(rows.length, 'connector')} of <span class="data"><${Text} of=${worker} /></span></p>
    <${Table} caption="Connectors" columns=${COLUMNS} rows=${rows} id=${(row) => row.name} empty="The worker has no connectors." />
  `
}

function Connector({ of, reload }) {
  const [status, setStatus] = useState({ said: '', error: null, isBusy: false })
  const change = (said, url) => async () => {
    setStatus({ said: '', error: null, isBusy: true })
    try {
      await ask(url, { method: 'POST' })
      setStatus({ said, error: null, isBusy: false })
      setTimeout(reload, LOOK_MS)
    } catch (error) {
      setStatus({ said: '', error, isBusy: false })
    }
  }
  const button = (label, said, url) => html`<button type="button" disabled=${status.isBusy} onClick=${change(said, url)}>${label}</button>`
  const act = (label, said, action) => button(label, said, path`logdb/v1/connect/connectors/${of.name}/${action}`)
  const columns = [
    { title: 'Task', isNumber: true, value: (row) => row.id, cell: (row) => row.id },
    { title: 'State', value: (row) => row.state, cell: (row) => html`<${State} of=${row.state} />` },
    { title: 'Worker', value: (row) => row.worker, isData: true, cell: (row) => html`<${Text} of=${row.worker} empty="–" />` },
    { title: 'Change', cell: (row) => button(`Restart task ${row.id}`, `Task ${row.id} restarts.`, path`logdb/v1/connect/connectors/${of.name}/tasks/${row.id}/restart`) },
  ]
  const traces = [{ title: 'The connector', trace: of.trace }, ...of.tasks.map((one) => ({ title: `Task ${one.id}`, trace: one.trace }))].filter((one) => one.trace)
  return html`
    <dl>
      <dt>Type</dt><dd><${Text} of=${of.type} /></dd>
      <dt>State</dt><dd><${State} of=${of.state} /></dd>
      <dt>Worker</dt><dd class="data"><${Text} of=${of.worker} empty="–" /></dd>
    </dl>
    <p class="bar">
      ${act('Pause', 'The connector pauses.', 'pause')}
      ${act('Resume', 'The connector resumes.', 'resume')}
      ${act('Restart with its tasks', 'The connector and its tasks restart.', 'restart')}
      <span role="status">${status.said}</span>
    </p>
    <${Problem} error=${status.error} />
    <h2>Tasks</h2>
    <${Table} caption="Tasks" columns=${columns} rows=${of.tasks} id=${(row) => row.id} empty="The connector has no tasks." />
    ${traces.map((one) => html`<h2 key=${one.title}>${one.title} has failed</h2><pre tabindex="0" role="region" aria-label=${`Trace: ${one.title}`}><${Text} of=${one.trace} /></pre>`)}
  `
}
