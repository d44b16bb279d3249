// Preact with templates: what every other file of the page writes its elements with.

import { Component, createElement, Fragment, render } from './preact.js'
import htm from './htm.js'

export { useCallback, useEffect, useMemo, useRef, useState } from './hooks.js'
export { Component, Fragment, render }
export const html = htm.bind(createElement)
