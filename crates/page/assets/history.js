// From when to when the cluster can be seen, and when much happened in between. A server that keeps no history says so once.
import { signal } from './dom.js';
import { get } from './api.js';
import { find, pathOf } from './kinds.js';
import { namespace } from './place.js';

export const noHistory = 'This server keeps no history.';

/** null until asked; `{ from, to }` in milliseconds or in revisions (`byTime`); or `{ none }`, with the reason. */
export const range = signal(null);
/** Moments at which something changed: `[{ time, type, name, resource }]`. */
export const marks = signal([]);

export async function readRange(signal) {
  try {
    const kept = await get('/trireme/history', { signal, quiet: true });
    const [oldest, latest] = [kept.oldest, kept.latest];
    if (!oldest || !latest) throw new Error(noHistory);
    const byTime = !!(oldest.time && latest.time);
    range.value = byTime ? { byTime, from: Date.parse(oldest.time), to: Date.now() } : { byTime, from: Number(oldest.resourceVersion), to: Number(latest.resourceVersion) };
  } catch (error) {
    if (signal?.aborted) return;
    range.value = { none: error.code === 404 ? noHistory : error.code === 403 ? 'You may not see how far back the history of this cluster goes.' : error.message };
  }
}

/** The changes of what people run; whoever may not list some of it has fewer marks. */
export async function readMarks(signal) {
  const found = [];
  for (const [resource, group] of [['deployments', 'apps'], ['pods', '']]) {
    const kind = find(resource, group);
    if (!kind) continue;
    const list = await get(pathOf(kind, namespace.value), { query: { changes: 'true', limit: 500 }, signal, quiet: true }).catch(() => ({}));
    for (const { time, type, name, resourceVersion } of list.items || []) found.push({ time: time && Date.parse(time), revision: Number(resourceVersion), type, name, resource });
  }
  marks.value = found;
}
