// One object, live: what it says of itself, its YAML and how it changes, what happened to it, who owns it, its logs, a shell, its way.
import { html, useEffect, useSignal, useRef, classes } from './dom.js';
import { ask } from './api.js';
import { pathOf } from './kinds.js';
import { useFeed } from './use.js';
import { useKeys } from './keyboard.js';
import { go, objectOf, listOf } from './route.js';
import { moment } from './moment.js';
import { troubles, why } from './health.js';
import { Health, Trouble, Busy, Age, Toggle, Panel, Empty } from './widgets.js';
import { Code, Difference, bare } from './code.js';
import { stamp, clock } from './format.js';
import { EventsOf } from './events.js';
import { Tree } from './tree.js';
import { Logs } from './logs.js';
import { Terminal } from './terminal.js';
import { Hops } from './waterfall.js';
import { Edit } from './edit.js';
import { Past } from './past.js';
import { PodLoad } from './metrics.js';

/** How many versions are kept to look at. */
const VERSIONS = 50;

export function ObjectView({ kind, namespace, name, tab }) {
  const feed = useFeed(kind, { namespace, whole: true, fields: `metadata.name=${name}` });
  const object = [...(feed?.rows.values() || [])].find((row) => row.name === name)?.object;
  const versions = useVersions(object);
  const isPod = kind.resource === 'pods' && kind.group === '';
  const past = !!moment.value;
  const tabs = [['', 'Summary', '1'], ['yaml', 'YAML', 'y'], ['events', 'Events', 'v'], ['tree', 'Tree', 'o'], ['hops', 'Hops', 'h'], ...(isPod && !past ? [['logs', 'Logs', 'l'], ['shell', 'Shell', 's']] : []), ['past', 'History', 'p'], ...(past ? [] : [['edit', 'Edit', 'e']])];
  const at = (id) => objectOf(kind, namespace, name, id);
  useKeys('Object', [...tabs.map(([id, title, key]) => [key, title, () => go(at(id))]), ['Delete', 'delete', () => deleting.current?.()]], [kind.id, namespace, name, past]);
  const deleting = useRef();
  if (!feed || feed.state.value === 'loading') return html`<${Busy} />`;
  const last = object || versions.value[versions.value.length - 1]?.object;
  if (!last) return html`<${Trouble} error=${feed.error.value} />${!feed.error.value && html`<${Empty}>${kind.kind} ${name} ${past ? 'was not there at that moment' : 'is not there'}.</${Empty}>`}${!feed.error.value && html`<${Past} ...${{ kind, namespace, name }} />`}`;
  const bodies = { '': () => html`<${Summary} ...${{ kind, object: last, namespace, name }} />`, yaml: () => html`<${Yaml} object=${last} versions=${versions.value} />`, events: () => html`<${EventsOf} object=${last} />`,
    tree: () => html`<${Tree} kind=${kind} object=${last} />`, hops: () => html`<${Hops} kind=${kind} object=${last} />`, logs: () => html`<${Logs} pod=${last} />`, shell: () => html`<${Terminal} pod=${last} />`,
    past: () => html`<${Past} ...${{ kind, namespace, name }} />`, edit: () => html`<${Edit} kind=${kind} object=${last} />` };
  return html`<div class="objectview"><nav class="tabs" aria-label="Views of this object">${tabs.map(([id, title, key]) => html`<a key=${id} href=${at(id)} class=${classes(tab === id && 'here')} aria-current=${tab === id ? 'page' : undefined}>${title}<kbd>${key}</kbd></a>`)}
    <span class="spring"></span>${!object && html`<span class="word bad">✕ deleted</span>`}${object && !past && kind.verbs.has('delete') && html`<${Delete} ...${{ kind, object, handle: deleting }} />`}</nav>
    <${Trouble} error=${feed.error.value} /><div class="tab">${(bodies[tab] || bodies[''])()}</div></div>`;
}

/** Versions that were seen since the page was opened, oldest first. Those of another moment say nothing of this one. */
function useVersions(object) {
  const versions = useSignal([]);
  const of = useRef(moment.value);
  if (of.current !== moment.value) [of.current, versions.value] = [moment.value, []];
  useEffect(() => {
    const known = versions.peek();
    if (!object || known[known.length - 1]?.object.metadata.resourceVersion === object.metadata.resourceVersion) return;
    versions.value = [...known, { object, at: Date.now() }].slice(-VERSIONS);
  }, [object]);
  return versions;
}

function Delete({ kind, object, handle }) {
  const asked = useSignal(false);
  const error = useSignal(null);
  handle.current = () => { asked.value = true; };
  const { name, namespace, uid } = object.metadata;
  const run = async () => {
    try {
      // By its uid: what took its name meanwhile is not meant.
      await ask(pathOf(kind, namespace, name), { method: 'DELETE', type: 'application/json', body: JSON.stringify({ kind: 'DeleteOptions', apiVersion: 'v1', preconditions: { uid }, propagationPolicy: 'Background' }) });
      go(listOf(kind));
    } catch (failed) { error.value = failed; }
  };
  if (!asked.value) return html`<button class="danger" onClick=${() => { asked.value = true; }}>Delete</button>`;
  return html`<span class="confirm" role="alertdialog">Delete ${kind.kind} <b>${name}</b>? <button class="danger" autofocus onClick=${run}>Delete it</button> <button onClick=${() => { asked.value = false; error.value = null; }}>Keep it</button><${Trouble} error=${error.value} /></span>`;
}

function Summary({ kind, object, namespace, name }) {
  const { metadata: meta, spec = {}, status = {} } = object;
  const reason = why({ ...object, kind: kind.kind });
  const bad = troubles(object);
  const facts = [['Kind', `${object.apiVersion} ${object.kind}`], ['Created', html`${stamp(meta.creationTimestamp)} (<${Age} at=${meta.creationTimestamp} /> ago)`], ['UID', html`<code>${meta.uid}</code>`],
    ['Revision', html`<code>${meta.resourceVersion}</code>${meta.generation ? ` · generation ${meta.generation}${status.observedGeneration && status.observedGeneration !== meta.generation ? ` (seen: ${status.observedGeneration})` : ''}` : ''}`],
    ['Phase', status.phase], ['Node', spec.nodeName], ['Address', status.podIP || spec.clusterIP], ['Replicas', spec.replicas !== undefined ? `${status.readyReplicas || 0} ready of ${spec.replicas}` : undefined],
    ['Strategy', spec.strategy?.type], ['Class', spec.storageClassName || spec.ingressClassName], ['Deleted', meta.deletionTimestamp && stamp(meta.deletionTimestamp)], ['Finalizers', meta.finalizers?.join(', ')]].filter(([, value]) => value);
  return html`<div class="summary">${reason && html`<div class="reason"><${Health} level="warn" /> ${reason}</div>`}
    <${Panel} title="What it is"><dl class="facts">${facts.map(([term, value]) => html`<dt>${term}</dt><dd>${value}</dd>`)}</dl></${Panel}>
    ${status.conditions?.length > 0 && html`<${Panel} title="Conditions"><ul class="conditions">${status.conditions.map((one) => html`<li key=${one.type}><${Health} level=${bad.includes(one) ? 'bad' : one.status === 'True' ? 'ok' : 'wait'} word=${`${one.type}: ${one.status}`} /><span>${one.reason} ${one.message}</span><small>${one.lastTransitionTime && html`<${Age} at=${one.lastTransitionTime} />`}</small></li>`)}</ul></${Panel}>`}
    ${spec.containers && html`<${Containers} pod=${object} />`}${kind.id === 'pods.' && !moment.value && html`<${PodLoad} namespace=${namespace} name=${name} />`}
    <${Pairs} title="Labels" pairs=${meta.labels} /><${Pairs} title="Annotations" pairs=${meta.annotations} />
    ${kind.resource === 'pods' || kind.resource === 'services' ? html`<${Forward} ...${{ kind, object, namespace, name }} />` : ''}</div>`;
}

function Containers({ pod }) {
  const states = new Map([...(pod.status?.containerStatuses || []), ...(pod.status?.initContainerStatuses || [])].map((one) => [one.name, one]));
  const all = [...(pod.spec.initContainers || []).map((one) => ({ ...one, init: true })), ...pod.spec.containers];
  return html`<${Panel} title="Containers"><ul class="containers">${all.map((one) => {
    const state = states.get(one.name);
    const [word, detail] = Object.entries(state?.state || { waiting: {} })[0];
    const level = word === 'running' ? (state.ready ? 'ok' : 'wait') : word === 'terminated' ? (detail.exitCode ? 'bad' : 'done') : 'wait';
    return html`<li key=${one.name}><${Health} level=${level} word=${detail.reason || word} /><span><b>${one.name}</b>${one.init ? ' (init)' : ''} <code>${one.image}</code>${state?.restartCount ? html` <small>${state.restartCount} restarts</small>` : ''}</span></li>`;
  })}</ul></${Panel}>`;
}

const Pairs = ({ title, pairs }) => pairs && Object.keys(pairs).length > 0 && html`<${Panel} title=${title}><ul class="pairs">${Object.entries(pairs).map(([key, value]) => html`<li key=${key}><span class="key">${key}</span><span class="value">${value}</span></li>`)}</ul></${Panel}>`;

function Forward({ kind, object, namespace, name }) {
  const ports = kind.resource === 'services' ? (object.spec.ports || []).map((one) => one.port) : (object.spec.containers || []).flatMap((one) => (one.ports || []).map((port) => port.containerPort));
  if (!ports.length) return '';
  const type = kind.resource === 'services' ? 'service' : 'pod';
  const lines = ports.map((port) => `kubectl port-forward -n ${namespace} ${type}/${name} ${port < 1024 ? port + 8000 : port}:${port}`);
  return html`<${Panel} title="Reach it from your machine">${lines.map((line) => html`<p class="command" key=${line}><code>${line}</code><button onClick=${() => navigator.clipboard?.writeText(line)}>copy</button></p>`)}</${Panel}>`;
}

function Yaml({ object, versions }) {
  const managed = useSignal(false);
  const raw = useSignal(false);
  const secret = useSignal(false);
  const changes = useSignal(false);
  const shown = (one) => bare(one, { managed: raw.value, secret: secret.value });
  const [before, now] = [versions[versions.length - 2]?.object, object];
  return html`<div class="toolbar"><${Toggle} on=${managed.value} flip=${() => { managed.value = !managed.value; }}>who manages what</${Toggle}><${Toggle} on=${raw.value} flip=${() => { raw.value = !raw.value; }}>managedFields</${Toggle}>
      <${Toggle} on=${changes.value} flip=${() => { changes.value = !changes.value; }}>changes${versions.length > 1 ? ` (${versions.length - 1})` : ''}</${Toggle}>${object.kind === 'Secret' && html`<${Toggle} on=${secret.value} flip=${() => { secret.value = !secret.value; }}>show values</${Toggle}>`}</div>
    ${changes.value ? html`${versions.length < 2 && html`<${Empty}>It has not changed since this page was opened. Changes appear here as they happen.</${Empty}>`}${versions.slice(1).map((version, at) => html`<section class="change" key=${version.object.metadata.resourceVersion}><h3>${clock(version.at)} <small>revision ${version.object.metadata.resourceVersion}</small></h3><${Difference} before=${shown(versions[at].object)} after=${shown(version.object)} /></section>`).reverse()}`
    : html`<${Code} object=${shown(now)} before=${before && shown(before)} showManagers=${managed.value} />`}`;
}
