// The time slider: drag it and every table shows that moment; play it as a film; let go of the past and all is live again.
import { html, useEffect, useRef, useSignal, classes } from './dom.js';
import { moment } from './moment.js';
import { range, marks, readRange, readMarks } from './history.js';
import { useEvery } from './use.js';
import { useKeys } from './keyboard.js';
import { stamp, age } from './format.js';

const STEPS = 1000;
/** How long a film of the whole history takes, and how often it shows a picture. */
const FILM = 30_000;
const PICTURE = 500;

export function Slider() {
  const open = useSignal(false);
  const playing = useSignal(false);
  const at = useSignal(STEPS);
  const timer = useRef();
  const known = range.value;
  // While it is open, what has just happened comes into reach.
  useEvery(open.value ? 3_000 : 60_000, readRange, [open.value]);
  useEvery(10_000, (signal) => (open.value && !range.peek()?.none ? readMarks(signal) : Promise.resolve()), [open.value]);
  const value = (step) => known.from + ((known.to - known.from) * step) / STEPS;
  const show = (step) => {
    at.value = step;
    clearTimeout(timer.current);
    if (step >= STEPS) { moment.value = null; return; }
    // Dragging asks for many moments; the last one within a tenth of a second counts.
    timer.current = setTimeout(() => {
      const point = value(step);
      moment.value = known.byTime ? { at: new Date(point).toISOString(), time: point } : { at: String(Math.round(point)), time: null };
    }, 100);
  };
  const live = () => { playing.value = false; show(STEPS); moment.value = null; };
  const step = (by) => { if (!known?.none && known) { open.value = true; show(Math.max(0, Math.min(STEPS, at.value + by))); } };
  useKeys('Time', [['[', 'back in time', () => step(-10)], [']', 'forward in time', () => step(10)], ['.', 'back to now', live], [',', 'play', () => { playing.value = !playing.value; open.value = true; }]], [known]);
  useEffect(() => {
    if (!playing.value || !known || known.none) return undefined;
    if (at.value >= STEPS) at.value = 0;
    const film = setInterval(() => {
      const next = at.value + (STEPS * PICTURE) / FILM;
      show(next);
      if (next >= STEPS) playing.value = false;
    }, PICTURE);
    return () => clearInterval(film);
  }, [playing.value]);
  // Somebody else chose a moment: the knob goes there.
  useEffect(() => {
    const chosen = moment.value;
    if (!chosen) { at.value = STEPS; return; }
    open.value = true;
    if (known?.byTime && chosen.time) at.value = Math.max(0, Math.min(STEPS - 1, ((new Date(chosen.time) - known.from) / (known.to - known.from)) * STEPS));
  }, [moment.value]);
  const past = moment.value;
  const words = past ? (past.time ? `${stamp(past.time)} · ${age(new Date(past.time).toISOString())} ago` : `revision ${past.at}`) : 'now';
  if (!open.value) return html`<footer class="time shut"><button id="time" onClick=${() => { open.value = true; }}>◷ Time</button><span>${past ? words : '● live'}</span></footer>`;
  if (known?.none) return html`<footer class="time"><button id="time" onClick=${() => { open.value = false; }}>◷ Time</button><span class="none">${known.none}</span></footer>`;
  return html`<footer class=${classes('time', past && 'past')}><button id="time" onClick=${() => { open.value = false; }}>◷ Time</button>
    <button aria-label=${playing.value ? 'Pause' : 'Play'} onClick=${() => { playing.value = !playing.value; }}>${playing.value ? '❚❚' : '▶'}</button>
    <div class="track"><${Marks} known=${known} /><input id="slider" type="range" min="0" max=${STEPS} step="any" value=${at.value} aria-label="Moment" aria-valuetext=${words} onInput=${(event) => { playing.value = false; show(Number(event.target.value)); }} /></div>
    <output>${words}</output><button class=${classes(past && 'primary')} disabled=${!past} onClick=${live}>Back to now</button></footer>`;
}

/** When much happened: additions above the line, deletions below it, changes around it. */
function Marks({ known }) {
  if (!known || known.to <= known.from) return '';
  const place = (mark) => ((known.byTime ? mark.time : mark.revision) - known.from) / (known.to - known.from);
  const bins = new Map();
  for (const mark of marks.value) {
    const at = Math.floor(place(mark) * 200);
    if (at < 0 || at > 200) continue;
    const bin = bins.get(at) || { Added: 0, Modified: 0, Deleted: 0 };
    bin[mark.type]++;
    bins.set(at, bin);
  }
  const tall = (count) => Math.min(12, 2 + Math.log2(1 + count) * 2.5);
  return html`<svg class="marks" viewBox="0 0 200 26" preserveAspectRatio="none" aria-hidden="true">${[...bins].map(([at, bin]) => html`<g key=${at}>${bin.Added + bin.Modified > 0 && html`<rect class=${bin.Added ? 'added' : 'changed'} x=${at} width="0.8" y=${13 - tall(bin.Added + bin.Modified)} height=${tall(bin.Added + bin.Modified)} />`}${bin.Deleted > 0 && html`<rect class="deleted" x=${at} width="0.8" y="13" height=${tall(bin.Deleted)} />`}</g>`)}</svg>`;
}
