// Keys: each view says what its keys do while it is shown; what stands later goes first. Help is made from the same list.
import { signal, useEffect } from './dom.js';

/** Lists of `[key, what it does, work]`, innermost last. */
export const layers = signal([]);
let pending = '';

const typing = (target) => target.closest?.('input, textarea, select, [contenteditable], .terminal');

/** Keys that work while the view is shown. A key is `j`, `Escape`, `Ctrl+k`, or two in a row: `g p`. */
export function useKeys(title, keys, on = []) {
  useEffect(() => {
    const layer = { title, keys };
    layers.value = [...layers.value, layer];
    return () => { layers.value = layers.value.filter((one) => one !== layer); };
  }, on);
}

addEventListener('keydown', (event) => {
  if (event.isComposing || ['Shift', 'Control', 'Alt', 'Meta'].includes(event.key)) return;
  const name = `${event.ctrlKey || event.metaKey ? 'Ctrl+' : ''}${event.altKey ? 'Alt+' : ''}${event.key}`;
  const inField = typing(event.target);
  if (inField && !(name === 'Escape' || name.startsWith('Ctrl+'))) return;
  if (event.target.closest?.('.terminal')) return;
  const wanted = pending ? `${pending} ${name}` : name;
  pending = '';
  for (const { keys } of [...layers.value].reverse()) {
    for (const [key, , work] of keys) {
      if (key === wanted && work(event) !== false) { event.preventDefault(); return; }
    }
  }
  if (layers.value.some(({ keys }) => keys.some(([key]) => key.startsWith(`${name} `)))) {
    pending = name;
    setTimeout(() => { pending = ''; }, 1000);
  }
});
