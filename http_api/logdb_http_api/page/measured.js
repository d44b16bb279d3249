// The server's metrics, read every five seconds while a tab looks at them, with those of the last quarter of an hour.

import { atSignOut, text } from './api.js'
import { useEffect, useState } from './html.js'

const EVERY_MS = 5_000
const KEPT = 180

const watchers = new Set()
let timer = null
const nothing = { snapshots: [], error: null }
let state = nothing

atSignOut(() => {
  state = nothing
})

/** `{snapshots, error}`; a snapshot is `{ms, families}`, the newest is the last. */
export function useMeasured() {
  const [, setState] = useState(state)
  useEffect(() => {
    watchers.add(setState)
    if (watchers.size === 1) read()
    return () => {
      watchers.delete(setState)
      if (watchers.size === 0) clearTimeout(timer)
    }
  }, [])
  return state
}

async function read() {
  clearTimeout(timer)
  const began = performance.now()
  if (!document.hidden) {
    try {
      const families = parse(await text('metrics'))
      state = { snapshots: [...state.snapshots.slice(1 - KEPT), { ms: performance.now(), families }], error: null }
    } catch (error) {
      state = { ...state, error }
    }
    for (const tell of watchers) tell(state)
  }
  if (watchers.size > 0 && !state.error?.isDenied) timer = setTimeout(read, Math.max(EVERY_MS, 10 * (performance.now() - began)))
}

/** Prometheus' text format: families by their names, `{kind, help, samples: [{labels, value}]}`. The samples of a histogram are three families. */
export function parse(page) {
  const families = new Map()
  const family = (name) => {
    if (!families.has(name)) families.set(name, { kind: 'untyped', help: '', samples: [] })
    return families.get(name)
  }
  for (const line of page.split('\n')) {
    const [, about, subject, said] = /^# (HELP|TYPE) (\S+) ?(.*)$/.exec(line) ?? []
    if (about) family(subject)[about === 'HELP' ? 'help' : 'kind'] = said
    if (line === '' || line[0] === '#') continue
    const [, name, labels, value] = /^([^\s{]+)(?:\{(.*)\})? (\S+)/.exec(line) ?? []
    if (name) family(name).samples.push({ labels: labelsOf(labels ?? ''), value: number(value) })
  }
  for (const [name, { kind, help }] of families) {
    if (kind !== 'histogram') continue
    for (const part of ['bucket', 'sum', 'count']) Object.assign(families.get(`${name}_${part}`) ?? {}, { kind, help })
    if (families.get(name).samples.length === 0) families.delete(name)
  }
  return families
}

function number(given) {
  return { '+Inf': Infinity, '-Inf': -Infinity }[given] ?? Number(given)
}

function labelsOf(given) {
  const unescape = (value) => value.replace(/\\(.)/g, (_, one) => (one === 'n' ? '\n' : one))
  return Object.fromEntries([...given.matchAll(/([^\s,=]+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name, unescape(value)]))
}

/** The sum of a family's samples with these labels; null: there are none. */
export function total(snapshot, name, labels = {}) {
  const samples = (snapshot?.families.get(name)?.samples ?? []).filter((one) => Object.entries(labels).every(([label, value]) => one.labels[label] === value))
  return samples.length === 0 ? null : samples.reduce((sum, one) => sum + one.value, 0)
}

/** How much a counter grows in a second, between two snapshots; null: unknown. After a restart a counter begins at 0. */
export function rate(before, after, name, labels = {}) {
  const [from, to] = [total(before, name, labels), total(after, name, labels)]
  return from === null || to === null || after.ms <= before.ms ? null : (Math.max(to - from, 0) * 1000) / (after.ms - before.ms)
}
