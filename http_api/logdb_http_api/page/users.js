// Users, tokens and ACLs, as far as the principal may see them. Changes are made by `logdb users`, `logdb tokens` and `logdb acls`.

import { call } from './api.js'
import { html } from './html.js'
import { known, Loaded, Table, Text, useLoad } from './parts.js'
import { short, size, time } from './text.js'

export const users = { id: 'users', title: 'Users', View: Users }

const principal = (one) => `${one.kind}:${one.name}`

function quota(of) {
  if (of === null) return 'none'
  const said = [
    of.produce_bytes === null ? null : `produce ${size(of.produce_bytes)}/s`,
    of.fetch_bytes === null ? null : `fetch ${size(of.fetch_bytes)}/s`,
    of.requests === null ? null : `${short(of.requests)} requests/s`,
  ].filter((one) => one !== null)
  return said.join(', ') || 'none'
}

const USERS = [
  { title: 'User', value: (row) => row.name, isData: true, cell: (row) => html`<${Text} of=${row.name} />` },
  { title: 'Super user', value: (row) => Number(row.super_user), cell: (row) => (row.super_user ? 'yes' : '') },
  { title: 'Password', cell: (row) => row.mechanisms.join(', ') || html`<span class="quiet">none</span>` },
  { title: 'Quota', cell: (row) => quota(row.quota) },
]
const TOKENS = [
  { title: 'Token', value: (row) => row.name, isData: true, cell: (row) => html`<${Text} of=${row.name} />` },
  { title: 'Owner', value: (row) => principal(row.owner), isData: true, cell: (row) => html`<${Text} of=${principal(row.owner)} />` },
  { title: 'Created (UTC)', value: (row) => row.created_ms, isData: true, isTime: true, cell: (row) => time(row.created_ms) },
  { title: 'Expires (UTC)', value: (row) => row.expires_ms ?? Infinity, isData: true, isTime: true, cell: (row) => known(row.expires_ms, (ms) => html`<span class=${ms < Date.now() ? 'bad' : ''}>${time(ms)}</span>`) },
]
const ACLS = [
  { title: 'Principal', value: (row) => principal(row.principal), isData: true, cell: (row) => html`<${Text} of=${principal(row.principal)} />` },
  { title: 'Permission', value: (row) => row.permission, cell: (row) => html`<span class=${row.permission === 'Deny' ? 'bad' : ''}>${row.permission}</span>` },
  { title: 'Operation', value: (row) => row.operation, cell: (row) => row.operation },
  { title: 'Resource', value: (row) => row.resource_type, cell: (row) => row.resource_type },
  { title: 'Name', value: (row) => row.name, isData: true, cell: (row) => html`<${Text} of=${row.name} />${row.pattern_type === 'Prefixed' && html` <span class="quiet">and names that begin so</span>`}` },
  { title: 'Host', value: (row) => row.host, isData: true, cell: (row) => html`<${Text} of=${row.host} />` },
]

function Users() {
  const found = useLoad((signal) => call('users', {}, signal), [])
  const tokens = useLoad((signal) => call('tokens', {}, signal), [])
  const acls = useLoad((signal) => call('acls', {}, signal), [])
  return html`
    <h1>Users</h1>
    <${Loaded} from=${found} what="users">
      ${(all) => html`
        ${!all.authentication && html`<p class="quiet">Authentication is off: every client may do everything.</p>`}
        ${all.default_quota !== null && html`<p class="quiet">Default quota: ${quota(all.default_quota)}.</p>`}
        <${Table} caption="Users" columns=${USERS} rows=${all.users} id=${(row) => row.name} empty="There are no users." />`}
    <//>
    <h2>Tokens</h2>
    <${Loaded} from=${tokens} what="tokens">
      ${(rows) => html`<${Table} caption="Tokens" columns=${TOKENS} rows=${rows} id=${(row) => row.name} empty="There are no tokens." />`}
    <//>
    <h2>ACLs</h2>
    <${Loaded} from=${acls} what="ACLs">
      ${(rows) => html`<${Table} caption="ACLs" columns=${ACLS} rows=${rows} id=${(row) => JSON.stringify(row)} empty="There are no ACLs." />`}
    <//>
  `
}
