// Updates wait for the next picture: however many events arrive, a view is told once a frame.
import { batch } from './dom.js';

const waiting = new Set();
let asked = false;

/** Runs `work` before the next frame, once, however often it is asked for. */
export function soon(work) {
  waiting.add(work);
  if (asked) return;
  asked = true;
  // A hidden page has no frames; it still has to hold what is true when it is looked at.
  (document.hidden ? later : requestAnimationFrame)(run);
}

const later = (work) => setTimeout(work, 250);

function run() {
  asked = false;
  const now = [...waiting];
  waiting.clear();
  batch(() => now.forEach((work) => work()));
}
