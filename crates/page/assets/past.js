// What became of an object: every change that is kept, newest first; who made it, which fields; and the way back.
import { html } from './dom.js';
import { get } from './api.js';
import { pathOf } from './kinds.js';
import { useAnswer } from './use.js';
import { moment } from './moment.js';
import { objectOf } from './route.js';
import { stamp, age } from './format.js';
import { Busy, Empty, Trouble } from './widgets.js';
import { noHistory } from './history.js';

const SIGNS = { Added: '+', Modified: '~', Deleted: '−' };
const LEVELS = { Added: 'ok', Modified: 'wait', Deleted: 'bad' };

/** The revision at which it is to be seen: of one that was deleted, the last at which it was there. */
const before = (change) => (change.type === 'Deleted' ? String(Number(change.resourceVersion) - 1) : change.resourceVersion);

export function Past({ kind, namespace, name }) {
  const { value, error } = useAnswer((signal) => get(pathOf(kind, namespace, name), { query: { changes: 'true', limit: 200 }, signal, quiet: true }), [kind.id, namespace, name]);
  if (error) return html`<${Trouble} error=${error} />`;
  if (!value) return html`<${Busy} />`;
  if (value.kind !== 'ChangeList') return html`<${Empty}>${noHistory}</${Empty}>`;
  if (!value.items?.length) return html`<${Empty}>No change of it is kept.</${Empty}>`;
  return html`<ol class="changes">${value.items.map((one) => html`<li key=${one.resourceVersion} class=${LEVELS[one.type]}><header><b><i>${SIGNS[one.type]}</i> ${one.type}</b> <span>${one.time ? `${stamp(one.time)} (${age(one.time)} ago)` : ''}</span> <code>revision ${one.resourceVersion}</code>
      <span class="by">${one.user}${one.manager ? ` · ${one.manager}` : ''}${one.verb ? ` · ${one.verb}${one.subresource ? ` ${one.subresource}` : ''}` : ''}</span>
      <button onClick=${() => { moment.value = { at: before(one), time: one.time }; }}>see it ${one.type === 'Deleted' ? 'before' : 'then'}</button>${one.type !== 'Deleted' && html`<a class="button" href=${objectOf(kind, namespace, name, 'edit', { from: one.resourceVersion })}>go back to it…</a>`}</header>
    ${one.fields?.length > 0 && html`<dl>${one.fields.map((field) => html`<dt>${field.path}</dt><dd>${'old' in field || field.oldOmitted ? html`<del>${field.oldOmitted ? '…' : JSON.stringify(field.old)}</del>` : ''}${'new' in field || field.newOmitted ? html` <ins>${field.newOmitted ? '…' : JSON.stringify(field.new)}</ins>` : ''}</dd>`)}</dl>`}${one.omitted > 0 && html`<small>and ${one.omitted} more fields</small>`}</li>`)}</ol>
    ${value.oldest && html`<${Empty}>History begins at revision ${value.oldest.resourceVersion}${value.oldest.time ? `, ${stamp(value.oldest.time)}` : ''}.</${Empty}>`}`;
}
