// Any kind as a live table: columns are the server's, rows follow a watch, and only the rows in sight are in the document.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useSignal, classes } from './dom.js';
import { useFeed, tick } from './use.js';
import { useKeys } from './keyboard.js';
import { route, amend, go, objectOf } from './route.js';
import { ofRow, ofShare, ofWord } from './health.js';
import { Health, Trouble, Busy, Empty, Toggle } from './widgets.js';
import { age } from './format.js';
import { namespace } from './place.js';
import { moment } from './moment.js';

const SPARE = 8;

export function TableView({ kind }) {
  const { query } = route.value;
  const feed = useFeed(kind, { namespace: kind.namespaced ? namespace.value : '', labels: query.get('labels') || undefined });
  const wide = useSignal(false);
  const filter = query.get('q') || '';
  const sort = query.get('sort') || '';
  const columns = (feed?.columns || []).map((column, at) => ({ ...column, at })).filter((column) => wide.value || column.priority === 0);
  const anywhere = kind.namespaced && !namespace.value;
  // Where there is little room, the namespace stands below the name.
  const narrow = matchMedia('(max-width: 760px)').matches;
  const all = anywhere && !narrow;
  const rows = useOrdered(feed, filter, sort);
  if (!feed) return html`<${Busy} />`;
  const state = feed.state.value;
  return html`<div class="tableview">
    <div class="toolbar">
      <input id="filter" type="search" placeholder="Filter: words, -word, label=value" aria-label="Filter" value=${filter} onInput=${(event) => amend({ q: event.target.value })}
        onKeyDown=${(event) => { if (event.key === 'Enter' || event.key === 'ArrowDown') { event.preventDefault(); document.getElementById('rows')?.focus(); } }} />
      <span class="count" aria-live="polite"><b>${rows.length}</b>${rows.length !== feed.rows.size ? ` of ${feed.rows.size}` : ''}</span>
      <span class=${`state ${state}`}>${{ live: '● live', loading: '◌ reading', past: '◷ past', broken: '▲ trying again' }[state]}</span>
      <${Toggle} on=${wide.value} flip=${() => { wide.value = !wide.value; }} title="More columns (w)">wide</${Toggle}>
    </div>
    <${Trouble} error=${feed.error.value} />
    ${rows.length || state === 'loading' ? html`<${Rows} ...${{ kind, feed, rows, columns, all, sort, wide, below: anywhere && narrow }} />`
    : state !== 'broken' && html`<${Empty}>${feed.rows.size ? 'Nothing fits the filter.' : `No ${kind.resource} ${namespace.value && kind.namespaced ? `in ${namespace.value}` : ''}.`}</${Empty}>`}
  </div>`;
}

function Rows({ kind, feed, rows, columns, all, sort, wide, below }) {
  const box = useRef();
  const seen = useSignal({ top: 0, height: 800 });
  const at = useSignal(0);
  const height = below || matchMedia('(pointer: coarse)').matches ? 46 : 32;
  useLayoutEffect(() => {
    const own = box.current;
    const measure = () => { seen.value = { top: own.scrollTop, height: own.clientHeight }; };
    const watcher = new ResizeObserver(measure);
    watcher.observe(own);
    measure();
    return () => watcher.disconnect();
  }, []);
  useEffect(() => { at.value = Math.min(at.value, Math.max(0, rows.length - 1)); }, [rows.length]);
  const move = (to) => {
    at.value = Math.max(0, Math.min(rows.length - 1, to));
    const place = at.value * height;
    const { scrollTop, clientHeight } = box.current;
    if (place < scrollTop) box.current.scrollTop = place;
    else if (place > scrollTop + clientHeight - 3 * height) box.current.scrollTop = place - clientHeight + 3 * height;
  };
  const page = () => Math.floor(box.current.clientHeight / height) - 2;
  const open = (tab) => { const row = rows[at.value]; if (row) go(objectOf(kind, row.namespace, row.name, tab)); };
  useKeys('Table', [
    ['j', 'next row', () => move(at.value + 1)], ['ArrowDown', '', () => move(at.value + 1)],
    ['k', 'row before', () => move(at.value - 1)], ['ArrowUp', '', () => move(at.value - 1)],
    ['PageDown', '', () => move(at.value + page())], ['PageUp', '', () => move(at.value - page())],
    ['g g', 'first row', () => move(0)], ['Home', '', () => move(0)], ['G', 'last row', () => move(rows.length - 1)], ['End', '', () => move(rows.length - 1)],
    ['Enter', 'open', () => open()], ['y', 'YAML', () => open('yaml')], ['v', 'events', () => open('events')], ['h', 'hops', () => open('hops')],
    ['l', 'logs', () => (kind.resource === 'pods' ? open('logs') : false)], ['s', 'shell', () => (kind.resource === 'pods' ? open('shell') : false)],
    ['e', 'edit', () => open('edit')], ['w', 'more columns', () => { wide.value = !wide.value; }],
  ], [rows, kind.id]);
  const first = Math.max(0, Math.floor(seen.value.top / height) - SPARE);
  const count = Math.ceil(seen.value.height / height) + 2 * SPARE + 1;
  const widths = useWidths(columns, rows, all);
  const head = [...(all ? [{ name: 'Namespace', at: -1 }] : []), ...columns];
  const now = performance.now();
  return html`<div class="rows" id="rows" role="grid" aria-rowcount=${rows.length} tabindex="0" ref=${box} style=${{ '--columns': widths, '--row': `${height}px` }}
      onScroll=${(event) => { const { scrollTop, clientHeight } = event.currentTarget; seen.value = { top: scrollTop, height: clientHeight }; }}>
    <div class="head" role="row">${head.map((column) => html`<button role="columnheader" key=${column.name} title=${column.description}
        aria-sort=${sort === column.name ? 'ascending' : sort === `-${column.name}` ? 'descending' : 'none'}
        onClick=${() => amend({ sort: sort === column.name ? `-${column.name}` : sort === `-${column.name}` ? '' : column.name })}>${column.name}<i>${sort === column.name ? '↑' : sort === `-${column.name}` ? '↓' : ''}</i></button>`)}</div>
    <div class="space" style=${{ height: `${rows.length * height}px` }}>
      ${slots(first, count, rows.length).map((index) => html`<${Row} key=${index % count} ...${{ kind, row: rows[index], columns, feed, all, below, height, fresh: now - (rows[index].changed || -1e9) < 1500, on: at.value === index, index }} />`)}
    </div></div>`;
}

/** The rows in sight, in the order of their places in the document: one that scrolls out of sight leaves its place to one that comes in. */
function slots(first, count, all) {
  const shown = [];
  for (let index = first; index < Math.min(first + count, all); index++) shown[index % count] = index;
  return shown.filter((index) => index !== undefined);
}

function Row({ kind, row, columns, feed, all, below, height, fresh, on, index }) {
  const health = ofRow(row, feed.columns);
  return html`<a class=${classes('row', on && 'on', fresh && 'fresh', row.ending && 'ending')} role="row" aria-rowindex=${index + 1} href=${objectOf(kind, row.namespace, row.name)} tabindex="-1" style=${{ transform: `translateY(${index * height}px)` }}>
    ${all && html`<span role="gridcell" class="ns">${row.namespace}</span>`}
    ${columns.map((column) => html`<span role="gridcell" key=${column.at} class=${column.type === 'integer' || column.name === 'Age' ? 'number' : ''}>${cell(column, row, health)}${below && column.at === 0 && html`<small class="below">${row.namespace}</small>`}</span>`)}</a>`;
}

function cell(column, row, health) {
  const value = row.cells[column.at];
  // The server said how old it was when it wrote the row; it has grown older since.
  if (column.name === 'Age' && row.created) return age(row.created, moment.value?.time ? Number(new Date(moment.value.time)) : tick.value);
  if (column.at === 0) return html`${health && health.level !== 'ok' ? html`<${Health} level=${health.level} /> ` : ''}<b>${String(value ?? row.name)}</b>`;
  if (value === null || value === undefined || value === '') return '';
  const level = ['Status', 'Phase', 'Condition'].includes(column.name) ? (row.ending ? 'wait' : ofWord(value)) : column.name === 'Ready' ? ofShare(value) : null;
  if (level) return html`<span class=${`word ${level}`}>${String(value)}</span>`;
  return Array.isArray(value) ? value.join(',') : String(value);
}

/** Rows that fit the filter, in order; put in order anew only when that can have changed, not when somebody scrolls. */
function useOrdered(feed, filter, sort) {
  const changes = feed?.changes.value;
  return useMemo(() => (feed ? ordered([...feed.rows.values()].filter(fits(filter)), sort, feed.columns) : []), [feed, changes, filter, sort]);
}

export function fits(filter) {
  const terms = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) return () => true;
  return (row) => {
    row.text ??= `${row.namespace} ${row.name} ${(row.cells || []).join(' ')}`.toLowerCase();
    return terms.every((term) => {
      const not = term.startsWith('-') && term.length > 1;
      const word = not ? term.slice(1) : term;
      const [label, value] = word.split('=');
      const found = value === undefined ? row.text.includes(word) : Object.entries(row.labels || {}).some(([name, text]) => name.toLowerCase() === label && text.toLowerCase().startsWith(value));
      return found !== not;
    });
  };
}

export function ordered(rows, sort, columns) {
  const down = sort.startsWith('-');
  const name = down ? sort.slice(1) : sort;
  const at = columns.findIndex((column) => column.name === name);
  const by = name === 'Age' ? (row) => -Date.parse(row.created)
    : name === 'Namespace' ? (row) => row.namespace
      : at >= 0 ? (row) => row.cells[at] : null;
  for (const row of rows) row.order ??= `${row.namespace}\0${row.name}`;
  const plain = (a, b) => (a.order < b.order ? -1 : a.order > b.order ? 1 : 0);
  if (!by) return rows.sort(plain);
  const number = (value) => (typeof value === 'number' ? value : /^\d/.test(value) ? parseFloat(value) : NaN);
  return rows.sort((a, b) => {
    const [x, y] = [by(a), by(b)];
    const [n, m] = [number(x), number(y)];
    const difference = !Number.isNaN(n) && !Number.isNaN(m) && n !== m ? n - m : String(x) < String(y) ? -1 : String(x) > String(y) ? 1 : 0;
    return (down ? -difference : difference) || plain(a, b);
  });
}

/** Widths of columns by what is in them: looked at once for the first rows, so that nothing moves while rows change. */
function useWidths(columns, rows, all) {
  const some = rows.length > 0;
  return useMemo(() => {
    const sample = rows.slice(0, 200);
    const longest = (of, title) => Math.min(48, Math.max(title.length + 2, ...sample.map((row) => String(of(row) ?? '').length)));
    const widths = columns.map((column) => {
      const letters = column.name === 'Age' ? 7 : longest((row) => row.cells[column.at], column.name);
      return column.at === 0 ? `minmax(${Math.min(letters + 3, 26)}ch, ${letters + 4}fr)` : `minmax(${Math.min(letters + 1, 22)}ch, ${letters + 1}fr)`;
    });
    return [...(all ? [`minmax(12ch, ${longest((row) => row.namespace, 'Namespace') + 1}fr)`] : []), ...widths].join(' ');
  }, [columns.map((column) => column.name).join(), some, rows.length > 100, all]);
}
