// A shell in a container: exec over a WebSocket, as kubectl does it, and a screen of our own.
import { html, useEffect, useRef, useSignal } from './dom.js';
import { socket } from './api.js';
import { soon } from './frames.js';
import { Screen } from './screen.js';
import { Trouble } from './widgets.js';

const [IN, OUT, ERR, STATUS, SIZE] = [0, 1, 2, 3, 4];
const COMMAND = 'TERM=xterm-256color; export TERM; if command -v bash >/dev/null; then exec bash; else exec sh; fi';
const KEYS = { Enter: '\r', Backspace: '\u007f', Tab: '\t', Escape: '\u001b', Delete: '\u001b[3~', Insert: '\u001b[2~', PageUp: '\u001b[5~', PageDown: '\u001b[6~', F1: '\u001bOP', F2: '\u001bOQ', F3: '\u001bOR', F4: '\u001bOS', F5: '\u001b[15~', F6: '\u001b[17~', F7: '\u001b[18~', F8: '\u001b[19~', F9: '\u001b[20~', F10: '\u001b[21~' };
const ARROWS = { ArrowUp: 'A', ArrowDown: 'B', ArrowRight: 'C', ArrowLeft: 'D', Home: 'H', End: 'F' };

/** What a key sends. */
export function sent(event, application) {
  const { key, ctrlKey, altKey, metaKey } = event;
  if (metaKey) return '';
  if (ARROWS[key]) return `\u001b${application ? 'O' : '['}${ARROWS[key]}`;
  const plain = KEYS[key] ?? ([...key].length === 1 ? key : '');
  if (ctrlKey && plain.length === 1) {
    const code = plain.toUpperCase().charCodeAt(0);
    if (code >= 64 && code < 96) return String.fromCharCode(code - 64);
    if (plain === ' ') return '\0';
  }
  return altKey && plain ? `\u001b${plain}` : plain;
}

export function Terminal({ pod }) {
  const names = [...(pod.spec.containers || []), ...(pod.spec.ephemeralContainers || [])].map((one) => one.name);
  const container = useSignal(names[0]);
  const again = useSignal(0);
  return html`<div class="shell"><div class="toolbar"><select aria-label="Container" value=${container.value} onChange=${(event) => { container.value = event.target.value; }}>${names.map((name) => html`<option key=${name}>${name}</option>`)}</select><button onClick=${() => { again.value++; }}>connect again</button></div>
    <${Session} key=${`${container.value}/${again.value}`} pod=${pod} container=${container.value} /></div>`;
}

function Session({ pod, container }) {
  const box = useRef();
  const probe = useRef();
  const soft = useRef();
  const held = useRef(null);
  const drawn = useSignal(0);
  const error = useSignal(null);
  const state = useSignal('connecting');
  useEffect(() => {
    // Held here: the observer may speak once more when the view is gone.
    const [own, ten] = [box.current, probe.current];
    const size = () => {
      const letter = ten.getBoundingClientRect();
      return [Math.max(20, Math.floor((own.clientWidth - 24) / (letter.width / 10 || 8))), Math.max(5, Math.floor((own.clientHeight - 20) / (letter.height || 17)))];
    };
    const screen = new Screen(...size());
    const { namespace, name } = pod.metadata;
    const query = { container, command: ['sh', '-c', COMMAND], stdin: 'true', stdout: 'true', tty: 'true' };
    const ws = socket(`/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/exec`, query, ['v5.channel.k8s.io', 'v4.channel.k8s.io']);
    ws.binaryType = 'arraybuffer';
    const decoder = new TextDecoder();
    const send = (channel, bytes) => { if (ws.readyState === 1) ws.send(new Uint8Array([channel, ...bytes])); };
    const encode = (text) => new TextEncoder().encode(text);
    const draw = () => { drawn.value++; };
    held.current = { screen, type: (text) => send(IN, encode(text)) };
    const tellSize = () => send(SIZE, encode(JSON.stringify({ Width: screen.columns, Height: screen.rows })));
    ws.onopen = () => { state.value = 'connected'; tellSize(); box.current?.focus(); };
    ws.onmessage = ({ data }) => {
      const bytes = new Uint8Array(data);
      const rest = bytes.subarray(1);
      if (bytes[0] === OUT || bytes[0] === ERR) {
        screen.write(decoder.decode(rest, { stream: true }));
        if (screen.replies) { send(IN, encode(screen.replies)); screen.replies = ''; }
      } else if (bytes[0] === STATUS) {
        const status = JSON.parse(decoder.decode(rest) || '{}');
        if (status.status === 'Failure') error.value = status;
      }
      soon(draw);
    };
    ws.onclose = () => { state.value = 'ended'; };
    ws.onerror = () => { if (state.value === 'connecting') error.value = { message: 'The server did not open a stream: you may not be allowed to exec, or the container does not run.' }; };
    const watcher = new ResizeObserver(() => {
      const [columns, rows] = size();
      if (columns === screen.columns && rows === screen.rows) return;
      screen.resize(columns, rows);
      tellSize();
      soon(draw);
    });
    watcher.observe(own);
    return () => { watcher.disconnect(); ws.close(); };
  }, []);
  drawn.value;
  const screen = held.current?.screen;
  useEffect(() => { box.current.scrollTop = box.current.scrollHeight; }, [drawn.value]);
  const onKeyDown = (event) => {
    // The browser keeps what is the browser's: copying with the shift key, going elsewhere with Ctrl+Shift.
    if (event.ctrlKey && event.shiftKey) return;
    const text = sent(event, screen?.keys);
    if (!text) return;
    event.preventDefault();
    held.current?.type(text);
  };
  // Keyboards of phones write into fields and say little of keys: there is one that nobody sees.
  const onInput = (event) => { held.current?.type(event.target.value.replace(/\n/g, '\r')); event.target.value = ''; };
  const onTap = () => { if (matchMedia('(pointer: coarse)').matches) soft.current.focus(); };
  const onPaste = (event) => { event.preventDefault(); held.current?.type(event.clipboardData.getData('text').replace(/\n/g, '\r')); };
  const line = (cells, at, cursor) => html`<div key=${at}>${screen.runs(cells, cursor).map((run, i) => html`<span key=${i} class=${run.style}>${run.text}</span>`)}</div>`;
  return html`<${Trouble} error=${error.value} /><div class=${`terminal ${state.value}`} ref=${box} tabindex="0" role="textbox" aria-label="Terminal" aria-multiline="true" onKeyDown=${onKeyDown} onPaste=${onPaste} onClick=${onTap}>
    <textarea class="soft" ref=${soft} tabindex="-1" aria-hidden="true" autocapitalize="off" autocomplete="off" spellcheck=${false} onInput=${onInput}></textarea>    <span class="probe" ref=${probe} aria-hidden="true">0123456789</span><pre>${screen && [...screen.history.slice(-500).map((cells, at) => line(cells, `h${at}`, -1)), ...screen.grid.map((cells, at) => line(cells, at, screen.cursor && at === screen.y ? screen.x : -1))]}</pre></div>
    ${state.value === 'ended' && html`<p class="empty">The session has ended.</p>`}`;
}
