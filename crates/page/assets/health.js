// Whether an object is well, as far as its row or its status says. Pure. Every level has a glyph and a word, so that nobody needs colours.

export const GLYPHS = { ok: '●', done: '✓', wait: '◌', warn: '▲', bad: '✕' };
export const WORDS = { ok: 'healthy', done: 'done', wait: 'on its way', warn: 'needs a look', bad: 'failing' };

const GOOD = /^(Running|Active|Bound|Ready|True|Available|Healthy|Established|Approved(,Issued)?|Succeeded|Synced)$/;
const DONE = /^(Completed|Complete|Succeeded)$/;
const WAITING = /^(Pending|ContainerCreating|PodInitializing|Init:\d+\/\d+|Terminating|Released|Progressing|Unknown|NotReady|SchedulingGated|Suspended)$/;
const FAILED = /(Error|BackOff|Failed|Evicted|OOMKilled|Invalid|Lost|Unschedulable|CannotRun|DeadlineExceeded|Denied)/;

/** The level of a word in a status column; null for a word that says nothing. */
export function ofWord(word) {
  const text = String(word ?? '');
  if (DONE.test(text)) return 'done';
  if (GOOD.test(text)) return 'ok';
  if (FAILED.test(text)) return 'bad';
  if (WAITING.test(text)) return text === 'NotReady' ? 'bad' : 'wait';
  if (/^NotReady/.test(text)) return 'bad';
  if (/SchedulingDisabled/.test(text)) return 'warn';
  return null;
}

/** The level of `2/3`. */
export function ofShare(text) {
  const [, part, whole] = /^(\d+)\/(\d+)$/.exec(String(text)) || [];
  if (part === undefined) return null;
  return part === whole ? 'ok' : 'warn';
}

const place = (columns, name) => columns.findIndex((column) => column.name === name);

/** The level of a row of a table, with the word that says so; null where a kind has no health. */
export function ofRow(row, columns) {
  const status = ['Status', 'Phase', 'Condition'].map((name) => place(columns, name)).find((at) => at >= 0);
  const ready = place(columns, 'Ready');
  const word = status === undefined ? null : row.cells[status];
  const level = ofWord(word);
  if (row.ending) return { level: 'wait', word: 'Terminating' };
  if (level && level !== 'ok') return { level, word: String(word) };
  const share = ready >= 0 ? ofShare(row.cells[ready]) : null;
  if (share === 'warn') return { level: 'warn', word: `${row.cells[ready]} ready` };
  const [desired, available] = [place(columns, 'Desired'), place(columns, 'Ready')];
  if (desired >= 0 && available >= 0 && Number(row.cells[available]) < Number(row.cells[desired])) {
    return { level: 'warn', word: `${row.cells[available]} of ${row.cells[desired]} ready` };
  }
  return level || share ? { level: level || share, word: String(word ?? row.cells[ready]) } : null;
}

/** Conditions that say of themselves that something is wrong. */
export function troubles(object) {
  const bad = (condition) => (/Pressure$|Unavailable$|^Failed$|ReplicaFailure|Degraded|Stalled/.test(condition.type) ? condition.status === 'True'
    : /^(Ready|Available|Progressing|ContainersReady|PodScheduled|Initialized|Established|NamesAccepted|Complete)$/.test(condition.type)
      && condition.status !== 'True' && condition.reason !== 'PodCompleted');
  return (object.status?.conditions || []).filter(bad);
}

/** Why a pod does not run: the words of its containers, then of its conditions. */
export function whyPod(pod) {
  const all = [...(pod.status?.initContainerStatuses || []), ...(pod.status?.containerStatuses || [])];
  for (const one of all) {
    const state = one.state?.waiting || (one.state?.terminated?.exitCode ? one.state.terminated : null);
    if (state && !['ContainerCreating', 'PodInitializing'].includes(state.reason)) {
      const last = one.lastState?.terminated;
      const before = last ? ` (last exit code ${last.exitCode}${last.reason ? `, ${last.reason}` : ''})` : '';
      return `${one.name}: ${state.message || state.reason || `exit code ${state.exitCode}`}${before}`;
    }
  }
  const condition = troubles(pod)[0];
  return condition?.message || pod.status?.message || '';
}

/** Why anything is not well, in one line. */
export function why(object) {
  if (object.kind === 'Pod') return whyPod(object);
  const condition = troubles(object).find((one) => one.message);
  return condition ? condition.message : '';
}
