// One record as a row, and all of it below the row.

import { html, useState } from './html.js'
import { Table, Text } from './parts.js'
import { count, hex, hexDump, plural, pretty, read, size, time } from './text.js'

const NO_TIMESTAMP = -1
const PREVIEW = 160
const SHOWN = { JSON: 20_000, Text: 20_000, Hex: 4_096 } // characters, or bytes: more on request

/** Bytes in one line. */
export function Preview({ bytes }) {
  if (bytes === null) return html`<span class="quiet">null</span>`
  if (bytes.length === 0) return html`<span class="quiet">(empty)</span>`
  const { kind, text } = read(bytes.subarray(0, PREVIEW * 4))
  if (kind === 'binary' && isCutText(bytes)) return html`<${Text} of=${isCutText(bytes)} />`
  if (kind === 'binary') return html`${hex(bytes.subarray(0, 32))}${bytes.length > 32 ? '…' : ''}`
  return html`<${Text} of=${text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text} />`
}

/** The begin of a long text, of which a preview may cut a character. */
function isCutText(bytes) {
  for (let cut = 1; cut <= 3 && bytes.length > PREVIEW * 4; cut += 1) {
    const { kind, text } = read(bytes.subarray(0, PREVIEW * 4 - cut))
    if (kind !== 'binary') return `${text.slice(0, PREVIEW)}…`
  }
  return null
}

/** A row of the table of records, with a button that shows all of the record. */
export function Row({ record, hasPartition, columns }) {
  const [isOpen, setOpen] = useState(false)
  const place = hasPartition ? `${record.partition}, offset ${count(record.offset)}` : count(record.offset)
  return html`
    <tr class=${isOpen ? 'open' : ''}>
      <th scope="row" class="number">
        <button type="button" class="more" aria-expanded=${String(isOpen)} aria-label=${`Record ${place}`} onClick=${() => setOpen(!isOpen)}>
          <span aria-hidden="true">${isOpen ? '▾' : '▸'}</span> ${record.offset}
        </button>
      </th>
      ${hasPartition && html`<td class="number">${record.partition}</td>`}
      <td class="data time">${record.timestamp_ms === NO_TIMESTAMP ? 'none' : time(record.timestamp_ms)}</td>
      <td class="data key"><${Preview} bytes=${record.key} /></td>
      <td class="data value"><${Preview} bytes=${record.value} /></td>
      <td class="number">${record.headers.length || ''}</td>
      <td class="number">${size(record.size)}</td>
    </tr>
    ${isOpen && html`<tr class="whole"><td colspan=${columns}><div class="seen"><${Whole} record=${record} /></div></td></tr>`}
  `
}

const HEADERS = [
  { title: 'Name', isData: true, cell: (row) => html`<${Text} of=${row.name} />` },
  { title: 'Value', isData: true, cell: (row) => html`<${Preview} bytes=${row.value} />` },
]

function Whole({ record }) {
  return html`
    <dl>
      <dt>Place</dt><dd class="data">${record.topic}, partition ${record.partition}, offset ${record.offset}</dd>
      <dt>Timestamp</dt>
      <dd class="data">${record.timestamp_ms === NO_TIMESTAMP ? 'none' : `${time(record.timestamp_ms)} UTC (${record.timestamp_ms})`}</dd>
    </dl>
    <h2>Key</h2>
    <${Bytes} bytes=${record.key} name=${`${record.topic}-${record.partition}-${record.offset}.key`} what="key" />
    <h2>Value</h2>
    <${Bytes} bytes=${record.value} name=${`${record.topic}-${record.partition}-${record.offset}.value`} what="value" />
    ${record.headers.length > 0 && html`<h2>Headers</h2><${Table} caption="Headers" columns=${HEADERS} rows=${record.headers.map((one, at) => ({ ...one, at }))} id=${(row) => row.at} />`}
  `
}

/** Bytes as JSON, text or hexadecimal, which the user can choose, and save. */
function Bytes({ bytes, name, what }) {
  const [chosen, setChosen] = useState(null)
  const [isWhole, setWhole] = useState(false)
  if (bytes === null || bytes.length === 0) return html`<p class="quiet">${bytes === null ? 'null' : '(empty)'}</p>`
  const { kind, text } = read(bytes)
  const forms = { json: ['JSON', 'Text', 'Hex'], text: ['Text', 'Hex'], binary: ['Hex'] }[kind]
  const form = chosen ?? forms[0]
  const max = isWhole ? Infinity : SHOWN[form]
  const isCut = (form === 'Hex' ? bytes.length : text.length) > max
  const shown = form === 'Hex' ? hexDump(bytes.subarray(0, max)) : form === 'JSON' ? cut(pretty(text), max) : cut(text, max)
  return html`
    <p class="bar">
      <span class="quiet">${plural(bytes.length, 'byte')}</span>
      ${forms.length > 1 && html`<label>Show ${what} as <select value=${form} onChange=${(event) => setChosen(event.target.value)}>${forms.map((one) => html`<option key=${one}>${one}</option>`)}</select></label>`}
      <button type="button" onClick=${() => save(bytes, name)}>Save ${what}</button>
    </p>
    <pre class="data" tabindex="0" role="region" aria-label=${what}>${form === 'Hex' ? shown : html`<${Text} of=${shown} />`}</pre>
    ${isCut && html`<p><button type="button" onClick=${() => setWhole(true)}>Show all ${plural(bytes.length, 'byte')}</button></p>`}
  `
}

function cut(text, max) {
  return text.length > max ? `${text.slice(0, max)}…` : text
}

function save(bytes, name) {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }))
  link.download = name
  link.click()
  URL.revokeObjectURL(link.href)
}
