// Elements that several tabs share.

import { html, useEffect, useRef, useState } from './html.js'
import { count, plural, visible } from './text.js'

/** Text from outside. Its direction cannot change that of the page, and hidden characters are shown. */
export function Text({ of, empty = '(empty)' }) {
  if (of === '') return html`<span class="quiet">${empty}</span>`
  const pieces = visible(String(of))
  return html`<bdi>${pieces.map((piece, at) => (at % 2 ? html`<span class="hidden-character" title="A hidden character">${piece}</span>` : piece))}</bdi>`
}

export function Problem({ error, children }) {
  if (!error) return null
  return html`<p class="problem" role="alert">${children} <${Text} of=${error.message} /></p>`
}

/** Why a part of the page is empty: the principal lacks a right. */
export function Denied({ error, what }) {
  return html`<p class="quiet">You may not see ${what}. <${Text} of=${error.message} /></p>`
}

/** A region that scrolls sideways in a narrow window, also by keyboard. */
export function Wide({ label, children }) {
  return html`<div class="wide" role="region" aria-label=${label} tabindex="0">${children}</div>`
}

const ROWS_MAX = 50

/**
 * A table in pages of 50 rows.
 *
 * columns: `{title, cell(row), value(row), isNumber, isData, isTime}`. A column that has `value` can be sorted by.
 * id(row): names a row.
 */
export function Table({ caption, columns, rows, id, empty = 'None.' }) {
  const [sorting, setSorting] = useState({ by: null, down: false })
  const [page, setPage] = useState(0)
  const pages = Math.max(1, Math.ceil(rows.length / ROWS_MAX))
  const at = Math.min(page, pages - 1)
  const column = columns.find((one) => one.title === sorting.by)
  const sorted = column ? [...rows].sort((a, b) => order(column.value(a), column.value(b)) * (sorting.down ? -1 : 1)) : rows
  const shown = sorted.slice(at * ROWS_MAX, (at + 1) * ROWS_MAX)
  const sort = (one) => setSorting(sorting.by === one.title ? { by: one.title, down: !sorting.down } : { by: one.title, down: Boolean(one.isNumber) })
  return html`
    <${Wide} label=${caption}>
      <table>
        <caption class="unseen">${caption}</caption>
        <thead>
          <tr>${columns.map((one) => html`<${Heading} key=${one.title} column=${one} sorting=${sorting} sort=${sort} />`)}</tr>
        </thead>
        <tbody>
          ${shown.map((row) => html`<tr key=${id(row)}>${columns.map((one, n) => html`<${Cell} key=${one.title} column=${one} row=${row} isFirst=${n === 0} />`)}</tr>`)}
          ${rows.length === 0 && html`<tr><td class="quiet" colspan=${columns.length}>${empty}</td></tr>`}
        </tbody>
      </table>
    <//>
    ${pages > 1 && html`<${Pages} at=${at} pages=${pages} rows=${rows.length} go=${setPage} />`}
  `
}

function Heading({ column, sorting, sort }) {
  const isBy = sorting.by === column.title
  const sorted = isBy ? (sorting.down ? 'descending' : 'ascending') : undefined
  return html`<th scope="col" class=${column.isNumber ? 'number' : ''} aria-sort=${sorted}>
    ${column.value ? html`<button type="button" class="sort" onClick=${() => sort(column)}>${column.title}<span aria-hidden="true">${isBy ? (sorting.down ? ' ↓' : ' ↑') : ''}</span></button>` : column.title}
  </th>`
}

function Cell({ column, row, isFirst }) {
  const kind = [column.isNumber && 'number', column.isData && 'data', column.isTime && 'time'].filter(Boolean).join(' ')
  return isFirst ? html`<th scope="row" class=${kind}>${column.cell(row)}</th>` : html`<td class=${kind}>${column.cell(row)}</td>`
}

function Pages({ at, pages, rows, go }) {
  return html`<p class="pages">
    <button type="button" disabled=${at === 0} onClick=${() => go(at - 1)}>Previous</button>
    <span>Page ${count(at + 1)} of ${count(pages)}, ${plural(rows, 'row')}</span>
    <button type="button" disabled=${at === pages - 1} onClick=${() => go(at + 1)}>Next</button>
  </p>`
}

function order(a, b) {
  return typeof a === 'string' ? a.localeCompare(b) : (a ?? -1) - (b ?? -1)
}

/**
 * Load something: `{data, error, isLoading, reload}`.
 *
 * load(signal): a promise. `of`: what it depends on. `everyMs`: load again, while the page is seen;
 * what takes long is loaded less often.
 * What was loaded before stays until there is something new.
 */
export function useLoad(load, of, everyMs = null) {
  const [state, setState] = useState({ data: undefined, error: null, isLoading: true })
  const [turn, setTurn] = useState(0)
  const known = useRef(of)
  useEffect(() => {
    const control = new AbortController()
    let timer = null
    const isOther = known.current.some((one, at) => one !== of[at])
    known.current = of
    setState((before) => ({ data: isOther ? undefined : before.data, error: isOther ? null : before.error, isLoading: true }))
    const run = async () => {
      if (document.hidden) {
        document.addEventListener('visibilitychange', run, { once: true, signal: control.signal })
        return
      }
      const began = performance.now()
      try {
        const data = await load(control.signal)
        if (!control.signal.aborted) setState({ data, error: null, isLoading: false })
      } catch (error) {
        if (control.signal.aborted) return
        setState((before) => ({ data: before.data, error, isLoading: false }))
      }
      if (everyMs !== null && !control.signal.aborted) timer = setTimeout(run, Math.max(everyMs, 10 * (performance.now() - began)))
    }
    run()
    return () => {
      control.abort()
      clearTimeout(timer)
    }
  }, [...of, turn])
  return { ...state, reload: () => setTurn((before) => before + 1) }
}

/** What `useLoad` gives, as elements: the data, or why there is none. */
export function Loaded({ from, what, children }) {
  if (from.error?.isDenied) return html`<${Denied} error=${from.error} what=${what} />`
  return html`
    <${Problem} error=${from.error} />
    ${from.data === undefined ? !from.error && html`<p class="quiet">Loading…</p>` : children(from.data)}
  `
}

/** A number that may be unknown. */
export function known(value, shown) {
  return value === null || value === undefined ? html`<span class="quiet">–</span>` : shown(value)
}

/** A part of the URL behind #: href('records', topic, 0). */
export function href(...parts) {
  return `#/${parts.map(encodeURIComponent).join('/')}`
}
