// The one door to the server. Every datum on the page came through here, with the user's own credentials, as kubectl would ask for it.
import { token, signOut } from './session.js';

/** Where the API begins: the page is at `ui/` below it, also behind the proxy of `trireme ui`. */
export const root = new URL('../', document.baseURI);
// Browsers keep six connections to a server that speaks HTTP/1.1, and streams would take them all: there they are WebSockets.
const socketsOnly = location.protocol === 'http:';

/** What the server said when it did not do it: its own words. */
export class Refused extends Error {
  constructor(code, status) {
    super(status?.message || `the server answered ${code}`);
    this.code = code;
    this.reason = status?.reason || '';
    this.status = status;
  }
}

export function address(path, query = {}) {
  const url = new URL(root.pathname.replace(/\/$/, '') + path, root);
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== '') url.searchParams.append(name, one);
  }
  return url;
}

/** Asks; an answer that is an error is thrown as `Refused`. */
export async function ask(path, { method = 'GET', query, accept = 'application/json', type, body, signal, quiet } = {}) {
  const headers = { Accept: accept };
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  if (type) headers['Content-Type'] = type;
  let answer;
  try {
    answer = await fetch(address(path, query), { method, headers, body, signal, cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Refused(0, { message: `the server cannot be reached (${error.message})` });
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let status;
  try { status = JSON.parse(text); } catch { status = { message: text.trim() }; }
  if (answer.status === 401 && !quiet) signOut(status.message || 'Unauthorized');
  throw new Refused(answer.status, status);
}

export const get = async (path, options) => (await ask(path, options)).json();
export const text = async (path, options) => (await ask(path, { accept: 'text/plain, */*', ...options })).text();

/** The lines of an answer that goes on: each as text, as it arrives. */
export async function* lines(path, options) {
  const answer = await ask(path, options);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + value).split('\n');
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The events of a watch, until it ends. */
export async function* events(path, { query, accept, signal }) {
  if (!socketsOnly) {
    for await (const line of lines(path, { query, accept, signal })) if (line) yield JSON.parse(line);
    return;
  }
  // The proxy makes a header of the last word: nobody else can set one here.
  const form = accept?.includes('as=Table') ? { as: 'Table' } : {};
  for await (const message of messages(socket(path, { ...query, ...form }, []), signal)) yield JSON.parse(message);
}

/** A WebSocket; the token travels as a subprotocol, because browsers let no header be set. */
export function socket(path, query, protocols) {
  const url = address(path, query);
  url.protocol = url.protocol.replace('http', 'ws');
  const given = token.value ? [`base64url.bearer.authorization.k8s.io.${unpadded(token.value)}`] : [];
  // The server answers with one of those that are no token: there has to be one.
  const offered = [...protocols, ...given];
  return offered.length ? new WebSocket(url, offered) : new WebSocket(url);
}

const unpadded = (text) => btoa(text).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

async function* messages(ws, signal) {
  const queue = [];
  let wake = () => {};
  let over = false;
  const end = () => { over = true; wake(); };
  ws.onmessage = ({ data }) => { queue.push(data); wake(); };
  ws.onclose = ws.onerror = end;
  const stop = () => ws.close();
  signal?.addEventListener('abort', stop);
  try {
    for (;;) {
      while (queue.length) yield queue.shift();
      if (over) return;
      await new Promise((resolve) => { wake = resolve; });
    }
  } finally {
    signal?.removeEventListener('abort', stop);
    ws.close();
  }
}
