// Owners above, dependents below. Owners are named by the object; dependents name their owner, so kinds that are usually owned are read
// in the object's namespace, and every other kind when that is asked for.
import { html, useSignal, useEffect, classes } from './dom.js';
import { get } from './api.js';
import { kinds, pathOf, ofKind } from './kinds.js';
import { objectOf } from './route.js';
import { moment } from './moment.js';
import { Busy, Empty } from './widgets.js';

const METADATA = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json';
const OFTEN = new Set(['pods', 'replicasets', 'deployments', 'statefulsets', 'daemonsets', 'controllerrevisions', 'jobs', 'endpointslices', 'persistentvolumeclaims', 'services', 'configmaps', 'secrets', 'leases']);
const AT_ONCE = 4;

/** Everything in reach as `{ kind, meta }`, by uid. What may not be read is left out. */
async function everything(object, all, signal) {
  const { namespace } = object.metadata;
  const wanted = kinds.value.filter((kind) => kind.resource !== 'events' && (all || OFTEN.has(kind.resource)) && (!namespace || kind.namespaced) && (namespace || !kind.namespaced || all));
  const found = new Map();
  const queue = [...wanted];
  const at = moment.value?.at;
  const work = async () => {
    for (let kind = queue.shift(); kind; kind = queue.shift()) {
      const list = await get(pathOf(kind, namespace), { query: { at }, accept: METADATA, signal, quiet: true }).catch(() => ({ items: [] }));
      for (const { metadata } of list.items || []) found.set(metadata.uid, { kind, meta: metadata });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return found;
}

export function Tree({ kind, object }) {
  const all = useSignal(false);
  const found = useSignal(null);
  useEffect(() => {
    const ending = new AbortController();
    everything(object, all.value, ending.signal).then((map) => { if (!ending.signal.aborted) found.value = map; });
    return () => ending.abort();
  }, [object.metadata.resourceVersion, all.value]);
  if (!found.value) return html`<${Busy} />`;
  const map = new Map(found.value).set(object.metadata.uid, { kind, meta: object.metadata });
  const children = new Map();
  for (const one of map.values()) for (const owner of one.meta.ownerReferences || []) children.set(owner.uid, [...(children.get(owner.uid) || []), one]);
  // Up to whoever is owned by nobody here.
  let top = { kind, meta: object.metadata };
  for (const seen = new Set(); !seen.has(top.meta.uid);) {
    seen.add(top.meta.uid);
    const owner = top.meta.ownerReferences?.find((one) => one.controller) || top.meta.ownerReferences?.[0];
    if (!owner) break;
    top = map.get(owner.uid) || { kind: ofKind(owner.apiVersion, owner.kind), meta: { uid: owner.uid, name: owner.name, namespace: object.metadata.namespace }, title: owner.kind };
  }
  const alone = top.meta.uid === object.metadata.uid && !children.get(top.meta.uid);
  return html`<div class="tree">${alone && html`<${Empty}>Nobody owns it${all.value ? '' : ' among the kinds that were read'}, and it owns nothing.</${Empty}>`}<ul><${Branch} one=${top} children=${children} here=${object.metadata.uid} depth=${0} /></ul>
    ${!all.value && html`<button onClick=${() => { all.value = true; }}>Look in every kind</button>`}</div>`;
}

function Branch({ one, children, here, depth }) {
  const below = depth < 12 ? (children.get(one.meta.uid) || []).sort((a, b) => (a.kind?.kind + a.meta.name < b.kind?.kind + b.meta.name ? -1 : 1)) : [];
  const label = html`<small>${one.kind?.kind || one.title}</small> <b>${one.meta.name}</b>`;
  return html`<li><span class=${classes('leaf', one.meta.uid === here && 'here')}>${one.kind ? html`<a href=${objectOf(one.kind, one.meta.namespace, one.meta.name)}>${label}</a>` : label}</span>
    ${below.length > 0 && html`<ul>${below.slice(0, 200).map((child) => html`<${Branch} key=${child.meta.uid} ...${{ one: child, children, here, depth: depth + 1 }} />`)}${below.length > 200 && html`<li>and ${below.length - 200} more</li>`}</ul>`}</li>`;
}
