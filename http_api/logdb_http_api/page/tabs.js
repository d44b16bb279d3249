// The tabs, in their order. A tab is a file that exports `{id, title, View}`, and an entry here.
// `View` gets `parts`: what follows the id in the URL.

import { topics } from './topics.js'
import { records } from './records.js'

export const TABS = [topics, records]
