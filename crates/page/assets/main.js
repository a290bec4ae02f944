// Starts the page: finds out who is there, reads which kinds there are, and shows the view that the address names.
import { html, render, useEffect, useSignal } from './dom.js';
import { get, Refused } from './api.js';
import { user, locked, signOut, token } from './session.js';
import { discover, kinds, find } from './kinds.js';
import { forgetAll, follow } from './feed.js';
import { route, go, listOf, to } from './route.js';
import { useKeys } from './keyboard.js';
import { moment } from './moment.js';
import { SignIn } from './signin.js';
import { Side, Top } from './frame.js';
import { flipTheme } from './theme.js';
import { Palette, palette } from './palette.js';
import { Help, help } from './help.js';
import { Overview } from './overview.js';
import { TableView } from './table.js';
import { ObjectView } from './object.js';
import { GraphView } from './graph.js';
import { MetricsView } from './metrics.js';
import { ApplyView } from './apply.js';
import { Slider } from './slider.js';
import { Trouble, Busy, Empty } from './widgets.js';

async function who() {
  const body = JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' });
  const review = await get('/apis/authentication.k8s.io/v1/selfsubjectreviews', { method: 'POST', type: 'application/json', body, quiet: true });
  const found = review.status.userInfo;
  if (found.username === 'system:anonymous') throw new Refused(401, { message: '' });
  return found;
}

function App() {
  const failed = useSignal(null);
  useEffect(() => {
    const begin = async () => {
      failed.value = null;
      try {
        user.value = await who();
        await discover();
        locked.value = null;
      } catch (error) {
        // Who may not even ask who they are has no credentials that count.
        if ([401, 403].includes(error.code)) { forgetAll(); signOut(token.value ? error.message : ''); } else failed.value = error;
      }
    };
    if (locked.value === null) begin();
    else forgetAll();
  }, [locked.value === null]);
  if (locked.value !== null) return html`<${SignIn} />`;
  if (failed.value) return html`<main class="alone"><${Trouble} error=${failed.value} /></main>`;
  if (!kinds.value.length) return html`<main class="alone"><${Busy} /></main>`;
  return html`<${Page} />`;
}

function Page() {
  useDefinitions();
  const jump = (resource, group) => () => { const kind = find(resource, group); if (kind) go(listOf(kind)); };
  useKeys('Everywhere', [
    ['Ctrl+k', 'find anything', () => { palette.value = true; }], [':', 'find anything', () => { palette.value = true; }],
    ['/', 'filter', () => { const field = document.getElementById('filter'); field?.focus(); return !!field; }],
    ['?', 'help', () => { help.value = true; }], ['t', 'dark or light', flipTheme],
    ['n', 'namespace', () => document.getElementById('namespace')?.focus()],
    ['g o', 'overview', () => go(to([]))], ['g p', 'pods', jump('pods')], ['g d', 'deployments', jump('deployments', 'apps')],
    ['g s', 'services', jump('services')], ['g n', 'nodes', jump('nodes')], ['g e', 'events', jump('events')],
    ['g m', 'metrics', () => go(to(['metrics']))], ['g r', 'graph', () => go(to(['graph']))], ['g a', 'apply', () => go(to(['apply']))],
    ['Escape', 'back', () => { if (document.activeElement?.matches('input, select, textarea')) document.activeElement.blur(); else history.back(); }],
  ]);
  return html`<div class=${`page ${moment.value ? 'past' : ''}`}>
    <${Side} /><div class="column"><${Top} /><main id="main"><${View} /></main><${Slider} /></div>
    ${palette.value && html`<${Palette} />`}${help.value && html`<${Help} />`}</div>`;
}

function View() {
  const { parts: [view = '', group, version, resource, ns, name, tab] } = route.value;
  const kind = resource && (kinds.value.find((one) => one.resource === resource && one.group === (group === 'core' ? '' : group)) );
  if (view === '') return html`<${Overview} />`;
  if (view === 'graph') return html`<${GraphView} />`;
  if (view === 'metrics') return html`<${MetricsView} />`;
  if (view === 'apply') return html`<${ApplyView} />`;
  if (['list', 'object'].includes(view) && !kind) return html`<${Empty}>The server has no ${resource} in ${group}/${version}.</${Empty}>`;
  if (view === 'list') return html`<${TableView} kind=${kind} key=${kind.id} />`;
  if (view === 'object' && name) return html`<${ObjectView} key=${`${kind.id}/${ns}/${name}`} ...${{ kind, namespace: ns === '-' ? '' : ns, name, tab: tab || '' }} />`;
  return html`<${Empty}>There is no such page.</${Empty}>`;
}

/** Kinds come and go with their definitions. */
function useDefinitions() {
  useEffect(() => {
    const kind = find('customresourcedefinitions', 'apiextensions.k8s.io');
    if (!kind) return;
    const feed = follow(kind, { live: true });
    let known = -1;
    let timer;
    const stop = feed.changes.subscribe(() => {
      if (known === feed.changes.value || feed.state.peek() !== 'live') return;
      known = feed.changes.value;
      clearTimeout(timer);
      timer = setTimeout(() => discover().catch(() => {}), 1000);
    });
    return stop;
  }, []);
}

render(html`<${App} />`, document.getElementById('page'));
