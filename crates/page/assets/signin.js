// Signing in where the connection itself does not say who it is: a token, kept in memory.
import { html, useSignal } from './dom.js';
import { locked, signIn } from './session.js';

export function SignIn() {
  const text = useSignal('');
  const keep = useSignal(false);
  const submit = (event) => {
    event.preventDefault();
    signIn(text.value, keep.value);
    locked.value = null;
  };
  return html`<main class="signin"><form onSubmit=${submit}>
    <img src="mark.svg" alt="" width="56" height="56" /><h1>Trireme</h1>
    <p>Sign in with a token of this cluster.</p>
    ${locked.value && html`<div class="trouble" role="alert">${locked.value}</div>`}
    <label for="token">Token</label>
    <input id="token" type="password" autocomplete="off" spellcheck=${false} autofocus value=${text.value} onInput=${(event) => { text.value = event.target.value; }} />
    <label class="check"><input type="checkbox" checked=${keep.value} onChange=${(event) => { keep.value = event.target.checked; }} /> keep it until this tab is closed</label>
    <button class="primary" disabled=${!text.value.trim()}>Sign in</button>
    <div class="hints"><p><b>With a kubeconfig:</b> <code>trireme ui</code> opens this page with its credentials.</p>
      <p><b>A token:</b> <code>kubectl create token NAME</code></p>
      <p>The page can do what you could do with kubectl, and nothing else.</p></div>
  </form></main>`;
}
