// What happened to an object and to what it owns, hop by hop, told by one clock: the same story that `trireme trace` tells.
//
// Every process has a clock of its own; each answer says what it shows, so the difference to the clock here is known to within the time
// that the question took. Gates work before an object has a uid: their spans belong to whatever their request wrote.
import { get } from './api.js';

export const HOPS = ['Client', 'Authentication', 'Authorisation', 'Mutating', 'Schema', 'Validating', 'Commit', 'Fan-out', 'Controllers', 'Scheduler', 'Kubelet', 'Ready'];
/** A silence, in milliseconds, that ends a stretch. */
const SILENCE = 30_000;
const COMMIT = 7;
const isGate = (span) => span.hop >= 2 && span.hop <= 8 && span.request !== 0;

/** What the page itself did: the client's hop, by the uid of what it wrote. */
export const own = new Map();
const OWN = 200;

/** Remembers how long this page took to make a request, in milliseconds. */
export function remember(uid, start, took) {
  own.set(uid, { hop: 1, name: 'this page builds the request and sends it', stage: '', verb: 'apply', by: 'trireme-ui', uid, request: 0, process: 'page', revision: 0, start, took });
  if (own.size > OWN) own.delete(own.keys().next().value);
}

/** The spans of one process. */
async function spansOf(path, uid, signal) {
  const asked = Date.now();
  const answer = await get(path, { query: { uid }, signal, quiet: true });
  const ahead = Date.parse(answer.now) - (asked + Date.now()) / 2;
  return { process: answer.process, spans: answer.hops.map((hop) => ({ ...hop, stage: hop.stage || '', process: answer.process, start: milliseconds(hop.start) - ahead, took: hop.seconds * 1000 })) };
}

/** Milliseconds of a time, with the fractions that `Date` leaves out. */
function milliseconds(time) {
  const [, fraction = ''] = /\.(\d+)/.exec(time) || [];
  return Date.parse(time.replace(/\.\d+/, '')) + (fraction ? Number(`0.${fraction}`) * 1000 : 0);
}

/** Nodes that said nothing, and until when they are not asked again. */
const resting = new Map();
const REST = 15_000;

/** Asks the server, and every node that has one of the pods. Members: `[{ uid, name, owner, node }]`, the object first. */
export async function gather(members, signal) {
  const server = await spansOf('/debug/hops', members[0].uid, signal);
  const spans = [...server.spans];
  const silent = new Map();
  await Promise.all(members.filter((member) => member.node).slice(0, 50).map(async (member) => {
    if (resting.get(member.node)?.until > Date.now()) { silent.set(member.node, resting.get(member.node).why); return; }
    try {
      const answer = await spansOf(`/api/v1/nodes/${encodeURIComponent(member.node)}/proxy/debug/hops`, member.uid, signal);
      // A node in the server's own process has answered already.
      if (answer.process !== server.process) spans.push(...answer.spans);
    } catch (error) {
      if (signal?.aborted) return;
      silent.set(member.node, error.message);
      resting.set(member.node, { until: Date.now() + REST, why: error.message });
    }
  }));
  for (const member of members) if (own.has(member.uid)) spans.push(own.get(member.uid));
  return { spans, silent };
}

/** The last stretch without a long silence, as chapters: an object each, with rows of bars. */
export function tell(members, { spans, silent }) {
  const placed = assigned(members, spans);
  boundBeforeRun(placed);
  placed.sort((a, b) => a.start - b.start || a.hop - b.hop);
  const told = placed.slice(lastStretch(placed));
  if (!told.length) return { chapters: [], length: 0, silent, reached: new Set() };
  const begun = told[0].start;
  const length = Math.max(...told.map((span) => span.start + span.took)) - begun;
  const chapters = inOrder(members).map(([member, depth]) => ({ member, depth, rows: rowsOf(told.filter((span) => span.member === member), begun) })).filter((chapter) => chapter.rows.length);
  return { begun, length, chapters, silent, reached: new Set(told.map((span) => span.hop)), accounted: covered(told.map((span) => [span.start - begun, span.start - begun + span.took])) };
}

function assigned(members, spans) {
  const places = new Map(members.map((member) => [member.uid, member]));
  const requests = new Map();
  for (const span of spans) if (span.request && places.has(span.uid)) requests.set(`${span.process}/${span.request}`, places.get(span.uid));
  return spans.map((span) => ({ ...span, member: places.get(span.uid) || requests.get(`${span.process}/${span.request}`) })).filter((span) => span.member);
}

/** Clocks are known to within the time of a question only: a node does nothing for a pod before the scheduler binds it there. */
function boundBeforeRun(spans) {
  for (const bind of spans.filter((span) => span.stage === 'bind')) {
    const ofNode = spans.filter((span) => span.member === bind.member && span.process !== bind.process && span.process !== 'page');
    const early = bind.start - Math.min(...ofNode.map((span) => span.start));
    if (early > 0) ofNode.forEach((span) => { span.start += early; });
  }
}

function lastStretch(spans) {
  let [begins, until] = [0, -Infinity];
  spans.forEach((span, at) => {
    if (until !== -Infinity && span.start - until > SILENCE) begins = at;
    until = Math.max(until, span.start + span.took);
  });
  return begins;
}

function inOrder(members) {
  const found = [];
  const below = (member, depth) => {
    if (found.some(([known]) => known === member)) return;
    found.push([member, depth]);
    members.filter((one) => one.owner === member.uid).forEach((one) => below(one, depth + 1));
  };
  members.forEach((member, at) => { if (at === 0 || !members.some((one) => one.uid === member.owner)) below(member, 0); });
  return found;
}

/** Of an object's writes the first is told hop by hop; of the others, which are mostly statuses, the commits. */
function rowsOf(spans, begun) {
  const gate = spans.find(isGate);
  const commit = spans.findIndex((span) => span.hop === COMMIT);
  const rows = new Map();
  spans.forEach((span, at) => {
    const later = span.hop === COMMIT && at !== commit;
    if (!later && isGate(span) && !(span.process === gate.process && span.request === gate.request)) return;
    const stage = later ? 'later writes' : span.stage;
    const verb = later ? '' : span.verb;
    const key = [span.hop, stage, span.by, verb].join('\0');
    if (!rows.has(key)) rows.set(key, { key, hop: span.hop, name: span.name, stage, by: span.by, verb, times: [], said: new Set() });
    if (said(span)) rows.get(key).said.add(said(span));
    rows.get(key).times.push([span.start - begun, span.start - begun + span.took]);
  });
  const list = [...rows.values()];
  list.forEach((row) => { row.times.sort((a, b) => a[0] - b[0]); row.total = covered(row.times); });
  return list.sort((a, b) => a.times[0][0] - b.times[0][0] || a.hop - b.hop || (a.stage !== '') - (b.stage !== ''));
}

/** What a span decided, with what was counted; that there was nothing to do goes without saying. */
export function said({ decided, bytes, writes, nodes }) {
  const amount = bytes ? `${bytes} bytes` : writes > 1 ? `in a group of ${writes} writes` : nodes ? `looked at ${nodes} node${nodes > 1 ? 's' : ''}` : '';
  return [decided === 'nothing to do' ? '' : decided, amount].filter(Boolean).join(', ');
}

export function covered(times) {
  let [sum, until] = [0, 0];
  for (const [from, to] of [...times].sort((a, b) => a[0] - b[0])) {
    sum += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return sum;
}

/** The row that took longest; what holds others is not asked, because they say more. */
export function longest({ chapters }) {
  const rows = chapters.flatMap((chapter) => chapter.rows.filter((row) => row.stage !== 'pod' && !(row.stage === '' && chapter.rows.some((part) => part.hop === row.hop && part.stage !== ''))).map((row) => ({ chapter, row })));
  return rows.sort((a, b) => b.row.total - a.row.total)[0];
}

const ADVICE = { pull: 'put the image on the node beforehand, or make it smaller', sandbox: "that is the runtime's and the network plug-in's time", volumes: 'its events say what they waited for', 'create-container': "that is the runtime's time", 'start-container': "that is the runtime's time",
  probe: 'it starts slowly, or initialDelaySeconds and periodSeconds are long', queue: 'its events say what it waited for', webhook: 'every request that it matches waits for it' };

export function explained(story, show) {
  const found = longest(story);
  if (!found || !story.length) return '';
  const { chapter, row } = found;
  const share = Math.round((row.total / story.length) * 100);
  const advice = ADVICE[row.stage] ? `; ${ADVICE[row.stage]}` : '';
  return `The longest part was ${row.stage || row.name}${row.by ? ` (${row.by})` : ''} of ${chapter.member.name}: ${show(row.total / 1000)}, ${share} % of all${advice}.`;
}
