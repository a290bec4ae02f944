// The way of an object as a waterfall, live: twelve stations, a tree of objects, a bar for every hop.
import { html, useMemo, useSignal, classes } from './dom.js';
import { find } from './kinds.js';
import { useFeed, useEvery } from './use.js';
import { gather, tell, explained, HOPS } from './story.js';
import { objectOf } from './route.js';
import { took, clock } from './format.js';
import { Trouble, Empty, Busy, Panel } from './widgets.js';
import { moment } from './moment.js';

const OFTEN = 700;
/** As many pods as are told about. */
const MOST = 30;

/** The object and what it owns, two generations down, as far as replica sets, jobs and pods go. */
function useFamily(kind, object) {
  const { namespace, uid } = object.metadata;
  const sets = useFeed(find('replicasets', 'apps'), { namespace: namespace || '' });
  const jobs = useFeed(find('jobs', 'batch'), { namespace: namespace || '' });
  const pods = useFeed(find('pods'), { namespace: namespace || '' });
  return useMemo(() => {
    const node = pods?.columns.findIndex((column) => column.name === 'Node') ?? -1;
    const on = (row) => { const name = String(row.cells[node] ?? ''); return name === '<none>' ? '' : name; };
    const members = [{ uid, name: `${kind.kind.toLowerCase()}/${object.metadata.name}`, owner: object.metadata.ownerReferences?.find((one) => one.controller)?.uid || '', node: object.spec?.nodeName || '', kind, row: object.metadata }];
    const add = (feed, prefix, kindOf, at) => {
      const family = new Set(members.map((member) => member.uid));
      for (const row of feed?.rows.values() || []) if (row.owner && family.has(row.owner) && !family.has(row.uid)) members.push({ uid: row.uid, name: `${prefix}/${row.name}`, owner: row.owner, node: at ? at(row) : '', kind: kindOf, row });
    };
    if (!namespace) return members;
    add(sets, 'replicaset', find('replicasets', 'apps'));
    add(jobs, 'job', find('jobs', 'batch'));
    const before = members.length;
    add(pods, 'pod', find('pods'), on);
    return members.length - before > MOST ? [...members.slice(0, before), ...members.slice(before).sort((a, b) => Date.parse(b.row.created) - Date.parse(a.row.created)).slice(0, MOST)] : members;
  }, [uid, object.metadata.resourceVersion, sets?.changes.value, jobs?.changes.value, pods?.changes.value]);
}

export function Hops({ kind, object }) {
  const members = useFamily(kind, object);
  const story = useSignal(null);
  const error = useSignal(null);
  useEvery(OFTEN, async (signal) => {
    try {
      story.value = tell(members, await gather(members, signal));
      error.value = null;
    } catch (failed) { if (!signal.aborted) error.value = failed; }
  }, [members]);
  if (error.value) return html`<${Trouble} error=${error.value} />`;
  if (!story.value) return html`<${Busy} />`;
  return html`${moment.value && html`<${Empty}>Hops are remembered as they happened, whatever moment is shown.</${Empty}>`}<${Waterfall} story=${story.value} />`;
}

function Waterfall({ story }) {
  const { chapters, length, reached, silent } = story;
  if (!chapters.length) return html`<${Empty}>Nothing is remembered of it: it was long ago, or the server or the node was restarted since.</${Empty}>`;
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return html`<div class="waterfall"><${Stations} reached=${reached} />
    <p class="sentence"><b>${took(length / 1000)}</b> from the first hop to the last, of which ${took((length - story.accounted) / 1000)} between hops; begun at ${clock(story.begun)}. ${explained(story, took)}</p>
    <div class="axis"><span></span><span></span><div>${ticks.map((at) => html`<i key=${at} style=${{ left: `${at * 100}%` }}>${took((length * at) / 1000)}</i>`)}</div></div>
    ${chapters.map((chapter) => html`<${Chapter} key=${chapter.member.uid} chapter=${chapter} length=${length} />`)}
    ${[...silent].map(([node, why]) => html`<p class="empty" key=${node}>▲ Node ${node} said nothing: ${why}</p>`)}</div>`;
}

const Stations = ({ reached }) => html`<ol class="stations" aria-label="The twelve hops">${HOPS.map((name, at) => html`<li key=${name} class=${classes(`h${at + 1}`, reached.has(at + 1) && 'reached')}><b>${at + 1}</b><span>${name}</span><small>${reached.has(at + 1) ? '✓' : '·'}</small></li>`)}</ol>`;

function Chapter({ chapter: { member, depth, rows }, length }) {
  return html`<section class="chapter" style=${{ '--depth': depth }}><h3><a href=${objectOf(member.kind, member.row.namespace, member.row.name, 'hops')}>${member.name}</a>${member.node && html` <small>on ${member.node}</small>`}</h3>
    ${rows.map((row) => html`<div class=${`hop h${row.hop}`} key=${row.key} data-hop=${row.hop} title=${`${row.hop} ${row.name}${row.stage ? ` · ${row.stage}` : ''}${row.verb ? ` · ${row.verb}` : ''}${row.by ? ` · ${row.by}` : ''}: ${took(row.total / 1000)}`}>
      <span class=${classes('label', row.stage && 'part')}><b>${row.hop}</b> ${row.stage || row.name}${row.by && html` <em>${row.by}</em>`}${row.times.length > 1 && html` <small>×${row.times.length}</small>`}</span><span class="time">${took(row.total / 1000)}</span>
      <span class="lane">${row.times.slice(0, 200).map(([from, to], at) => html`<i key=${at} style=${{ left: `${(from / length) * 100}%`, width: `max(3px, ${((to - from) / length) * 100}%)` }}></i>`)}</span>${row.said.size > 0 && html`<small class="said">${[...row.said].slice(0, 8).join(' · ')}</small>`}</div>`)}</section>`;
}
