// Small plots of the server's metrics, and all of them as a table.

import { html, useState } from './html.js'
import { rate, total, useMeasured } from './measured.js'
import { Denied, known, Problem, Table } from './parts.js'
import { count, duration, short, size } from './text.js'

export const metrics = { id: 'metrics', title: 'Metrics', View: Metrics }

const IN = 'kafka_server_brokertopicmetrics_messagesin_total'
const BYTES_IN = 'kafka_server_brokertopicmetrics_bytesin_total'
const BYTES_OUT = 'kafka_server_brokertopicmetrics_bytesout_total'

/** A plot: the family, whether its growth in a second is drawn, how a number is written. One without samples is left out. */
const PLOTS = [
  { title: 'Records in', unit: '/s', family: IN, isRate: true, write: short },
  { title: 'Bytes in', unit: '/s', family: BYTES_IN, isRate: true, write: size },
  { title: 'Bytes out', unit: '/s', family: BYTES_OUT, isRate: true, write: size },
  { title: 'Size of all logs', unit: '', family: 'kafka_log_log_size', isRate: false, write: size },
  { title: 'Lag of all groups', unit: '', family: 'kafka_consumergroup_lag', isRate: false, write: short },
  { title: 'Under-replicated partitions', unit: '', family: 'kafka_topic_partition_under_replicated_partition', isRate: false, write: short },
]

function Metrics() {
  const { snapshots, error } = useMeasured()
  const [filter, setFilter] = useState('')
  if (error?.isDenied) return html`<h1>Metrics</h1><${Denied} error=${error} what="metrics" />`
  const last = snapshots.at(-1)
  const rows = last ? [...last.families].filter(([name, family]) => name.includes(filter) || family.help.toLowerCase().includes(filter.toLowerCase())).map(([name, family]) => ({ name, ...family, total: name.endsWith('_bucket') ? null : total(last, name) })) : []
  return html`
    <h1>Metrics</h1>
    <${Problem} error=${error} />
    ${!last && !error && html`<p class="quiet">Loading…</p>`}
    <ul class="plots">${PLOTS.filter((plot) => total(last, plot.family) !== null).map((plot) => html`<${Plot} key=${plot.family} ...${plot} points=${points(snapshots, plot)} />`)}</ul>
    ${last && html`
      <h2>All metrics of this server</h2>
      <p class="bar"><label>Filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} spellcheck="false" /></label></p>
      <${Table} caption="All metrics of this server" columns=${COLUMNS} rows=${rows} id=${(row) => row.name} />`}
  `
}

const COLUMNS = [
  { title: 'Metric', value: (row) => row.name, isData: true, cell: (row) => row.name },
  { title: 'Meaning', cell: (row) => row.help },
  { title: 'Kind', value: (row) => row.kind, cell: (row) => row.kind },
  { title: 'Samples', isNumber: true, value: (row) => row.samples.length, cell: (row) => count(row.samples.length) },
  { title: 'Sum', isNumber: true, value: (row) => row.total, cell: (row) => known(row.total, (sum) => (Number.isInteger(sum) ? count(sum) : short(sum))) },
]

/** What a plot draws: `{ms, value}`, the newest last. */
function points(snapshots, { family, isRate }) {
  const found = isRate
    ? snapshots.slice(1).map((after, at) => ({ ms: after.ms, value: rate(snapshots[at], after, family) }))
    : snapshots.map((one) => ({ ms: one.ms, value: total(one, family) }))
  return found.filter((one) => one.value !== null)
}

const [WIDTH, HEIGHT] = [240, 48]

function Plot({ title, unit, write, points }) {
  const values = points.map((one) => one.value)
  const max = Math.max(...values, 0)
  const span = points.length > 1 ? points.at(-1).ms - points[0].ms : 0
  const x = (ms) => (span === 0 ? WIDTH : ((ms - points[0].ms) / span) * WIDTH)
  const y = (value) => HEIGHT - 1 - (max === 0 ? 0 : (value / max) * (HEIGHT - 2))
  const line = points.map((one, at) => `${at === 0 ? 'M' : 'L'}${x(one.ms).toFixed(1)} ${y(one.value).toFixed(1)}`).join('')
  const now = points.length === 0 ? 'Measuring…' : `${write(values.at(-1))}${unit}`
  const said = span === 0 ? '' : `at most ${write(max)}${unit} in ${duration(Math.round(span / 1000) * 1000)}`
  return html`
    <li>
      <h2>${title}</h2>
      <p class="now">${now}</p>
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${`${title}: now ${now}${said && `, ${said}`}`}>
        <path class="base" d="M0 ${HEIGHT - 0.5}H${WIDTH}" />
        ${points.length > 1 && html`<path class="line" d=${line} />`}
      </svg>
      <p class="quiet">${said || html`\u00a0`}</p>
    </li>
  `
}
