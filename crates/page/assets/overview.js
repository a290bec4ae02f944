// The first page: is all well, and if not, what is wrong and why; how loaded the nodes are; what happened last.
import { html, useSignal, useEffect } from './dom.js';
import { find } from './kinds.js';
import { useFeed, useEvery } from './use.js';
import { get } from './api.js';
import { pathOf, ofKind } from './kinds.js';
import { objectOf, listOf, to } from './route.js';
import { ofRow, why, troubles } from './health.js';
import { Health, Meter, Panel, Age, Empty, Trouble } from './widgets.js';
import { amount, bytes, cores, percent } from './format.js';
import { namespace } from './place.js';
import { Pulse } from './metrics.js';
import { moment } from './moment.js';

const WATCHED = [['deployments', 'apps'], ['statefulsets', 'apps'], ['daemonsets', 'apps'], ['pods', ''], ['persistentvolumeclaims', ''], ['jobs', 'batch']];
/** How many are explained: the explanation is read from the object itself. */
const EXPLAINED = 12;
const RANK = { bad: 0, warn: 1, wait: 2 };

export function Overview() {
  const nodes = useFeed(find('nodes'), { whole: true });
  const feeds = WATCHED.map(([resource, group]) => {
    const kind = find(resource, group);
    return [kind, useFeed(kind, { namespace: namespace.value })];
  });
  const warnings = useFeed(find('events'), { namespace: namespace.value, whole: true, fields: 'type=Warning' });
  const usage = useSignal(null);
  useEvery(15_000, async (signal) => { usage.value = await get('/apis/metrics.k8s.io/v1beta1/nodes', { signal, quiet: true }); }, []);
  const unwell = [];
  for (const row of nodes?.rows.values() || []) {
    const [trouble] = troubles(row.object);
    if (trouble) unwell.push({ kind: find('nodes'), row, level: 'bad', word: trouble.type === 'Ready' ? 'NotReady' : trouble.type, why: trouble.message });
  }
  for (const [kind, feed] of feeds) {
    for (const row of feed?.rows.values() || []) {
      const health = ofRow(row, feed.columns);
      if (health && RANK[health.level] !== undefined) unwell.push({ kind, row, ...health });
    }
  }
  unwell.sort((a, b) => RANK[a.level] - RANK[b.level] || Date.parse(b.row.created) - Date.parse(a.row.created));
  const loading = feeds.some(([, feed]) => feed?.state.value === 'loading');
  return html`<div class="overview">
    <${Numbers} nodes=${nodes} feeds=${feeds} unwell=${unwell.length} loading=${loading} />
    <div class="grid"><div class="stack"><${Unwell} all=${unwell} warnings=${warnings} loading=${loading} />
      ${!moment.value && html`<${Panel} title="The server itself" aside=${html`<a href=${to(['metrics'])}>more</a>`}><${Pulse} /></${Panel}>`}</div>
      <div class="stack"><${Nodes} feed=${nodes} usage=${moment.value ? null : usage.value} /><${Events} feed=${warnings} /></div></div></div>`;
}

function Numbers({ nodes, feeds, unwell, loading }) {
  const list = [...(nodes?.rows.values() || [])];
  const ready = list.filter((row) => !troubles(row.object).some((one) => one.type === 'Ready')).length;
  const [pods, deployments] = [feeds.find(([kind]) => kind?.resource === 'pods'), feeds.find(([kind]) => kind?.resource === 'deployments')];
  const good = ([, feed] = []) => [...(feed?.rows.values() || [])].filter((row) => ['ok', 'done'].includes(ofRow(row, feed.columns)?.level)).length;
  const tile = (kind, count, whole, what) => kind && html`<a class="tile" href=${listOf(kind)}><b>${count}</b><span class="of">/ ${whole}</span><span class="what">${what}</span></a>`;
  const well = unwell === 0;
  return html`<div class="tiles"><div class=${`tile verdict ${well ? 'ok' : 'warn'}`}><${Health} level=${loading ? 'wait' : well ? 'ok' : 'warn'} /><span class="what">${loading ? 'Looking…' : well ? 'All is well' : `${unwell} ${unwell === 1 ? 'needs' : 'need'} a look`}</span></div>
    ${tile(find('nodes'), ready, list.length, 'nodes ready')}${tile(pods?.[0], good(pods), pods?.[1]?.rows.size ?? 0, 'pods well')}${tile(deployments?.[0], good(deployments), deployments?.[1]?.rows.size ?? 0, 'deployments available')}</div>`;
}

function Unwell({ all, warnings, loading }) {
  const shown = all.slice(0, 50);
  return html`<${Panel} title="Not healthy, and why" wide id="unwell">${shown.length ? html`<ul class="unwell">${shown.map((one, at) => html`<${One} key=${one.row.uid} ...${{ ...one, warnings, explain: at < EXPLAINED }} />`)}</ul>`
    : html`<${Empty}>${loading ? 'Reading…' : 'Everything that says how it is says that it is well.'}</${Empty}>`}${all.length > shown.length && html`<${Empty}>and ${all.length - shown.length} more</${Empty}>`}</${Panel}>`;
}

function One({ kind, row, level, word, why: known, warnings, explain }) {
  const found = useSignal('');
  warnings?.changes.value;
  useEffect(() => {
    if (known || !explain || moment.value) return;
    get(pathOf(kind, row.namespace, row.name), { quiet: true }).then((object) => { found.value = why({ ...object, kind: kind.kind }); }, () => {});
  }, [row.version, explain]);
  const said = [...(warnings?.rows.values() || [])].map((one) => one.object).filter((event) => event.involvedObject?.uid === row.uid).sort((a, b) => lastSeen(b) - lastSeen(a))[0];
  return html`<li><a href=${objectOf(kind, row.namespace, row.name)}><${Health} level=${level} word=${word} /><span class="name"><small>${kind.kind}</small> <b>${row.name}</b>${row.namespace && html` <small>in ${row.namespace}</small>`}</span>
    <span class="why">${known || found.value || said?.message || ''}</span></a></li>`;
}

export const lastSeen = (event) => Date.parse(event.series?.lastObservedTime || event.lastTimestamp || event.eventTime || event.firstTimestamp || event.metadata.creationTimestamp) || 0;

function Nodes({ feed, usage }) {
  feed?.changes.value;
  const used = new Map((usage?.items || []).map((one) => [one.metadata.name, one.usage]));
  const list = [...(feed?.rows.values() || [])].sort((a, b) => (a.name < b.name ? -1 : 1));
  const kind = find('nodes');
  const of = (row) => ({ cpu: amount(used.get(row.name)?.cpu), memory: amount(used.get(row.name)?.memory), cpus: amount(row.object.status?.allocatable?.cpu), memories: amount(row.object.status?.allocatable?.memory) });
  const sum = list.map(of).reduce((all, one) => ({ cpu: all.cpu + one.cpu, memory: all.memory + one.memory, cpus: all.cpus + one.cpus, memories: all.memories + one.memories }), { cpu: 0, memory: 0, cpus: 0, memories: 0 });
  return html`<${Panel} title="Nodes" aside=${kind && html`<a href=${listOf(kind)}>all ${list.length}</a>`}>
    ${feed?.error.value ? html`<${Trouble} error=${feed.error.value} />` : html`${used.size ? html`<div class="load"><${Meter} label="CPU" used=${sum.cpu} whole=${sum.cpus} show=${cores} /><${Meter} label="Memory" used=${sum.memory} whole=${sum.memories} show=${bytes} /></div>` : ''}
    <div class="nodes">${list.slice(0, 200).map((row) => {
    const { cpu, memory, cpus, memories } = of(row);
    const bad = troubles(row.object)[0];
    return html`<a key=${row.uid} class=${`node ${bad ? 'bad' : ''}`} href=${objectOf(kind, '', row.name)} title=${bad ? bad.message : `CPU ${percent(cpu, cpus)}%, memory ${percent(memory, memories)}%`}>
      <span class="name"><${Health} level=${bad ? 'bad' : row.object.spec?.unschedulable ? 'warn' : 'ok'} /> ${row.name}</span>
      ${used.has(row.name) ? html`<span class="bars"><i style=${{ width: `${percent(cpu, cpus)}%` }}></i><i style=${{ width: `${percent(memory, memories)}%` }}></i></span><small>${percent(cpu, cpus)}% cpu · ${percent(memory, memories)}% mem</small>` : html`<small>${bad ? bad.reason : `${cores(cpus)} cores · ${bytes(memories)}`}</small>`}</a>`;
  })}</div>`}</${Panel}>`;
}

function Events({ feed }) {
  feed?.changes.value;
  const list = [...(feed?.rows.values() || [])].map((row) => row.object).sort((a, b) => lastSeen(b) - lastSeen(a)).slice(0, 30);
  return html`<${Panel} title="Warnings" aside=${html`<a href=${listOf(find('events') || { version: 'v1', resource: 'events' })}>all events</a>`}>${list.length ? html`<ul class="events">${list.map((event) => {
    const kind = ofKind(event.involvedObject?.apiVersion, event.involvedObject?.kind);
    const name = html`<small>${event.involvedObject?.kind}</small> <b>${event.involvedObject?.name}</b>`;
    return html`<li key=${event.metadata.uid}><${Age} at=${new Date(lastSeen(event)).toISOString()} /><span><span class="word warn">${event.reason}</span> ${kind ? html`<a href=${objectOf(kind, event.involvedObject.namespace, event.involvedObject.name, 'events')}>${name}</a>` : name}<span class="message">${event.message}</span></span></li>`;
  })}</ul>` : html`<${Empty}>No warnings.</${Empty}>`}</${Panel}>`;
}
