// Small parts that views are made of.
import { html, classes } from './dom.js';
import { GLYPHS, WORDS } from './health.js';
import { percent, age } from './format.js';
import { tick } from './use.js';

/** A level as glyph and, if there is one, a word: never colour alone. */
export const Health = ({ level, word }) => html`<span class=${`health ${level}`} title=${WORDS[level]}><i aria-hidden="true">${GLYPHS[level]}</i>${word && html` <span>${word}</span>`}</span>`;

/** How much of something is used. */
export function Meter({ label, used, whole, show }) {
  const part = percent(used, whole);
  const level = part >= 90 ? 'bad' : part >= 75 ? 'warn' : 'ok';
  return html`<div class="meter" role="meter" aria-label=${label} aria-valuenow=${part} aria-valuemin="0" aria-valuemax="100">
    <span class="what">${label}</span><span class="bar"><b class=${level} style=${{ width: `${part}%` }}></b></span>
    <span class="amount">${show ? show(used) : used}<small> / ${show ? show(whole) : whole}</small></span><span class="part">${part}%</span></div>`;
}

export const Age = ({ at }) => html`<time datetime=${at} title=${at}>${age(at, tick.value)}</time>`;

/** The server's own words about what it did not do. */
export const Trouble = ({ error }) => error && html`<div class="trouble" role="alert"><b>${error.reason || (error.code ? `Error ${error.code}` : 'Error')}</b> <span>${error.message}</span></div>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
export const Key = ({ children }) => html`<kbd>${children}</kbd>`;
export const Busy = () => html`<p class="empty busy" aria-busy="true"><span class="oars"><i></i><i></i><i></i></span></p>`;
export const Toggle = ({ on, flip, children, title }) => html`<button class=${classes('toggle', on && 'on')} aria-pressed=${on} onClick=${flip} title=${title}>${children}</button>`;

/** A drawn sign for a command; the word is beside it or in the title. */
export const Panel = ({ title, aside, children, wide, id }) => html`<section class=${classes('panel', wide && 'wide')} id=${id}>
  <header><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>${children}</section>`;
