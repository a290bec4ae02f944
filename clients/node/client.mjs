// @kubernetes/client-node, unmodified, on custom resources: object API, generated API, informer, patches.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const where = { group: 'harbour.example.com', version: 'v1', namespace: 'default', plural: 'ships' };

const definition = k8s.loadYaml(await readFile(process.argv[2], 'utf8'));
await objects.create(definition);
const established = (one) => one.status?.conditions?.some((c) => c.type === 'Established' && c.status === 'True');
while (!established(await objects.read(definition)));
console.log('definition');

const kind = { apiVersion: 'harbour.example.com/v1', kind: 'Ship' };
const metadata = { name: 'argo', namespace: 'default' };
const made = await objects.create({ ...kind, metadata, spec: { port: 'colchis' } });
assert.equal(made.spec.crew, 3);
const patched = await objects.patch(
  { ...kind, metadata, spec: { port: 'colchis', cargo: [{ name: 'fleece', weight: 1 }] } },
  undefined, undefined, 'node', true, k8s.PatchStrategy.ServerSideApply,
);
assert.deepEqual(patched.spec.cargo, [{ name: 'fleece', weight: 1 }]);
console.log('objects');

const informer = k8s.makeInformer(
  config, '/apis/harbour.example.com/v1/namespaces/default/ships', () => custom.listNamespacedCustomObject(where),
);
const next = (verb) => new Promise((resolve) => informer.on(verb, resolve));
const added = next('add');
const updated = next('update');
const deleted = next('delete');
await informer.start();
assert.equal((await added).metadata.name, 'argo');
await custom.replaceNamespacedCustomObjectStatus({
  ...where, name: 'argo', body: { ...(await objects.read({ ...kind, metadata })), status: { phase: 'Sailing' } },
});
assert.equal((await updated).status.phase, 'Sailing');
await objects.delete({ ...kind, metadata });
assert.equal((await deleted).metadata.name, 'argo');
await informer.stop();
console.log('informer');

await assert.rejects(
  objects.create({ ...kind, metadata, spec: { port: 'colchis', crew: 101 } }),
  (error) => error.code === 422 && String(error.body?.message ?? error.body).includes('a ship has at most 100 sailors'),
);
await objects.delete(definition);
console.log('refusals');
process.exit(0);
