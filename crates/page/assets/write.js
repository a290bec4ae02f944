// Writing: always a dry run first, whose difference is shown, then the same request for real. YAML is sent as it was typed; the server reads it.
import { ask } from './api.js';
import { remember } from './story.js';
import { ofKind, pathOf } from './kinds.js';

const MANAGER = 'trireme-ui';

async function send(path, options, dry) {
  const begun = Date.now();
  const query = { fieldManager: MANAGER, fieldValidation: 'Strict', ...options.query, dryRun: dry ? 'All' : '' };
  const answer = await ask(path, { ...options, query });
  const object = await answer.json();
  if (!dry && object.metadata?.uid) remember(object.metadata.uid, begun, Date.now() - begun);
  return { object, created: answer.status === 201, warnings: warningsOf(answer) };
}

const warningsOf = (answer) => [...(answer.headers.get('Warning') || '').matchAll(/299 \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, said]) => said.replace(/\\(.)/g, '$1'));

/** Replaces an object by the text; the server refuses it if somebody else was faster. */
export const replace = (kind, meta, text, dry) => send(pathOf(kind, meta.namespace, meta.name), { method: 'PUT', type: 'application/yaml', body: text }, dry);

/** Applies one document, server-side; what others manage is taken only with `force`. */
export function apply(target, text, { dry, force }) {
  return send(pathOf(target.kind, target.namespace, target.name), { method: 'PATCH', type: 'application/apply-patch+yaml', body: text, query: { force: force ? 'true' : '' } }, dry);
}

/** The documents of a text: `[{ text, kind, namespace, name }]`, or what is wrong with one. Only what the address needs is read here. */
export function documents(text, namespace) {
  return text.split(/^---[ \t]*$/m).filter((part) => /^[^#\s]/m.test(part)).map((part) => {
    const found = part.trim().startsWith('{') ? ofJson(part) : ofYaml(part);
    if (!found.apiVersion || !found.kind || !found.name) throw new Error('Each document needs apiVersion, kind and metadata.name.');
    const kind = ofKind(found.apiVersion, found.kind);
    if (!kind) throw new Error(`The server has no kind ${found.kind} in ${found.apiVersion}.`);
    return { text: part, kind, name: found.name, namespace: kind.namespaced ? found.namespace || namespace || 'default' : '' };
  });
}

function ofJson(part) {
  const { apiVersion, kind, metadata } = JSON.parse(part);
  return { apiVersion, kind, name: metadata?.name, namespace: metadata?.namespace };
}

function ofYaml(part) {
  const plain = (value) => value?.trim().replace(/\s+#.*$/, '').replace(/^(["'])(.*)\1$/, '$2');
  const top = (name) => plain(new RegExp(`^["']?${name}["']?:[ \\t]*(.+)$`, 'm').exec(part)?.[1]);
  const [, block = ''] = /^["']?metadata["']?:[ \t]*(?:#.*)?\n((?:(?:[ \t]+.*|[ \t]*#.*|[ \t]*)(?:\n|$))+)/m.exec(part) || [];
  const indent = /^([ \t]+)\S/m.exec(block)?.[1] || '  ';
  const inside = (name) => plain(new RegExp(`^${indent}["']?${name}["']?:[ \\t]*(.+)$`, 'm').exec(block)?.[1]);
  return { apiVersion: top('apiVersion'), kind: top('kind'), name: inside('name'), namespace: inside('namespace') };
}
