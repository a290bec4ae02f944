// A list that stays true: read in pages, then watched. Views that want the same share one reader.
//
//   loading ─► live ─► (the watch ends) ─► live again from the revision that it had come to
//      ▲                    │ 410: that revision is gone
//      └────────────────────┘
//
// At a past moment it is read at that revision, and stands still.
import { signal } from './dom.js';
import { get, events, Refused } from './api.js';
import { soon } from './frames.js';
import { moment } from './moment.js';
import { pathOf } from './kinds.js';

const TABLE = 'application/json;as=Table;g=meta.k8s.io;v=v1,application/json';
/** The first page is small, so that it is there at once. */
const [FIRST, PAGE] = [200, 2500];
/** How long a feed goes on without a view: going back to it shows it at once. */
const LINGER = 15_000;
const LONGEST_WAIT = 15_000;
/** A feed of many rows tells of changes at most this often, in milliseconds: whoever draws it goes through all of them. */
const [MANY, CALM] = [2000, 150];

const feeds = new Map();

class Feed {
  constructor(id, kind, options) {
    Object.assign(this, { id, kind, options, users: 0, rows: new Map(), columns: [], revision: '' });
    /** Counts up whenever something changed; `shape` only when rows came or went. */
    this.changes = signal(0);
    this.shape = signal(0);
    /** `loading`, `live`, `past` or `broken`. */
    this.state = signal('loading');
    this.error = signal(null);
    this.stopped = new AbortController();
    this.reshaped = false;
    this.told = 0;
    this.timer = 0;
    this.tell = () => {
      this.told = performance.now();
      this.changes.value++;
      if (this.reshaped) { this.shape.value++; this.reshaped = false; }
    };
    this.run();
  }

  changed() {
    if (this.rows.size < MANY) { soon(this.tell); return; }
    this.timer ||= setTimeout(() => { this.timer = 0; soon(this.tell); }, Math.max(0, CALM - (performance.now() - this.told)));
  }

  async run() {
    let wait = 500;
    const { signal } = this.stopped;
    while (!signal.aborted) {
      try {
        if (!this.revision) await this.list();
        this.error.value = null;
        if (this.options.at) { this.state.value = 'past'; return; }
        this.state.value = 'live';
        const begun = Date.now();
        await this.watch();
        if (Date.now() - begun > 5000) wait = 500;
      } catch (error) {
        if (signal.aborted) return;
        this.error.value = error;
        this.state.value = 'broken';
        if (error.code === 410) this.revision = '';
        // What is refused stays refused until somebody changes it; it is asked again, seldom.
        else if (error.code >= 400 && error.code < 500) { this.revision = ''; wait = LONGEST_WAIT; }
        if (this.options.at) return;
      }
      await pause(wait, signal);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  query(more) {
    const { labels, fields } = this.options;
    return { labelSelector: labels, fieldSelector: fields, ...more };
  }

  async list() {
    const { at, whole, namespace } = this.options;
    const { signal } = this.stopped;
    const path = pathOf(this.kind, namespace);
    const rows = new Map();
    // The first reading shows each page as it comes; a later one replaces all at once.
    if (this.rows.size === 0) this.rows = rows;
    let next = '';
    do {
      const exact = at && !next ? { at } : {};
      const page = await get(path, { query: this.query({ limit: next ? PAGE : FIRST, continue: next, ...exact }), accept: whole ? undefined : TABLE, signal });
      this.take(page, rows);
      next = page.metadata?.continue || '';
      this.revision = page.metadata?.resourceVersion || '';
      if (this.rows === rows) { this.reshaped = true; this.changed(); }
    } while (next);
    this.rows = rows;
    this.reshaped = true;
    this.changed();
  }

  take(page, rows) {
    if (page.columnDefinitions?.length) this.columns = page.columnDefinitions;
    for (const one of page.rows || []) { const row = rowOf(one); rows.set(row.uid, row); }
    for (const one of page.items || []) {
      const row = wholeRow(this.kind, one);
      rows.set(row.uid, row);
    }
  }

  async watch() {
    const { whole, namespace } = this.options;
    const query = this.query({ watch: '1', allowWatchBookmarks: 'true', resourceVersion: this.revision });
    for await (const event of events(pathOf(this.kind, namespace), { query, accept: whole ? undefined : TABLE, signal: this.stopped.signal })) {
      if (event.type === 'ERROR') throw new Refused(event.object?.code || 410, event.object);
      if (event.type === 'BOOKMARK') {
        this.revision = (event.object?.metadata || event.object?.rows?.[0]?.object?.metadata)?.resourceVersion || this.revision;
        continue;
      }
      this.apply(event);
    }
  }

  apply({ type, object }) {
    if (object.columnDefinitions?.length) this.columns = object.columnDefinitions;
    const changed = this.options.whole ? [wholeRow(this.kind, object)] : (object.rows || []).map(rowOf);
    for (const row of changed) {
      this.revision = row.version || this.revision;
      if (type === 'DELETED') { this.rows.delete(row.uid); this.reshaped = true; continue; }
      row.changed = performance.now();
      if (!this.rows.has(row.uid)) this.reshaped = true;
      this.rows.set(row.uid, row);
    }
    this.changed();
  }

  stop() {
    this.stopped.abort();
    feeds.delete(this.id);
  }
}

/** A row of a table, as little as is shown: ten thousand of them have to fit. */
function rowOf({ cells, object }) {
  const meta = object?.metadata || {};
  return { uid: meta.uid || `${meta.namespace}/${meta.name || cells[0]}`, name: meta.name || String(cells[0]), namespace: meta.namespace || '', version: meta.resourceVersion,
    created: meta.creationTimestamp, ending: !!meta.deletionTimestamp, labels: meta.labels, owner: meta.ownerReferences?.find((one) => one.controller)?.uid, cells };
}

function wholeRow(kind, object) {
  const meta = object.metadata || {};
  return { uid: meta.uid || `${meta.namespace}/${meta.name}`, name: meta.name, namespace: meta.namespace || '', version: meta.resourceVersion, created: meta.creationTimestamp,
    labels: meta.labels, owner: meta.ownerReferences?.find((one) => one.controller)?.uid,
    // Items of a list do not say what they are.
    object: { apiVersion: kind.apiVersion, kind: kind.kind, ...object } };
}

const pause = (time, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, time);
  signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
});

/** The feed of a kind; `release` it when it is no longer looked at. Options: namespace, whole, labels, fields, live (whatever the moment). */
export function follow(kind, options = {}) {
  const at = options.live ? '' : moment.value?.at || '';
  const id = JSON.stringify([kind.id, kind.version, options.namespace, options.whole, options.labels, options.fields, at]);
  let feed = feeds.get(id);
  if (!feed) feeds.set(id, (feed = new Feed(id, kind, { ...options, at })));
  feed.users++;
  return feed;
}

export function release(feed) {
  feed.users--;
  setTimeout(() => { if (feed.users === 0) feed.stop(); }, feed.options.at ? 0 : LINGER);
}

/** Everybody who signs out takes what was read along. */
export function forgetAll() { [...feeds.values()].forEach((feed) => feed.stop()); }
