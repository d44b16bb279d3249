// The page: sign-in, the list of tabs, and the tab that the URL names.

import { ask, signedInAs, signOut, whenSignedOut } from './api.js'
import { Component, html, render, useEffect, useRef, useState } from './html.js'
import { href, Problem, Text } from './parts.js'
import { SignIn } from './sign_in.js'
import { TABS } from './tabs.js'

/** The parts of the URL behind #. */
function place() {
  try {
    return location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent)
  } catch {
    return ['']
  }
}

function App() {
  const [access, setAccess] = useState({ is: 'unknown', message: '' })
  const open = async () => {
    setAccess({ is: 'unknown', message: '' })
    try {
      await ask('v3/clusters')
      setAccess({ is: 'open', message: '' })
    } catch (error) {
      if (error.status !== 401) setAccess({ is: 'failed', message: error.message })
    }
  }
  useEffect(() => {
    whenSignedOut((message) => setAccess({ is: 'closed', message }))
    open()
  }, [])
  const leave = () => {
    signOut()
    setAccess({ is: 'closed', message: 'You are signed out.' })
  }
  if (access.is === 'open') return html`<${Tabs} leave=${leave} />`
  return html`
    <${Header} />
    <main>
      ${access.is === 'unknown' && html`<p class="quiet">Loading…</p>`}
      ${access.is === 'failed' && html`<${Problem} error=${access} /><button type="button" onClick=${open}>Try again</button>`}
      ${access.is === 'closed' && html`<${SignIn} message=${access.message} done=${() => setAccess({ is: 'open', message: '' })} />`}
    </main>
  `
}

function Header({ children }) {
  return html`<header><a class="name" href="#/">logdb</a><span class="quiet data">${location.host}</span>${children}</header>`
}

/** Shows why a tab cannot be shown, in its place: the others still work. */
class Guard extends Component {
  componentDidCatch(error) {
    this.setState({ error })
  }

  componentDidUpdate(before) {
    if (this.state.error && before.place !== this.props.place) this.setState({ error: null })
  }

  render({ children }, { error }) {
    return error ? html`<h1>This tab has failed</h1><${Problem} error=${error} />` : children
  }
}

function Tabs({ leave }) {
  const [parts, setParts] = useState(place)
  const main = useRef(null)
  const tab = TABS.find((one) => one.id === parts[0]) ?? TABS[0]
  useEffect(() => {
    const moved = () => {
      setParts(place())
      if (document.activeElement?.matches('select')) return // its user is still choosing
      main.current?.focus({ preventScroll: true })
      scrollTo(0, 0)
    }
    addEventListener('hashchange', moved)
    return () => removeEventListener('hashchange', moved)
  }, [])
  useEffect(() => {
    document.title = `${tab.title} · logdb · ${location.host}`
  }, [tab])
  const skip = (event) => {
    event.preventDefault()
    main.current.focus()
  }
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Header}>
      ${signedInAs() !== null && html`<span class="user">Signed in as <${Text} of=${signedInAs()} /> <button type="button" onClick=${leave}>Sign out</button></span>`}
    <//>
    <nav aria-label="Tabs">
      <ul>${TABS.map((one) => html`<li key=${one.id}><a href=${href(one.id)} aria-current=${one === tab ? 'page' : undefined}>${one.title}</a></li>`)}</ul>
    </nav>
    <main id="main" tabindex="-1" ref=${main}><${Guard} place=${parts.join('/')}><${tab.View} key=${tab.id} parts=${parts.slice(1)} /><//></main>
  `
}

render(html`<${App} />`, document.getElementById('app'))
