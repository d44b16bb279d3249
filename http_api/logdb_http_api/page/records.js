// The record browser: the newest records, those from an offset or a time, a search, and new records as they come.

import { call } from './api.js'
import { html, useEffect, useRef, useState } from './html.js'
import { href, Loaded, Problem, useLoad, Wide } from './parts.js'
import { follow, matcher, offsetAt, page, ranges } from './reading.js'
import { Row } from './record.js'
import { count, plural } from './text.js'

const FOLLOWED_MAX = 500
const FOLLOWED_BYTES = 16 << 20
const SHOW_EVERY_MS = 200
const TOPICS_EVERY_MS = 10_000
const PARTITIONS_MAX = 64 // one request each

export const records = { id: 'records', title: 'Records', View: Records }

function Records({ parts }) {
  const [topic = '', partition = ''] = parts
  const loaded = useLoad(async (signal) => new Map((await call('topics', { internal: true }, signal)).map((one) => [one.name, one])), [], TOPICS_EVERY_MS)
  const go = (event) => {
    const { name, value } = event.target
    location.hash = name === 'topic' ? (value ? href('records', value) : href('records')) : value === '' ? href('records', topic) : href('records', topic, value)
  }
  return html`
    <h1>Records</h1>
    <${Loaded} from=${loaded} what="topics">
      ${(topics) => {
        const found = topics.get(topic)
        return html`
          <div class="bar">
            <label>Topic <select name="topic" value=${topic} onChange=${go}>
              <option value="">Choose a topic</option>
              ${[...topics.keys()].map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
            </select></label>
            ${found && html`<label>Partition <select name="partition" value=${partition} onChange=${go}>
              <option value="">All</option>
              ${Array.from({ length: found.partition_count }, (_, number) => html`<option key=${number} value=${String(number)}>${number}</option>`)}
            </select></label>`}
          </div>
          ${topic !== '' && !found && html`<${Problem} error=${{ message: `There is no topic ${topic} that you may see.` }} />`}
          ${found && html`<${Browser} key=${`${topic}/${partition}`} topic=${found} partition=${partition === '' ? null : Number(partition)} />`}
        `
      }}
    <//>
  `
}

const FIRST = { from: 'newest', offset: '0', time: '', count: '50', isolation: 'read_committed', search: '' }

/**
 * The records of a topic, or of one partition.
 *
 * shown: `{records, ranges, isBackward, query, note}`, of the last page. job: what runs now, "reading" or "following"; it ends by `stop`.
 */
function Browser({ topic, partition }) {
  const [query, setQuery] = useState(FIRST)
  const [shown, setShown] = useState(null)
  const [job, setJob] = useState(null)
  const [progress, setProgress] = useState('')
  const [problem, setProblem] = useState(null)
  const control = useRef(new AbortController())

  const stop = () => {
    control.current.abort()
    setJob(null)
  }
  const begin = async (name, work) => {
    control.current.abort()
    const { signal } = (control.current = new AbortController())
    setJob(name)
    setProblem(null)
    setProgress('')
    try {
      await work(signal)
    } catch (error) {
      if (!signal.aborted) setProblem(error)
    }
    if (!signal.aborted) setJob(null)
  }
  const read = (from) => begin('reading', (signal) => readPage(topic, partition, query, from, setShown, setProgress, signal))
  const listen = () => begin('following', (signal) => followTopic(topic, partition, query, setShown, setProgress, signal))
  useEffect(() => {
    read(null)
    return () => control.current.abort()
  }, [])

  return html`
    <${Query} query=${query} setQuery=${setQuery} partition=${partition} job=${job} read=${() => read(null)} follow=${listen} stop=${stop} />
    <${Problem} error=${problem} />
    <p class="quiet" role="status">${progress}</p>
    ${shown && html`<${Shown} shown=${shown} hasPartition=${partition === null} isBusy=${job !== null} more=${() => read(shown)} />`}
  `
}

function Query({ query, setQuery, partition, job, read, follow, stop }) {
  const set = (event) => setQuery({ ...query, [event.target.name]: event.target.value })
  const submit = (event) => {
    event.preventDefault()
    read()
  }
  return html`
    <form class="bar" role="search" onSubmit=${submit}>
      <label>From <select name="from" value=${query.from} onChange=${set}>
        <option value="newest">the newest</option>
        <option value="oldest">the oldest</option>
        ${partition !== null && html`<option value="offset">an offset</option>`}
        <option value="time">a time</option>
      </select></label>
      ${query.from === 'offset' && html`<label>Offset <input name="offset" inputmode="numeric" pattern="[0-9]+" required size="12" value=${query.offset} onInput=${set} /></label>`}
      ${query.from === 'time' && html`<label>Time (UTC) <input name="time" type="datetime-local" step="1" required value=${query.time} onInput=${set} /></label>`}
      <label>Count <select name="count" value=${query.count} onChange=${set}>${['20', '50', '200', '1000'].map((one) => html`<option key=${one}>${one}</option>`)}</select></label>
      <label>Isolation <select name="isolation" value=${query.isolation} onChange=${set}>
        <option value="read_committed">committed</option>
        <option value="read_uncommitted">uncommitted</option>
      </select></label>
      <label>Search <input name="search" type="search" spellcheck="false" placeholder="key, value or header" value=${query.search} onInput=${set} /></label>
      <span class="group">
        <button class="main">Read</button>
        ${job === 'following' ? html`<button type="button" aria-pressed="true" onClick=${stop}>Stop</button>` : html`<button type="button" onClick=${follow}>Follow</button>`}
        ${job === 'reading' && html`<button type="button" onClick=${stop}>Stop</button>`}
      </span>
    </form>
  `
}

/** Read a page and show it; `from`: the page before it, null: the first one that the query asks for. */
async function readPage(topic, partition, query, from, show, tell, signal) {
  const isBackward = from ? from.isBackward : query.from === 'newest'
  const asked = from ? from.query : query
  const places = from ? from.ranges : await firstRanges(topic, partition, query, signal)
  let told = 0
  const scanned = (number) => {
    if (performance.now() - told < SHOW_EVERY_MS) return
    told = performance.now()
    tell(`${plural(number, 'record')} read…`)
  }
  const wanted = { topic: topic.name, isolation: asked.isolation, matches: matcher(asked.search), max: Number(asked.count), isBackward }
  const found = await page(wanted, places, scanned, signal)
  const isEnd = found.ranges.every((one) => (isBackward ? one.at <= one.start : one.at >= one.end))
  const elsewhere = places.filter((one) => one.elsewhere !== null)
  tell(
    (asked.search === '' ? `${plural(found.records.length, 'record')}.` : `${plural(found.records.length, 'match', 'matches')} in ${plural(found.scanned, 'record')}.`) +
      (isEnd ? (isBackward ? ' This is the start of the log.' : ' This is the end of the log.') : '') +
      (elsewhere.length ? ` Other nodes lead ${elsewhere.map((one) => `partition ${one.partition} (${one.elsewhere || 'none now'})`).join(', ')}.` : ''),
  )
  show({ records: found.records, ranges: found.ranges, isBackward, query: asked, isEnd })
}

async function firstRanges(topic, partition, query, signal) {
  if (partition === null && topic.partition_count > PARTITIONS_MAX) throw new Error(`The topic has ${count(topic.partition_count)} partitions: choose one.`)
  const numbers = partition === null ? Array.from({ length: topic.partition_count }, (_, number) => number) : [partition]
  const all = await ranges(topic.name, numbers, query.isolation, signal)
  const at = {
    newest: (one) => one.end,
    oldest: (one) => one.start,
    offset: (one) => Math.min(Math.max(Number(query.offset), one.start), one.end),
    time: (one) => (one.elsewhere === null ? offsetAt(topic.name, one, Date.parse(`${query.time}Z`), signal) : one.end),
  }[query.from]
  return Promise.all(all.map(async (one) => ({ ...one, at: await at(one) })))
}

/** Show records as they come, the newest first, until the signal says so. */
async function followTopic(topic, partition, query, show, tell, signal) {
  const matches = matcher(query.search)
  let kept = []
  let [bytes, seen, matched] = [0, 0, 0]
  let problem = ''
  let timer = null
  const refresh = () => {
    timer = null
    if (signal.aborted) return
    while (kept.length > FOLLOWED_MAX || (kept.length > 1 && bytes > FOLLOWED_BYTES)) bytes -= kept.pop().size
    tell(problem ? `${problem} Trying again.` : `Following: ${plural(seen, 'record')} came${query.search ? `, ${plural(matched, 'match', 'matches')}` : ''}.`)
    show({ records: [...kept], ranges: [], isBackward: true, query, isEnd: true })
  }
  const soon = () => (timer ??= setTimeout(refresh, SHOW_EVERY_MS))
  const see = (record) => {
    seen += 1
    soon()
    if (!matches(record)) return
    matched += 1
    bytes += record.size
    kept.unshift(record)
    if (kept.length > 2 * FOLLOWED_MAX) bytes -= kept.splice(FOLLOWED_MAX).reduce((sum, one) => sum + one.size, 0)
  }
  const report = (message) => {
    problem = message
    soon()
  }
  try {
    await follow({ topic: topic.name, partition, isolation: query.isolation }, see, report, signal)
  } finally {
    clearTimeout(timer)
  }
}

function Shown({ shown, hasPartition, isBusy, more }) {
  const columns = hasPartition ? 7 : 6
  return html`
    <${Wide} label="Records">
      <table class="records">
        <caption class="unseen">Records, ${shown.isBackward ? 'the newest first' : 'the oldest first'}</caption>
        <thead><tr>
          <th scope="col" class="number">Offset</th>
          ${hasPartition && html`<th scope="col" class="number">Partition</th>`}
          <th scope="col">Timestamp (UTC)</th><th scope="col">Key</th><th scope="col">Value</th>
          <th scope="col" class="number">Headers</th><th scope="col" class="number">Size</th>
        </tr></thead>
        <tbody>
          ${shown.records.map((record) => html`<${Row} key=${`${record.partition}/${record.offset}`} record=${record} hasPartition=${hasPartition} columns=${columns} />`)}
          ${shown.records.length === 0 && html`<tr><td class="quiet" colspan=${columns}>No records.</td></tr>`}
        </tbody>
      </table>
    <//>
    ${!shown.isEnd && html`<p class="pages"><button type="button" disabled=${isBusy} onClick=${more}>${shown.isBackward ? 'Older' : 'Newer'}</button></p>`}
  `
}
