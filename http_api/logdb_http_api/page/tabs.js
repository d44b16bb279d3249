// The tabs, in their order. A tab is a file that exports `{id, title, View}`, and an entry here.
// `View` gets `parts`: what follows the id in the URL.

import { configs } from './configs.js'
import { connect } from './connect.js'
import { groups } from './groups.js'
import { metrics } from './metrics.js'
import { nodes } from './nodes.js'
import { records } from './records.js'
import { topics } from './topics.js'
import { transactions } from './transactions.js'
import { users } from './users.js'

export const TABS = [topics, records, groups, transactions, connect, configs, users, nodes, metrics]
