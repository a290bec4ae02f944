// Every key that works here and now, from the same list that makes them work.
import { html, signal } from './dom.js';
import { layers, useKeys } from './keyboard.js';
import { Key } from './widgets.js';

export const help = signal(false);
const close = () => { help.value = false; };

export function Help() {
  useKeys('Help', [['Escape', '', close], ['?', '', close]]);
  const shown = layers.value.filter(({ keys }) => keys.some(([, what]) => what));
  return html`<div class="veil top" onClick=${close}></div><div class="dialog" role="dialog" aria-label="Keys"><header><h2>Keys</h2><button class="icon" aria-label="Close" onClick=${close}>✕</button></header>
    <div class="keys">${shown.map(({ title, keys }) => html`<section key=${title}><h3>${title}</h3><dl>${keys.filter(([, what]) => what).map(([key, what]) => html`<dt>${key.split(' ').map((one) => html`<${Key}>${one}</${Key}> `)}</dt><dd>${what}</dd>`)}</dl></section>`)}</div></div>`;
}
