// One field that leads everywhere: kinds, namespaces, views, and objects of the kinds that people look for by name.
import { html, signal, useSignal, useEffect, useRef, classes } from './dom.js';
import { kinds, find } from './kinds.js';
import { go, listOf, objectOf, to } from './route.js';
import { namespace } from './place.js';
import { useFeed } from './use.js';
import { useKeys } from './keyboard.js';

export const palette = signal(false);
const MOST = 40;
const close = () => { palette.value = false; };

/** How well a name fits what was typed: letters in order, better where they stand together; 0 is not at all. */
export function score(name, typed) {
  if (!typed) return 1;
  const text = name.toLowerCase();
  const at = text.indexOf(typed);
  if (at >= 0) return 1000 - at - text.length / 10;
  let from = 0;
  let gaps = 0;
  for (const letter of typed) {
    const found = text.indexOf(letter, from);
    if (found < 0) return 0;
    gaps += found - from;
    from = found + 1;
  }
  return 300 - gaps;
}

export function Palette() {
  const typed = useSignal('');
  const at = useSignal(0);
  const field = useRef();
  const list = useRef();
  const feeds = [['pods', ''], ['deployments', 'apps'], ['services', ''], ['nodes', '']].map(([resource, group]) => {
    const kind = find(resource, group);
    return [kind, useFeed(kind, { namespace: kind?.namespaced ? namespace.value : '' })];
  });
  useEffect(() => { field.current.focus(); }, []);
  useEffect(() => { list.current?.children[at.value]?.scrollIntoView({ block: 'nearest' }); }, [at.value]);
  const word = typed.value.trim().toLowerCase();
  const offers = [];
  const offer = (what, name, note, work, names = [name]) => {
    const best = Math.max(...names.map((one) => score(one, word)));
    if (best > 0) offers.push({ what, name, note, work, best });
  };
  for (const [name, parts] of [['Overview', []], ['Graph', ['graph']], ['Metrics', ['metrics']], ['Apply YAML', ['apply']]]) offer('page', name, '', () => go(to(parts)));
  for (const kind of kinds.value) offer('kind', kind.kind, kind.apiVersion, () => go(listOf(kind)), [kind.kind, kind.resource, ...kind.short]);
  const spaces = find('namespaces');
  const known = useFeed(spaces, { live: true });
  for (const row of known?.rows.values() || []) offer('namespace', row.name, 'look only there', () => { namespace.value = row.name; });
  if (word.length > 1) {
    for (const [kind, feed] of feeds) for (const row of feed?.rows.values() || []) offer(kind.kind, row.name, row.namespace, () => go(objectOf(kind, row.namespace, row.name)));
  }
  offers.sort((a, b) => b.best - a.best);
  const shown = offers.slice(0, MOST);
  const choose = (one) => { close(); one?.work(); };
  const move = (by) => { at.value = Math.max(0, Math.min(shown.length - 1, at.value + by)); };
  const keys = (event) => {
    const work = { ArrowDown: () => move(1), ArrowUp: () => move(-1), Enter: () => choose(shown[at.value]), Escape: close }[event.key];
    if (work) { event.preventDefault(); event.stopPropagation(); work(); }
  };
  useKeys('Find', [['Escape', '', close]]);
  return html`<div class="veil top" onClick=${close}></div><div class="dialog palette" role="dialog" aria-label="Find anything">
    <input ref=${field} type="text" role="combobox" aria-expanded="true" aria-controls="offers" placeholder="A kind, a name, a namespace, a page" spellcheck=${false} value=${typed.value} onInput=${(event) => { typed.value = event.target.value; at.value = 0; }} onKeyDown=${keys} />
    <ul id="offers" role="listbox" ref=${list}>${shown.map((one, index) => html`<li key=${`${one.what}/${one.note}/${one.name}`} role="option" aria-selected=${index === at.value} class=${classes(index === at.value && 'on')} onClick=${() => choose(one)}><span class="what">${one.what}</span><b>${one.name}</b><small>${one.note}</small></li>`)}</ul></div>`;
}
