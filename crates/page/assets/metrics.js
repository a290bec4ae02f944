// What the server counts of itself and what nodes use, as small plots. Rates are between two readings; nothing is asked while nobody looks.
import { html, useEffect, useRef, useSignal } from './dom.js';
import uPlot from './vendor/uplot.js';
import { text, get } from './api.js';
import { useEvery } from './use.js';
import { Panel, Trouble, Empty } from './widgets.js';
import { amount, bytes, clock, cores, short, took } from './format.js';
import { theme } from './theme.js';

const PERIOD = 5_000;
const KEPT = 120;

/** `[{ name, labels, value }]` of a page of figures in Prometheus' text form; only of the families that are wanted. */
export function figures(page, wanted) {
  const found = [];
  for (const line of page.split('\n')) {
    if (!line || line[0] === '#') continue;
    const end = line.search(/[{ ]/);
    const name = line.slice(0, end);
    if (!wanted.has(name)) continue;
    const labels = {};
    let rest = end;
    if (line[end] === '{') {
      const pattern = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)",?/y;
      pattern.lastIndex = end + 1;
      for (let one = pattern.exec(line); one; one = pattern.exec(line)) { labels[one[1]] = one[2]; rest = pattern.lastIndex; }
      rest = line.indexOf('}', rest) + 1;
    }
    found.push({ name, labels, value: Number(line.slice(rest).trim().split(' ')[0]) });
  }
  return found;
}

const WANTED = new Set(['apiserver_request_total', 'apiserver_request_duration_seconds_bucket', 'process_cpu_seconds_total', 'process_resident_memory_bytes', 'apiserver_longrunning_requests', 'apiserver_current_inflight_requests']);

/** What is plotted, from one reading: sums that go up, and values of now. */
function reading(page) {
  const sums = { requests: {}, buckets: {}, cpu: 0 };
  const now = { memory: 0, watches: 0, inflight: 0 };
  for (const { name, labels, value } of figures(page, WANTED)) {
    if (name === 'apiserver_request_total') {
      const what = labels.verb === 'WATCH' ? 'watch' : /GET|LIST/.test(labels.verb) ? 'read' : 'write';
      sums.requests[what] = (sums.requests[what] || 0) + value;
    } else if (name === 'apiserver_request_duration_seconds_bucket') {
      if (!['WATCH', 'CONNECT'].includes(labels.verb)) sums.buckets[labels.le] = (sums.buckets[labels.le] || 0) + value;
    } else if (name === 'process_cpu_seconds_total') sums.cpu = value;
    else if (name === 'process_resident_memory_bytes') now.memory = value;
    else if (name === 'apiserver_longrunning_requests') { if (labels.verb === 'WATCH') now.watches += value; } else now.inflight += value;
  }
  return { at: Date.now() / 1000, sums, now };
}

/** The time that a share of the requests between two readings stayed under. */
export function quantile(share, before, after) {
  const counts = Object.keys(after).map((le) => [le === '+Inf' ? Infinity : Number(le), after[le] - (before[le] || 0)]).sort((a, b) => a[0] - b[0]);
  const all = counts[counts.length - 1]?.[1] || 0;
  if (!all) return null;
  let [low, under] = [0, 0];
  for (const [le, count] of counts) {
    if (count >= share * all) return le === Infinity ? low : low + ((share * all - under) / Math.max(1, count - under)) * (le - low);
    [low, under] = [le, count];
  }
  return low;
}

// Readings are kept while the page is open, so that a plot is not empty whenever it is looked at again.
const points = [];
let last = null;

async function read(signal) {
  const next = reading(await text('/metrics', { signal, quiet: true }));
  if (last && next.at - last.at > 0.5) {
    const span = next.at - last.at;
    const rate = (what) => Math.max(0, ((next.sums.requests[what] || 0) - (last.sums.requests[what] || 0)) / span);
    points.push({ at: next.at, read: rate('read'), write: rate('write'), p50: quantile(0.5, last.sums.buckets, next.sums.buckets), p99: quantile(0.99, last.sums.buckets, next.sums.buckets), cpu: Math.max(0, (next.sums.cpu - last.sums.cpu) / span), ...next.now });
    if (points.length > KEPT) points.shift();
  }
  last = next;
}

function useReadings() {
  const count = useSignal(0);
  const error = useSignal(null);
  useEvery(PERIOD, async (signal) => {
    try { await read(signal); error.value = null; } catch (failed) { if (!signal.aborted) error.value = failed; }
    count.value++;
  }, []);
  count.value;
  return error.value;
}

/** A plot: `series` are `[name, field, colour variable, dash]`. */
export function Plot({ title, list, series, show, height = 130 }) {
  const box = useRef();
  const plot = useRef();
  const data = [list.map((point) => point.at), ...series.map(([, field]) => list.map((point) => point[field]))];
  const tone = theme.value;
  useEffect(() => {
    const own = box.current;
    const style = getComputedStyle(own);
    const colour = (name) => { own.style.color = `var(${name})`; const found = getComputedStyle(own).color; own.style.color = ''; return found; };
    const axis = { stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: `11px ${style.fontFamily}` };
    plot.current = new uPlot({
      width: own.clientWidth || 300, height, cursor: { y: false, drag: { x: false } }, legend: { show: false },
      series: [{}, ...series.map(([name, , variable, dash]) => ({ label: name, stroke: colour(variable), width: 1.6, dash, points: { show: false }, spanGaps: true }))],
      axes: [{ ...axis, space: 80, size: 22, values: (_, times) => times.map((time) => clock(time * 1000)) }, { ...axis, size: 58, space: 28, values: (_, values) => values.map(show) }],
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.15, 1e-9)] } },
    }, data, own);
    const watcher = new ResizeObserver(() => plot.current.setSize({ width: own.clientWidth, height }));
    watcher.observe(own);
    return () => { watcher.disconnect(); plot.current.destroy(); };
  }, [tone, title]);
  useEffect(() => { plot.current?.setData(data); }, [list.length, list[list.length - 1]?.at]);
  const now = list[list.length - 1];
  return html`<figure class="plot"><figcaption><span>${title}</span>${series.map(([name, field, variable, dash]) => html`<span key=${name} class="legend"><i class=${dash ? 'dash' : ''} style=${{ borderColor: `var(${variable})` }}></i>${name} <b>${now && now[field] !== null && now[field] !== undefined ? show(now[field]) : '–'}</b></span>`)}</figcaption><div ref=${box} class="canvas"></div></figure>`;
}

const REQUESTS = { title: 'Requests per second', series: [['reads', 'read', '--accent'], ['writes', 'write', '--amber', [4, 3]]], show: short };
const LATENCY = { title: 'Latency', series: [['p50', 'p50', '--accent'], ['p99', 'p99', '--amber', [4, 3]]], show: took };

/** The two plots of the overview. */
export function Pulse() {
  const error = useReadings();
  if (error) return html`<${Trouble} error=${error} />`;
  return html`<div class="plots"><${Plot} ...${REQUESTS} list=${[...points]} height=${110} /><${Plot} ...${LATENCY} list=${[...points]} height=${110} /></div>`;
}

export function MetricsView() {
  const error = useReadings();
  return html`<div class="metrics"><${Panel} title="The server itself" wide><${Trouble} error=${error} /><div class="plots"><${Plot} ...${REQUESTS} list=${[...points]} /><${Plot} ...${LATENCY} list=${[...points]} />
      <${Plot} title="CPU of the server's process" series=${[['cores', 'cpu', '--accent']]} show=${cores} list=${[...points]} /><${Plot} title="Memory of the server's process" series=${[['resident', 'memory', '--accent']]} show=${bytes} list=${[...points]} />
      <${Plot} title="Open watches" series=${[['watches', 'watches', '--accent']]} show=${short} list=${[...points]} /><${Plot} title="Requests in flight" series=${[['in flight', 'inflight', '--accent']]} show=${short} list=${[...points]} /></div></${Panel}>
    <${NodeLoad} /></div>`;
}

/** What one pod uses, while it is looked at. */
export function PodLoad({ namespace, name }) {
  const list = useSignal([]);
  useEvery(10_000, async (signal) => {
    const { containers } = await get(`/apis/metrics.k8s.io/v1beta1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}`, { signal, quiet: true });
    const sum = (what) => containers.reduce((all, one) => all + amount(one.usage[what]), 0);
    list.value = [...list.value, { at: Date.now() / 1000, cpu: sum('cpu'), memory: sum('memory') }].slice(-KEPT);
  }, [namespace, name]);
  // Who has no figures has no plot: a pod that has just begun, a node that says nothing.
  if (!list.value.length) return '';
  return html`<${Panel} title="What it uses"><div class="plots"><${Plot} title="CPU" series=${[['cores', 'cpu', '--accent']]} show=${cores} list=${list.value} height=${90} /><${Plot} title="Memory" series=${[['working set', 'memory', '--amber']]} show=${bytes} list=${list.value} height=${90} /></div></${Panel}>`;
}

const loads = new Map();

function NodeLoad() {
  const count = useSignal(0);
  const error = useSignal(null);
  useEvery(10_000, async (signal) => {
    try {
      const list = await get('/apis/metrics.k8s.io/v1beta1/nodes', { signal, quiet: true });
      const at = Date.now() / 1000;
      for (const { metadata, usage } of list.items || []) {
        const known = loads.get(metadata.name) || [];
        known.push({ at, cpu: amount(usage.cpu), memory: amount(usage.memory) });
        loads.set(metadata.name, known.slice(-KEPT));
      }
      error.value = null;
    } catch (failed) { if (!signal.aborted) error.value = failed; }
    count.value++;
  }, []);
  count.value;
  return html`<${Panel} title="What nodes use" wide><${Trouble} error=${error.value} />${loads.size === 0 && !error.value && html`<${Empty}>No node has said anything yet.</${Empty}>`}<div class="plots">${[...loads].slice(0, 24).map(([name, list]) => html`<${Plot} key=${`${name}/cpu`} title=${`${name}: CPU`} series=${[['cores', 'cpu', '--accent']]} show=${cores} list=${list} height=${100} /><${Plot} key=${`${name}/memory`} title=${`${name}: memory`} series=${[['working set', 'memory', '--amber']]} show=${bytes} list=${list} height=${100} />`)}</div></${Panel}>`;
}
