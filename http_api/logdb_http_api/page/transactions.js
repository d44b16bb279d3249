// Transactional ids, the state of each, and the transactions that are open.

import { call } from './api.js'
import { html, useState } from './html.js'
import { Loaded, Table, Text, useLoad } from './parts.js'
import { duration, plural, time } from './text.js'

const EVERY_MS = 5_000
const NAMED_MAX = 8

export const transactions = { id: 'transactions', title: 'Transactions', View: Transactions }

const isOpen = (row) => !['Empty', 'CompleteCommit', 'CompleteAbort'].includes(row.state)

const COLUMNS = [
  { title: 'Transactional id', value: (row) => row.transactional_id, isData: true, cell: (row) => html`<${Text} of=${row.transactional_id} />` },
  { title: 'State', value: (row) => row.state, cell: (row) => html`<${Text} of=${row.state} />` },
  { title: 'Started (UTC)', value: (row) => row.start_ms, isData: true, isTime: true, cell: (row) => (row.start_ms < 0 ? html`<span class="quiet">–</span>` : time(row.start_ms)) },
  { title: 'Open for', isNumber: true, value: (row) => (isOpen(row) ? -row.start_ms : -Infinity), cell: (row) => (isOpen(row) && row.start_ms >= 0 ? duration(Math.max(Date.now() - row.start_ms, 0)) : '') },
  { title: 'Timeout', isNumber: true, value: (row) => row.timeout_ms, cell: (row) => duration(row.timeout_ms) },
  { title: 'Producer', isNumber: true, cell: (row) => `${row.producer.producer_id} epoch ${row.producer.producer_epoch}` },
  { title: 'Partitions', isData: true, cell: (row) => html`<${Partitions} of=${row.partitions} />` },
]

function Partitions({ of }) {
  const names = of.slice(0, NAMED_MAX).map((one) => `${one.topic}-${one.partition}`)
  return html`<${Text} of=${names.join(', ') + (of.length > NAMED_MAX ? ` and ${of.length - NAMED_MAX} more` : '')} empty="" />`
}

function Transactions() {
  const [onlyOpen, setOnlyOpen] = useState(false)
  const loaded = useLoad((signal) => call('transactions', {}, signal), [], EVERY_MS)
  return html`
    <h1>Transactions</h1>
    <p class="bar"><label><input type="checkbox" checked=${onlyOpen} onChange=${(event) => setOnlyOpen(event.target.checked)} /> Only open ones</label></p>
    <${Loaded} from=${loaded} what="transactions">
      ${(all) => html`
        <p class="quiet">${plural(all.length, 'transactional id')}, ${plural(all.filter(isOpen).length, 'open transaction')}</p>
        <${Table} caption="Transactions" columns=${COLUMNS} rows=${onlyOpen ? all.filter(isOpen) : all} id=${(row) => row.transactional_id} empty="There are no transactional ids that you may see." />`}
    <//>
  `
}
