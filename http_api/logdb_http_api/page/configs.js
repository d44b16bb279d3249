// The configs of a topic, and their editing. Before a change deletes records, the page shows which.

import { call, inCluster, path } from './api.js'
import { html, useEffect, useRef, useState } from './html.js'
import { href, Loaded, Problem, Table, Text, useLoad } from './parts.js'
import { count, plural, size } from './text.js'

/** Configs that decide which records are deleted. */
const DELETING = ['retention.ms', 'retention.bytes', 'cleanup.policy']

const TOPICS_EVERY_MS = 10_000

export const configs = { id: 'configs', title: 'Configs', View: Configs }

function Configs({ parts }) {
  const [topic = ''] = parts
  const loaded = useLoad((signal) => call('topics', {}, signal), [], TOPICS_EVERY_MS)
  const go = (event) => {
    location.hash = event.target.value ? href('configs', event.target.value) : href('configs')
  }
  return html`
    <h1>Configs</h1>
    <${Loaded} from=${loaded} what="topics">
      ${(topics) => html`
        <p class="bar"><label>Topic <select value=${topic} onChange=${go}>
          <option value="">Choose a topic</option>
          ${topics.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}
        </select></label></p>`}
    <//>
    ${topic !== '' && html`<${OfTopic} key=${topic} topic=${topic} />`}
  `
}

function OfTopic({ topic }) {
  const [editing, setEditing] = useState(null)
  const [said, setSaid] = useState('')
  const loaded = useLoad(async (signal) => (await inCluster(path`topics/${topic}/configs`, { signal })).data.sort((a, b) => a.is_default - b.is_default), [topic])
  const done = (message) => {
    setEditing(null)
    setSaid(message)
    loaded.reload()
  }
  const columns = [
    { title: 'Config', value: (row) => row.name, isData: true, cell: (row) => row.name },
    { title: 'Value', isData: true, cell: (row) => html`<${Text} of=${row.value ?? 'null'} />` },
    { title: 'Default', isData: true, cell: (row) => (row.is_default ? html`<span class="quiet">same</span>` : html`<${Text} of=${defaultOf(row) ?? '–'} />`) },
    { title: 'Set by', value: (row) => row.source, cell: (row) => (row.is_default ? html`<span class="quiet">default</span>` : 'topic') },
    { title: 'Change', cell: (row) => !row.is_read_only && html`<button type="button" aria-label=${`Edit ${row.name}`} onClick=${() => setEditing(row)}>Edit</button>` },
  ]
  return html`
    <p role="status" class="quiet">${said}</p>
    <${Loaded} from=${loaded} what="the configs of this topic">
      ${(rows) => html`<${Table} caption=${`Configs of ${topic}`} columns=${columns} rows=${rows} id=${(row) => row.name} />`}
    <//>
    ${editing && html`<${Editor} key=${editing.name} topic=${topic} config=${editing} done=${done} cancel=${() => setEditing(null)} />`}
  `
}

function defaultOf(row) {
  return row.synonyms.find((one) => one.source === 'DEFAULT_CONFIG')?.value ?? null
}

/** A dialog that changes one config. gone: what the change deletes, once it is known; until then null. */
function Editor({ topic, config, done, cancel }) {
  const [value, setValue] = useState(config.value ?? '')
  const [gone, setGone] = useState(null)
  const [problem, setProblem] = useState(null)
  const [isBusy, setBusy] = useState(false)
  const dialog = useRef(null)
  const cancelButton = useRef(null)
  useEffect(() => dialog.current.showModal(), [])
  useEffect(() => cancelButton.current?.focus(), [gone])

  const attempt = async (work) => {
    setBusy(true)
    setProblem(null)
    try {
      await work()
    } catch (error) {
      setProblem(error)
    }
    setBusy(false)
  }
  const save = async (wanted) => {
    const change = wanted === null ? { name: config.name, operation: 'DELETE' } : { name: config.name, value: wanted }
    await inCluster(path`topics/${topic}/configs:alter`, { method: 'POST', body: { data: [change] } })
    dialog.current.close() // the focus goes back to where it was
    done(wanted === null ? `${config.name} has its default.` : `${config.name} is ${wanted}.`)
  }
  const change = (wanted) => attempt(async () => {
    const deletes = DELETING.includes(config.name) ? await deleted(topic, config, wanted) : null
    if (deletes === null) await save(wanted)
    else setGone({ ...deletes, wanted })
  })
  const submit = (event) => {
    event.preventDefault()
    change(value)
  }
  return html`
    <dialog ref=${dialog} onClose=${cancel} aria-labelledby="editor-title">
      <h2 id="editor-title">Change <span class="data">${config.name}</span></h2>
      <${Problem} error=${problem} />
      ${gone === null
        ? html`<form onSubmit=${submit}>
            <label class="data">Value <input value=${value} onInput=${(event) => setValue(event.target.value)} spellcheck="false" autocapitalize="none" /></label>
            <p class="bar">
              <button class="main" disabled=${isBusy}>Save</button>
              ${!config.is_default && html`<button type="button" disabled=${isBusy} onClick=${() => change(null)}>Reset to the default</button>`}
              <button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
            </p>
          </form>`
        : html`<${Deletion} gone=${gone} />
            <p class="bar">
              <button type="button" class="danger" disabled=${isBusy} onClick=${() => attempt(() => save(gone.wanted))}>Delete and save</button>
              <button type="button" ref=${cancelButton} onClick=${() => dialog.current.close()}>Cancel</button>
            </p>`}
    </dialog>
  `
}

const GONE = [
  { title: 'Partition', cell: (row) => row.partition },
  { title: 'From offset', isNumber: true, cell: (row) => count(row.start_offset) },
  { title: 'To offset', isNumber: true, cell: (row) => count(row.new_start_offset - 1) },
  { title: 'Size', isNumber: true, cell: (row) => size(row.size_bytes) },
]

function Deletion({ gone }) {
  return html`
    <p class="problem" role="alert">
      ${gone.isUnknown && 'This change may delete records. Which ones is shown only to users who may delete records of the topic.'}
      ${gone.compacts && 'Compaction deletes all but the latest record of each key, and records without a key. '}
      ${gone.rows.length > 0 && `This change deletes records of ${plural(gone.rows.length, 'partition')}.`}
    </p>
    ${gone.rows.length > 0 && html`<${Table} caption="Records that are deleted" columns=${GONE} rows=${gone.rows} id=${(row) => row.partition} />`}
  `
}

/** What a change deletes: `{rows, compacts, isUnknown}`; null: nothing. */
async function deleted(topic, config, wanted) {
  const compacts = config.name === 'cleanup.policy' && (wanted ?? '').includes('compact') && !(config.value ?? '').includes('compact') && (await hasRecords(topic))
  try {
    const rows = await call('enforce_retention', { topic, dry_run: true, config: [[config.name, wanted]] })
    return rows.length > 0 || compacts ? { rows, compacts, isUnknown: false } : null
  } catch (error) {
    if (!error.isDenied) throw error
    return { rows: [], compacts, isUnknown: true }
  }
}

async function hasRecords(topic) {
  return (await call('describe_topic', { name: topic })).partitions.some((one) => one.end_offset > one.start_offset)
}
