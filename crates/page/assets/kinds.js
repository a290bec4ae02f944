// Which kinds the server has, custom ones included, by its own discovery; and how they are grouped for people.
import { signal, computed } from './dom.js';
import { get } from './api.js';

const ACCEPT = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json';

export const kinds = signal([]);

export async function discover() {
  const [core, groups] = await Promise.all(['/api', '/apis'].map((path) => get(path, { accept: ACCEPT })));
  const found = [];
  for (const group of [...(core.items || []), ...(groups.items || [])]) {
    const seen = new Set();
    for (const version of group.versions || []) {
      for (const one of version.resources || []) {
        if (seen.has(one.resource) || !one.verbs?.includes('list')) continue;
        // The first version is the one that the server prefers.
        seen.add(one.resource);
        found.push(kindOf(group.metadata?.name || '', version.version, one));
      }
    }
  }
  found.sort((a, b) => (a.kind < b.kind ? -1 : a.kind > b.kind ? 1 : a.group < b.group ? -1 : 1));
  kinds.value = found;
}

function kindOf(group, version, one) {
  const base = group ? `/apis/${group}/${version}` : `/api/${version}`;
  return {
    group, version, resource: one.resource, kind: one.responseKind?.kind || one.resource, namespaced: one.scope === 'Namespaced',
    verbs: new Set(one.verbs), short: one.shortNames || [], subresources: (one.subresources || []).map((sub) => sub.subresource),
    apiVersion: group ? `${group}/${version}` : version, base, id: `${one.resource}.${group}`,
  };
}

/** The path of a kind's objects, or of one of them. */
export function pathOf(kind, namespace, name, subresource) {
  const parts = [kind.base];
  if (kind.namespaced && namespace) parts.push('namespaces', encodeURIComponent(namespace));
  parts.push(kind.resource);
  if (name) parts.push(encodeURIComponent(name));
  if (subresource) parts.push(subresource);
  return parts.join('/');
}

export const find = (resource, group = '') => kinds.value.find((kind) => kind.resource === resource && kind.group === group);
export const ofKind = (apiVersion, kind) => kinds.value.find((one) => one.kind === kind && one.apiVersion === apiVersion)
  || kinds.value.find((one) => one.kind === kind && one.group === groupOf(apiVersion));
const groupOf = (apiVersion = '') => (apiVersion.includes('/') ? apiVersion.split('/')[0] : '');

const SECTIONS = [
  ['Workloads', ['deployments.apps', 'statefulsets.apps', 'daemonsets.apps', 'jobs.batch', 'cronjobs.batch', 'pods.', 'replicasets.apps', 'horizontalpodautoscalers.autoscaling']],
  ['Network', ['services.', 'endpointslices.discovery.k8s.io', 'ingresses.networking.k8s.io', 'networkpolicies.networking.k8s.io']],
  ['Configuration', ['configmaps.', 'secrets.', 'resourcequotas.', 'limitranges.']],
  ['Storage', ['persistentvolumeclaims.', 'persistentvolumes.', 'storageclasses.storage.k8s.io', 'volumesnapshots.snapshot.storage.k8s.io']],
  ['Access', ['serviceaccounts.', 'roles.rbac.authorization.k8s.io', 'rolebindings.rbac.authorization.k8s.io', 'clusterroles.rbac.authorization.k8s.io', 'clusterrolebindings.rbac.authorization.k8s.io']],
  ['Cluster', ['nodes.', 'namespaces.', 'events.', 'leases.coordination.k8s.io', 'customresourcedefinitions.apiextensions.k8s.io']],
];

/** Kinds under headings: what people look at most, what definitions added, everything else. */
export const sections = computed(() => {
  const all = new Map(kinds.value.map((kind) => [kind.id, kind]));
  const named = SECTIONS.map(([title, ids]) => [title, ids.map((id) => all.get(id)).filter(Boolean)]);
  named.flatMap(([, list]) => list).forEach((kind) => all.delete(kind.id));
  const rest = [...all.values()];
  const own = (kind) => kind.group.includes('.') && !kind.group.endsWith('.k8s.io');
  return [...named, ['Custom', rest.filter(own)], ['Others', rest.filter((kind) => !own(kind))]].filter(([, list]) => list.length);
});
