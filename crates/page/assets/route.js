// Which view is shown: the fragment of the address, so that a reload, a link and the back button do what they should.
import { signal, computed } from './dom.js';

const hash = signal(location.hash);
addEventListener('hashchange', () => { hash.value = location.hash; });

/** `{ parts, query }` of `#/a/b?c=d`. */
export const route = computed(() => {
  const [path, query] = hash.value.replace(/^#\/?/, '').split('?');
  return { parts: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query || '') };
});

function decode(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

export function to(parts, query = {}) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return `#/${parts.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`;
}

export function go(link) { location.hash = link; }

/** Changes the query of the view that is shown, without a step in the browser's history. */
export function amend(changes) {
  const { parts, query } = route.value;
  const merged = Object.fromEntries(query);
  history.replaceState(null, '', to(parts, { ...merged, ...changes }));
  hash.value = location.hash;
}

/** The link to a table of a kind. The core group is written `core`. */
export const listOf = (kind, query) => to(['list', kind.group || 'core', kind.version, kind.resource], query);
/** The link to an object. */
export const objectOf = (kind, namespace, name, tab, query) =>
  to(['object', kind.group || 'core', kind.version, kind.resource, namespace || '-', name, ...(tab ? [tab] : [])], query);
