// Who reaches whom: Services, their slices, the pods behind them, the nodes below; and which policies stand in between, with what they allow.
import { html, useEffect, useRef, useSignal, classes } from './dom.js';
import { find } from './kinds.js';
import { useFeed } from './use.js';
import { namespace } from './place.js';
import { objectOf } from './route.js';
import { ofRow } from './health.js';
import { Empty, Busy, Panel, Health } from './widgets.js';
import { allows, selects } from './policy.js';

/** More pods than these are too many for one picture: the rest is named. */
const MOST = 120;
const [ROW, WIDTH] = [34, 190];

export function GraphView() {
  const ns = namespace.value;
  const [services, slices, pods, policies] = [find('services'), find('endpointslices', 'discovery.k8s.io'), find('pods'), find('networkpolicies', 'networking.k8s.io')];
  const feeds = [useFeed(services, { namespace: ns, whole: true }), useFeed(slices, { namespace: ns, whole: true }), useFeed(pods, { namespace: ns }), useFeed(policies, { namespace: ns, whole: true })];
  const over = useSignal(null);
  const wide = useSignal(0);
  const box = useRef();
  useEffect(() => {
    if (!box.current) return undefined;
    const watcher = new ResizeObserver(() => { wide.value = box.current?.clientWidth || 0; });
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, [!!box.current]);
  if (feeds.some((feed) => !feed)) return html`<${Busy} />`;
  const [serviceFeed, sliceFeed, podFeed, policyFeed] = feeds;
  const list = (feed) => [...feed.rows.values()].sort((a, b) => (`${a.namespace}/${a.name}` < `${b.namespace}/${b.name}` ? -1 : 1));
  const picture = layout({ services: list(serviceFeed), slices: list(sliceFeed), pods: list(podFeed), policies: list(policyFeed), columns: podFeed.columns, width: wide.value, kinds: { services, slices, pods, nodes: find('nodes') } });
  if (!picture.nodes.length) return html`<${Empty}>No Services and no pods ${ns ? `in ${ns}` : 'here'}.</${Empty}>`;
  const near = over.value ? reach(picture, over.value) : null;
  return html`<div class="graphview"><div class="picture" ref=${box}><svg width=${picture.width} height=${picture.height} role="img" aria-label="Services, slices, pods and nodes">
      ${picture.titles.map(([title, x]) => html`<text key=${title} class="title" x=${x} y="18">${title}</text>`)}
      ${picture.edges.map((edge) => html`<path key=${`${edge.from.id}>${edge.to.id}`} class=${classes('edge', edge.bad && 'bad', near && (near.has(edge.from.id) && near.has(edge.to.id) ? 'on' : 'off'))} d=${curve(edge)} />`)}
      ${picture.nodes.map((node) => html`<a key=${node.id} href=${node.link} onMouseEnter=${() => { over.value = node.id; }} onMouseLeave=${() => { over.value = null; }} onFocus=${() => { over.value = node.id; }} class=${classes('box', node.level, near && (near.has(node.id) ? 'on' : 'off'))}>
        <rect x=${node.x} y=${node.y} width=${WIDTH} height=${ROW - 8} rx="6" /><text x=${node.x + 9} y=${node.y + 17}>${node.sign ? `${node.sign} ` : ''}${cut(node.name, node.guarded ? 21 : 24)}</text>${node.guarded && html`<text class="guard" x=${node.x + WIDTH - 20} y=${node.y + 17}>◈</text>`}<title>${node.title}</title></a>`)}
    </svg></div>${picture.left > 0 && html`<${Empty}>and ${picture.left} more pods: choose a namespace to see them.</${Empty}>`}<${Policies} list=${list(policyFeed)} pods=${list(podFeed)} kind=${policies} /></div>`;
}

const cut = (text, letters) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
const curve = ({ from, to }) => { const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + 13, to.x, to.y + 13]; const half = (x2 - x1) / 2; return `M${x1} ${y1}C${x1 + half} ${y1} ${x2 - half} ${y2} ${x2} ${y2}`; };

/** Everything that is connected with a node, to the left and to the right. */
function reach({ edges }, id) {
  const found = new Set([id]);
  const follow = (from, to) => { for (let grew = true; grew;) { grew = false; for (const edge of edges) if (found.has(edge[from].id) && !found.has(edge[to].id) && wanted.has(edge[from].id)) { found.add(edge[to].id); wanted.add(edge[to].id); grew = true; } } };
  let wanted = new Set([id]);
  follow('from', 'to');
  wanted = new Set([id]);
  follow('to', 'from');
  return found;
}

/** Boxes in four columns, each as near as it can be to what it is connected with. Pure. */
export function layout({ services, slices, pods, policies, columns, kinds, width }) {
  const place = (name) => columns.findIndex((column) => column.name === name);
  const nodeAt = place('Node');
  const boxes = [[], [], [], []];
  const edges = [];
  const byId = new Map();
  const add = (column, id, name, link, more = {}) => {
    if (!byId.has(id)) { const box = { id, name, link, column, title: name, ...more }; byId.set(id, box); boxes[column].push(box); }
    return byId.get(id);
  };
  const join = (from, to, bad) => { if (from && to) edges.push({ from, to, bad }); };
  for (const row of services) add(0, row.uid, row.name, objectOf(kinds.services, row.namespace, row.name), { title: `Service ${row.namespace}/${row.name}` });
  const byPod = new Map(pods.map((row) => [row.uid, row]));
  const used = new Set();
  for (const row of slices) {
    const owner = services.find((one) => one.namespace === row.namespace && one.name === row.labels?.['kubernetes.io/service-name']);
    const slice = add(1, row.uid, row.name, objectOf(kinds.slices, row.namespace, row.name), { title: `EndpointSlice ${row.namespace}/${row.name}: ${(row.object.endpoints || []).length} endpoints` });
    join(owner && byId.get(owner.uid), slice);
    for (const endpoint of (row.object.endpoints || []).slice(0, MOST)) {
      const pod = byPod.get(endpoint.targetRef?.uid);
      if (pod) { used.add(pod.uid); (slice.to ||= []).push([pod.uid, endpoint.conditions?.ready === false]); }
    }
  }
  const order = [...pods].sort((a, b) => used.has(b.uid) - used.has(a.uid));
  for (const row of order.slice(0, MOST)) {
    const health = ofRow(row, columns);
    const guards = policies.filter((policy) => selects(policy.object, row));
    const pod = add(2, row.uid, row.name, objectOf(kinds.pods, row.namespace, row.name), { level: health?.level, sign: { bad: '✕', warn: '▲', wait: '◌', done: '✓' }[health?.level], guarded: guards.length > 0, title: `Pod ${row.namespace}/${row.name}${health ? `: ${health.word}` : ''}${guards.length ? `\nguarded by ${guards.map((policy) => policy.name).join(', ')}` : ''}` });
    const node = String(row.cells[nodeAt] ?? '');
    if (node && node !== '<none>') join(pod, add(3, `node/${node}`, node, objectOf(kinds.nodes, '', node), { title: `Node ${node}` }));
  }
  for (const slice of boxes[1]) for (const [pod, bad] of slice.to || []) join(slice, byId.get(pod), bad);
  arrange(boxes, edges);
  const gap = Math.max(56, Math.floor((width - 20 - 4 * WIDTH) / 3));
  const height = Math.max(...boxes.map((column) => column.length)) * ROW + 50;
  boxes.forEach((column, at) => { const spare = (height - 50 - column.length * ROW) / 2; column.forEach((box, row) => { box.x = 10 + at * (WIDTH + gap); box.y = 34 + spare + row * ROW; }); });
  const titles = ['Services', 'Slices', 'Pods', 'Nodes'].map((title, at) => [title, 10 + at * (WIDTH + gap)]);
  return { nodes: boxes.flat(), edges, titles, width: 4 * WIDTH + 3 * gap + 20, height, left: Math.max(0, pods.length - MOST) };
}

/** Each column in the order of the middles of what its boxes are connected with, twice there and back. */
function arrange(boxes, edges) {
  const middle = (box, rank) => {
    const near = edges.filter((edge) => edge.from === box || edge.to === box).map((edge) => rank.get(edge.from === box ? edge.to.id : edge.from.id)).filter((at) => at !== undefined);
    return near.length ? near.reduce((sum, at) => sum + at, 0) / near.length : Infinity;
  };
  for (const column of [1, 2, 3, 2, 1, 0]) {
    const beside = [boxes[column - 1], boxes[column + 1]].filter(Boolean).flat();
    const rank = new Map(beside.map((box) => [box.id, boxes[box.column].indexOf(box) / Math.max(1, boxes[box.column].length)]));
    const wanted = new Map(boxes[column].map((box, at) => [box, [middle(box, rank), at]]));
    boxes[column].sort((a, b) => wanted.get(a)[0] - wanted.get(b)[0] || wanted.get(a)[1] - wanted.get(b)[1]);
  }
}

function Policies({ list, pods, kind }) {
  if (!list.length) return html`<p class="empty">No network policies here: every pod may talk to every other.</p>`;
  return html`<${Panel} title="Network policies, and what they allow" wide><ul class="policies">${list.map((row) => html`<li key=${row.uid}><a href=${objectOf(kind, row.namespace, row.name)}>◈ <b>${row.name}</b> <small>in ${row.namespace}, ${pods.filter((pod) => selects(row.object, pod)).length} pods</small></a>${allows(row.object).map((line) => html`<p key=${line}>${line}</p>`)}</li>`)}</ul></${Panel}>`;
}
