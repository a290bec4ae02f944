// What stands around every view: kinds on the left, the namespace and the way to everything above.
import { html, useSignal, signal, classes } from './dom.js';
import { kinds, sections, find } from './kinds.js';
import { route, to, go, listOf } from './route.js';
import { user, signOut, token } from './session.js';
import { namespace } from './place.js';
import { useFeed } from './use.js';
import { palette } from './palette.js';
import { help } from './help.js';
import { Key } from './widgets.js';
import { forgetAll } from './feed.js';
import { theme, flipTheme } from './theme.js';

const drawer = signal(false);

export function Side() {
  const { parts: [view, group, , resource] } = route.value;
  const open = useSignal({ Others: false });
  const here = (kind) => ['list', 'object'].includes(view) && kind.resource === resource && (kind.group || 'core') === group;
  const link = (name, parts, on) => html`<a href=${to(parts)} class=${classes(on && 'here')} aria-current=${on ? 'page' : undefined}>${name}</a>`;
  return html`<nav class=${classes('side', drawer.value && 'open')} aria-label="Kinds" onClick=${(event) => { if (event.target.closest('a')) drawer.value = false; }}>
    <a class="brand" href="#/"><img src="mark.svg" alt="" width="24" height="24" />Trireme</a>
    <div class="links">${link('Overview', [], !view)}${link('Graph', ['graph'], view === 'graph')}${link('Metrics', ['metrics'], view === 'metrics')}${link('Apply', ['apply'], view === 'apply')}</div>
    ${sections.value.map(([title, list]) => {
    const shown = open.value[title] ?? true;
    return html`<div class="section" key=${title}><button class="title" aria-expanded=${shown} onClick=${() => { open.value = { ...open.value, [title]: !shown }; }}>${title}<i>${shown ? '−' : '+'}</i></button>
      ${(shown || list.some(here)) && list.map((kind) => html`<a key=${kind.id} href=${listOf(kind)} title=${kind.group || 'core'} class=${classes(here(kind) && 'here')} aria-current=${here(kind) ? 'page' : undefined}>${plural(kind)}</a>`)}</div>`;
  })}
  </nav>${drawer.value && html`<div class="veil" onClick=${() => { drawer.value = false; }}></div>`}`;
}

/** The kind's name in the plural, with capitals where the kind has them. */
export function plural({ kind, resource }) {
  let at = 0;
  return [...resource].map((letter) => {
    const same = kind[at]?.toLowerCase() === letter;
    return same ? kind[at++] : letter;
  }).join('');
}

export function Top() {
  const { parts: [view, , , resource, ns, name] } = route.value;
  const kind = kinds.value.find((one) => one.resource === resource);
  const title = view === 'object' ? name : view === 'list' ? (kind ? plural(kind) : resource) : { graph: 'Graph', metrics: 'Metrics', apply: 'Apply' }[view] || 'Overview';
  document.title = `${title} · Trireme`;
  return html`<header class="top">
    <button class="menu" aria-label="Kinds" onClick=${() => { drawer.value = !drawer.value; }}>☰</button>
    <div class="where">${view === 'object' && kind ? html`<a href=${listOf(kind)}>${plural(kind)}</a><i>/</i>${ns !== '-' && html`<span class="ns">${ns}</span><i>/</i>`}` : ''}<h1>${title}</h1></div>
    <button class="find" onClick=${() => { palette.value = true; }}><span>Find anything</span><${Key}>Ctrl K</${Key}></button>
    <${Namespaces} />
    <button class="icon" title=${`Theme: ${theme.value} (t)`} aria-label="Dark or light" onClick=${flipTheme}>${{ auto: '◐', dark: '☾', light: '☀' }[theme.value]}</button>
    <button class="icon" title="Keys (?)" aria-label="Help" onClick=${() => { help.value = true; }}>?</button>
    <span class="user" title=${(user.value?.groups || []).join(', ')}>${user.value?.username}</span>
    ${token.value && html`<button onClick=${() => { forgetAll(); signOut(); }}>Sign out</button>`}
  </header>`;
}

function Namespaces() {
  const feed = useFeed(find('namespaces'), { live: true });
  const names = feed ? [...feed.rows.values()].map((row) => row.name).sort() : [];
  if (namespace.value && !names.includes(namespace.value)) names.unshift(namespace.value);
  const change = (event) => {
    if (event.target.value === '…') {
      const given = prompt('Namespace');
      if (given) namespace.value = given.trim();
    } else namespace.value = event.target.value;
    event.target.blur();
    if (route.value.parts[0] === 'object') { const { parts } = route.value; go(to(['list', ...parts.slice(1, 4)])); }
  };
  // Who may not list namespaces can still name theirs.
  return html`<select id="namespace" aria-label="Namespace" value=${namespace.value} onChange=${change}>
    <option value="">all namespaces</option>${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}<option value="…">other…</option></select>`;
}
