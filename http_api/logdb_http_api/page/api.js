// Requests to the server that the page comes from, as any client makes them.
//
// The credential is a variable of this module: it is never stored, and never part of a URL.

const base = new URL('./', document.baseURI)

let authorization = null
let user = null
let onSignedOut = () => {}
let clusterId = null
const forgetting = []

/** An answer that is no success; `status` 0: there is no answer. */
export class Refused extends Error {
  constructor(status, message, { error = null, retryAfterS = null } = {}) {
    super(message)
    this.status = status
    this.error = error
    this.retryAfterS = retryAfterS
  }

  get isDenied() {
    return this.status === 403
  }
}

/** Call `then(message)` when the server refuses the credential. */
export function whenSignedOut(then) {
  onSignedOut = then
}

/** Who the requests are from; null: nobody, or the owner of the browser's certificate. */
export function signedInAs() {
  return user
}

export function signInByPassword(name, password) {
  const bytes = new TextEncoder().encode(`${name}:${password}`)
  authorization = `Basic ${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))}`
  user = name
}

export function signInByToken(token) {
  authorization = `Bearer ${token}`
  user = 'the owner of a token'
}

export function signOut() {
  authorization = null
  user = null
  clusterId = null
  for (const forget of forgetting) forget()
}

/** Call `forget()` at every sign-out: what one user has seen is not shown to the next. */
export function atSignOut(forget) {
  forgetting.push(forget)
}

/** A path whose values are encoded: path`topics/${name}`. */
export function path(parts, ...values) {
  return parts.reduce((before, part, at) => before + segment(values[at - 1]) + part)
}

function segment(value) {
  const text = String(value)
  // A browser resolves these before it sends them, also where they are encoded.
  if (text === '.' || text === '..' || text === '') throw new Refused(0, `the name ${JSON.stringify(text)} cannot be part of a path`)
  return encodeURIComponent(text)
}

async function send(path, { method = 'GET', body, headers = {}, signal } = {}) {
  const all = new Headers(headers)
  if (authorization !== null) all.set('Authorization', authorization)
  if (body !== undefined) all.set('Content-Type', 'application/json')
  const request = {
    method,
    signal,
    headers: all,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: 'no-store',
    redirect: 'error',
    referrerPolicy: 'no-referrer',
    // Over TLS the browser may have a certificate. Otherwise nothing but this module adds a credential.
    credentials: base.protocol === 'https:' ? 'same-origin' : 'omit',
  }
  const sentBy = authorization
  let answer
  try {
    answer = await fetch(new URL(path, base), request)
  } catch (error) {
    if (error.name === 'AbortError') throw error
    throw new Refused(0, 'The server does not answer.')
  }
  if (answer.ok) return answer
  const refused = await refusal(answer)
  if (answer.status === 401 && sentBy === authorization) {
    const message = sentBy === null ? '' : refused.message
    signOut()
    onSignedOut(message)
  }
  throw refused
}

async function refusal(answer) {
  let said = {}
  try {
    said = await answer.json()
  } catch {
    // not of logdb: perhaps a proxy's
  }
  const retryAfterS = Number(answer.headers.get('Retry-After')) || null
  const message = typeof said.message === 'string' ? said.message : `The server answers with status ${answer.status}.`
  return new Refused(answer.status, message, { error: said.error ?? null, retryAfterS })
}

/** The JSON of an answer; null: it has none. */
export async function ask(path, options) {
  const answer = await send(path, options)
  return answer.status === 204 ? null : answer.json()
}

export async function text(path, options) {
  return (await send(path, options)).text()
}

/** Make a request of a session: POST /logdb/v1/calls/NAME. */
export function call(name, body = {}, signal = undefined) {
  return ask(path`logdb/v1/calls/${name}`, { method: 'POST', body, signal })
}

/** A path below /v3/clusters/ID. */
export async function inCluster(rest, options) {
  if (clusterId === null) clusterId = (await ask('v3/clusters', options?.signal ? { signal: options.signal } : {})).data[0].cluster_id
  return ask(path`v3/clusters/${clusterId}/` + rest, options)
}

const POSITIONS_MAX = 10_000

/** The states of partitions `[topic, number]`, in their order; null: unknown, or not to be seen. */
export async function partitionStates(partitions, signal, isolation_level = 'read_uncommitted') {
  const states = []
  for (let at = 0; at < partitions.length; at += POSITIONS_MAX) {
    const positions = partitions.slice(at, at + POSITIONS_MAX).map(([topic, partition]) => [{ topic, partition }, 0])
    states.push(...(await ask('logdb/v1/partitions', { method: 'POST', body: { positions, isolation_level }, signal })))
  }
  return states
}

/**
 * Where partitions `[topic, number]` begin and end, in their order: `{start, end, bytes}`; null: unknown.
 *
 * A node of a cluster knows the partitions that it leads. The topics of others are described, which asks the other nodes.
 */
export async function extents(partitions, signal) {
  const states = await partitionStates(partitions, signal)
  const elsewhere = new Set(partitions.filter((_, at) => states[at] && states[at].leader_address !== null).map(([topic]) => topic))
  const described = new Map()
  for (const name of elsewhere) {
    described.set(name, await call('describe_topic', { name }, signal).catch((error) => (error.isDenied || error.status === 404 ? { partitions: [] } : Promise.reject(error))))
  }
  return partitions.map(([topic, number], at) => {
    const state = described.has(topic) ? described.get(topic).partitions.find((one) => one.partition === number) : states[at]
    return state && state.end_offset >= 0 ? { start: state.start_offset, end: state.end_offset, bytes: state.size_bytes } : null
  })
}

/** Do `work(item)` for all items, a few at a time: a browser opens six connections to a server. The results are in the order of the items. */
export async function forEach(items, work) {
  const results = []
  let next = 0
  const worker = async () => {
    for (let at = next++; at < items.length; at = next++) results[at] = await work(items[at])
  }
  await Promise.all(Array.from({ length: 4 }, worker))
  return results
}

/**
 * Server-sent events of a partition's records, one by one: `{id, type, data}`, with the data parsed.
 *
 * EventSource cannot send a credential, so the events are read from the body of a request.
 */
export async function* events(url, { lastId = null, signal } = {}) {
  const headers = { Accept: 'text/event-stream', ...(lastId === null ? {} : { 'Last-Event-ID': lastId }) }
  const answer = await send(url, { headers, signal })
  let event = {}
  for await (const line of lines(answer.body)) {
    if (line === '') {
      if (event.data !== undefined) yield { id: event.id ?? null, type: event.event ?? 'message', data: JSON.parse(event.data) }
      event = {}
    } else if (line[0] !== ':') {
      const colon = line.indexOf(': ')
      event[line.slice(0, colon)] = line.slice(colon + 2)
    }
  }
}

/** The lines of a body; a long one is put together once. */
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let parts = []
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      let from = 0
      for (let end = value.indexOf('\n'); end >= 0; end = value.indexOf('\n', from)) {
        parts.push(value.slice(from, end))
        yield parts.length === 1 ? parts[0] : parts.join('')
        parts = []
        from = end + 1
      }
      if (from < value.length) parts.push(value.slice(from))
    }
  } catch (error) {
    if (error.name === 'AbortError') throw error
    throw new Refused(0, 'The connection to the server is lost.')
  } finally {
    await reader.cancel().catch(() => {})
  }
}
