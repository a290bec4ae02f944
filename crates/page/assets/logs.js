// What a container wrote, as it writes it. The last lines are kept; only those in sight are in the document.
import { html, useEffect, useLayoutEffect, useRef, useSignal } from './dom.js';
import { lines } from './api.js';
import { soon } from './frames.js';
import { Trouble, Toggle, Empty } from './widgets.js';

const KEPT = 10_000;
const LINE = 20;
// Colours of terminals and other orders are left out: they are for terminals.
const ORDERS = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007]*(?:\u0007|\u001b\\)|[@-_])/g;

export function Logs({ pod }) {
  const names = [...(pod.spec.containers || []), ...(pod.spec.initContainers || []), ...(pod.spec.ephemeralContainers || [])].map((one) => one.name);
  const container = useSignal(names[0]);
  const previous = useSignal(false);
  const stamps = useSignal(false);
  const filter = useSignal('');
  const follow = useSignal(true);
  const error = useSignal(null);
  const count = useSignal(0);
  const kept = useRef([]);
  useEffect(() => {
    const ending = new AbortController();
    kept.current = [];
    error.value = null;
    const tell = () => { count.value++; };
    const { namespace, name } = pod.metadata;
    const run = async () => {
      const query = { container: container.value, follow: previous.value ? '' : 'true', previous: previous.value ? 'true' : '', timestamps: stamps.value ? 'true' : '', tailLines: 2000 };
      for await (const line of lines(`/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/log`, { query, accept: '*/*', signal: ending.signal })) {
        kept.current.push(line.replace(ORDERS, ''));
        if (kept.current.length > KEPT * 1.1) kept.current.splice(0, kept.current.length - KEPT);
        soon(tell);
      }
    };
    run().catch((failed) => { if (!ending.signal.aborted) error.value = failed; }).finally(tell);
    return () => ending.abort();
  }, [pod.metadata.uid, container.value, previous.value, stamps.value]);
  count.value;
  const word = filter.value.toLowerCase();
  const shown = word ? kept.current.filter((line) => line.toLowerCase().includes(word)) : kept.current;
  return html`<div class="logs"><div class="toolbar"><select aria-label="Container" value=${container.value} onChange=${(event) => { container.value = event.target.value; }}>${names.map((name) => html`<option key=${name}>${name}</option>`)}</select>
      <input id="filter" type="search" placeholder="Filter lines" aria-label="Filter lines" value=${filter.value} onInput=${(event) => { filter.value = event.target.value; }} /><span class="count"><b>${shown.length}</b> lines</span>
      <${Toggle} on=${follow.value} flip=${() => { follow.value = !follow.value; }}>follow</${Toggle}><${Toggle} on=${stamps.value} flip=${() => { stamps.value = !stamps.value; }}>times</${Toggle}><${Toggle} on=${previous.value} flip=${() => { previous.value = !previous.value; }}>previous</${Toggle}></div>
    <${Trouble} error=${error.value} />${!shown.length && !error.value && html`<${Empty}>${word ? 'No line has that.' : 'It has written nothing yet.'}</${Empty}>`}<${Lines} list=${shown} count=${count.value} follow=${follow} /></div>`;
}

function Lines({ list, count, follow }) {
  const box = useRef();
  const seen = useSignal({ top: 0, height: 600 });
  const look = () => { if (box.current) seen.value = { top: box.current.scrollTop, height: box.current.clientHeight }; };
  useLayoutEffect(() => {
    if (follow.value) box.current.scrollTop = box.current.scrollHeight;
    look();
  }, [count, list.length, follow.value]);
  const first = Math.max(0, Math.floor(seen.value.top / LINE) - 20);
  const last = Math.ceil((seen.value.top + seen.value.height) / LINE) + 20;
  const scrolled = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    // Who scrolls up wants to read; who comes back to the end wants to follow.
    follow.value = scrollHeight - scrollTop - clientHeight < LINE * 2;
    look();
  };
  return html`<div class="lines" ref=${box} tabindex="0" onScroll=${scrolled}><div style=${{ height: `${list.length * LINE}px` }}><pre style=${{ transform: `translateY(${first * LINE}px)` }}>${list.slice(first, last).map((line, at) => html`<div key=${first + at}>${line || ' '}</div>`)}</pre></div></div>`;
}
