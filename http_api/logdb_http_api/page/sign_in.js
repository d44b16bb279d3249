// Sign-in by a password or a token. The credential goes to `api.js` and nowhere else.

import { ask, signInByPassword, signInByToken, signOut } from './api.js'
import { html, useEffect, useRef, useState } from './html.js'
import { Problem } from './parts.js'

const isOpenToReaders = location.protocol === 'http:' && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\]|.*\.localhost)$/.test(location.hostname)

export function SignIn({ message, done }) {
  const [by, setBy] = useState('password')
  const [problem, setProblem] = useState(message)
  const [isBusy, setBusy] = useState(false)
  const form = useRef(null)
  useEffect(() => form.current.querySelector('input:not([type=radio])').focus(), [by])
  const submit = async (event) => {
    event.preventDefault()
    const given = new FormData(form.current)
    setBusy(true)
    setProblem('')
    if (by === 'password') signInByPassword(given.get('user'), given.get('password'))
    else signInByToken(given.get('token').trim())
    try {
      await ask('v3/clusters')
      form.current.reset()
      done()
    } catch (error) {
      signOut()
      setProblem(error.message + (error.retryAfterS ? ` Try again in ${error.retryAfterS} s.` : ''))
      setBusy(false)
      form.current.querySelector('input[type=password]').focus()
    }
  }
  const choice = (value, label) => html`<label><input type="radio" name="by" value=${value} checked=${by === value} onChange=${() => setBy(value)} /> ${label}</label>`
  return html`
    <h1>Sign in</h1>
    <${Problem} error=${problem ? { message: problem } : null} />
    ${isOpenToReaders && html`<p class="problem">This connection is not encrypted: others on the network can read what you type.</p>`}
    <form class="sign-in" ref=${form} onSubmit=${submit}>
      <fieldset><legend>Credential</legend>${choice('password', 'User and password')} ${choice('token', 'Token')}</fieldset>
      ${by === 'password'
        ? html`
            <label>User <input name="user" autocomplete="username" required spellcheck="false" autocapitalize="none" /></label>
            <label>Password <input name="password" type="password" autocomplete="current-password" required /></label>`
        : html`<label>Token <input name="token" type="password" autocomplete="off" required /></label>`}
      <button class="main" disabled=${isBusy}>Sign in</button>
    </form>
    <p class="quiet">The page keeps the credential in memory until you sign out, close it or reload it.</p>
  `
}
