// Bytes and numbers as text that a person can read. Nothing here makes markup.

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
const lenient = new TextDecoder('utf-8', { ignoreBOM: true })

/** Bytes from base64; null stays null. */
export function fromBase64(given) {
  if (given === null) return null
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(given)
  return Uint8Array.from(atob(given), (character) => character.charCodeAt(0))
}

/** What bytes are, `json`, `text` or `binary`, and their text; `binary`: none. */
export function read(bytes) {
  let text
  try {
    text = strict.decode(bytes)
  } catch {
    return { kind: 'binary', text: null }
  }
  // Control characters other than tab, line feed and carriage return: no person wrote this.
  if (/[\0-\x08\x0b\x0c\x0e-\x1f]/.test(text)) return { kind: 'binary', text: null }
  if (/^\s*[[{"\d\-tfn]/.test(text)) {
    try {
      JSON.parse(text)
      return { kind: 'json', text }
    } catch {
      // text that looks like JSON
    }
  }
  return { kind: 'text', text }
}

/** Text to search in, whatever the bytes are. */
export function searchable(bytes) {
  return bytes === null ? '' : lenient.decode(bytes)
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g

const INDENTED_MAX = 32 // levels: a value of brackets alone would become a thousand times as long

/** Valid JSON with one value a line. Numbers and strings stay as they are written: no digit is lost. */
export function pretty(json) {
  const out = []
  let depth = 0
  let before = ''
  const line = () => out.push('\n', '  '.repeat(Math.min(depth, INDENTED_MAX)))
  for (const [token] of json.matchAll(TOKENS)) {
    if (token === '}' || token === ']') {
      depth -= 1
      if (before !== '{' && before !== '[') line()
    } else if (before === '{' || before === '[' || before === ',') {
      line()
    }
    out.push(token === ':' ? ': ' : token)
    if (token === '{' || token === '[') depth += 1
    before = token
  }
  return out.join('')
}

/** Rows of 16 bytes: position, hexadecimal, ASCII. */
export function hexDump(bytes) {
  const rows = []
  for (let at = 0; at < bytes.length; at += 16) {
    const row = Array.from(bytes.subarray(at, at + 16))
    const hex = row.map((byte) => byte.toString(16).padStart(2, '0')).join(' ')
    const ascii = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.')).join('')
    rows.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(47)}  ${ascii}`)
  }
  return rows.join('\n')
}

export function hex(bytes) {
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`
}

// Control characters, characters that change the direction of the text around them, and those that cannot be seen.
const HIDDEN = /([\0-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff])/u

/** Text as pieces: every second one is a hidden character, written as U+202E. */
export function visible(text) {
  return text.split(HIDDEN).map((piece, at) => (at % 2 ? `U+${piece.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}` : piece))
}

const wholeNumber = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const smallNumber = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 })

export function count(number) {
  return wholeNumber.format(number)
}

/** A number with three digits: 1.23 k. */
export function short(number) {
  if (Math.abs(number) < 1000) return smallNumber.format(number)
  const power = Math.min(Math.floor(Math.log10(Math.abs(number)) / 3), 6)
  return `${smallNumber.format(number / 1000 ** power)} ${['', 'k', 'M', 'G', 'T', 'P', 'E'][power]}`
}

/** A size in bytes: 1.23 MiB. */
export function size(bytes) {
  if (bytes < 1024) return `${smallNumber.format(bytes)} B`
  const power = Math.min(Math.floor(Math.log2(bytes) / 10), 6)
  return `${smallNumber.format(bytes / 1024 ** power)} ${['', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'][power]}`
}

/** Milliseconds since 1970, in UTC: 2026-01-31 23:59:59.999. */
export function time(ms) {
  const date = new Date(ms)
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString().replace('T', ' ').replace('Z', '')
}

export function duration(ms) {
  if (ms < 1000) return `${ms} ms`
  const seconds = ms / 1000
  for (const [unit, length] of [['d', 86_400], ['h', 3600], ['min', 60]]) {
    if (seconds >= length) return `${smallNumber.format(seconds / length)} ${unit}`
  }
  return `${smallNumber.format(seconds)} s`
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`
}
