// YAML and differences on the screen: numbered lines, a gutter with + and −, and who manages a field.
import { html, useMemo, useSignal, classes } from './dom.js';
import { yamlLines } from './yaml.js';
import { diff, around } from './diff.js';
import { managers } from './managed.js';

/** Longer ones are shown in part first. */
const MOST = 3000;

/** Key, colon and value of a line of YAML, each in its own colour. */
export function coloured(text) {
  const [, lead, key, rest] = /^(\s*(?:- )*)((?:"(?:[^"\\]|\\.)*"|[^\s"':#{[][^:]*):)?(.*)$/s.exec(text) || [null, '', '', text];
  const value = rest ?? '';
  const kind = /^ (?:-?[\d.]+|true|false|null)$/.test(value) ? 'literal' : 'text';
  return html`${lead}${key && html`<span class="key">${key}</span>`}<span class=${kind}>${value}</span>`;
}

/** An object; lines that differ from `before` are marked. */
export function Code({ object, before, showManagers }) {
  const all = useSignal(false);
  const { lines, fresh } = useMemo(() => {
    const now = yamlLines(object);
    const marks = new Set();
    if (before) {
      let at = 0;
      for (const [mark] of diff(yamlLines(before).map((line) => line.text), now.map((line) => line.text))) {
        if (mark === '+') marks.add(at);
        if (mark !== '-') at++;
      }
    }
    return { lines: now, fresh: marks };
  }, [object, before]);
  const managed = useMemo(() => showManagers && managers(object), [object, showManagers]);
  const shown = all.value ? lines : lines.slice(0, MOST);
  return html`<pre class="code" tabindex="0"><ol>${shown.map((line, at) => html`<li key=${at} class=${classes(fresh.has(at) && 'added')}><code>${coloured(line.text)}</code>${managed && line.path.length > 0 && line.path !== shown[at - 1]?.path && html`<small class="manager">${managed(line.path).join(', ')}</small>`}</li>`)}</ol></pre>
    ${lines.length > shown.length && html`<button onClick=${() => { all.value = true; }}>Show all ${lines.length} lines</button>`}`;
}

/** How one object becomes another; null where nothing would change. */
export function Difference({ before, after, whole }) {
  const lines = useMemo(() => {
    const text = (object) => (object ? yamlLines(object).map((line) => line.text) : []);
    const found = diff(text(before), text(after));
    return whole ? found : around(found);
  }, [before, after, whole]);
  if (!lines.some((line) => line && line[0] !== ' ')) return html`<p class="empty">Nothing would change.</p>`;
  return html`<pre class="code diff" tabindex="0">${lines.map((line, at) => (line ? html`<div key=${at} class=${{ '+': 'added', '-': 'removed', ' ': '' }[line[0]]}><i>${line[0] === '-' ? '−' : line[0]}</i><code>${coloured(line[1])}</code></div>`
    : html`<div key=${at} class="gap">⋯</div>`))}</pre>`;
}

/** An object without what only machines read. */
export function bare(object, { managed, secret } = {}) {
  const copy = structuredClone(object);
  if (!managed && copy.metadata) delete copy.metadata.managedFields;
  if (!secret && copy.kind === 'Secret') {
    for (const field of ['data', 'stringData']) for (const key of Object.keys(copy[field] || {})) copy[field][key] = '••••••••';
    const last = copy.metadata?.annotations;
    if (last?.['kubectl.kubernetes.io/last-applied-configuration']) last['kubectl.kubernetes.io/last-applied-configuration'] = '••••••••';
  }
  return copy;
}
