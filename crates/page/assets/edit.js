// Editing an object: its YAML as text, what would change, and only then the change.
import { html, useSignal } from './dom.js';
import { replace } from './write.js';
import { yaml } from './yaml.js';
import { bare, Difference } from './code.js';
import { Trouble } from './widgets.js';
import { useKeys } from './keyboard.js';
import { route } from './route.js';
import { useEffect } from './dom.js';
import { get } from './api.js';
import { pathOf } from './kinds.js';

/** What is edited: no status, no managed fields; the revision stays, so that the server sees who was faster. */
export function editable(object) {
  const copy = bare(object, { secret: true });
  delete copy.status;
  return copy;
}

export function Edit({ kind, object }) {
  const start = useSignal(editable(object));
  const text = useSignal(yaml(start.value));
  const tried = useSignal(null);
  const error = useSignal(null);
  const done = useSignal('');
  const { name, namespace, resourceVersion } = object.metadata;
  const back = route.value.query.get('from');
  useEffect(() => {
    if (!back) return;
    // As it was then, written as of now: the way back is a change like any other.
    get(pathOf(kind, namespace, name), { query: { at: back } }).then((old) => {
      const copy = editable(old);
      copy.metadata.resourceVersion = object.metadata.resourceVersion;
      text.value = yaml(copy);
      run(true);
    }, (failed) => { error.value = failed; });
  }, [back]);
  const run = async (dry) => {
    error.value = null;
    done.value = '';
    const sent = text.value;
    try {
      const answer = await replace(kind, object.metadata, sent, dry);
      if (dry) tried.value = { text: sent, ...answer };
      else {
        done.value = `Written: revision ${answer.object.metadata.resourceVersion}.`;
        tried.value = null;
        start.value = editable(answer.object);
        text.value = yaml(start.value);
      }
    } catch (failed) { error.value = failed; tried.value = null; }
  };
  const ready = tried.value?.text === text.value;
  const stale = start.value.metadata.resourceVersion !== resourceVersion;
  const reload = () => { start.value = editable(object); text.value = yaml(start.value); tried.value = null; error.value = null; };
  useKeys('Edit', [['Ctrl+Enter', 'try, then write', () => { run(!(tried.value?.text === text.value)); }]], []);
  return html`<div class="edit"><div class="toolbar"><button class=${ready ? '' : 'primary'} onClick=${() => run(true)}>Try <kbd>Ctrl ⏎</kbd></button><button class=${ready ? 'primary' : ''} disabled=${!ready} onClick=${() => run(false)}>Write</button>
      ${stale && html`<button onClick=${reload}>▲ it has changed meanwhile: begin again from what it is now</button>`}<span class="said" role="status">${done.value || (ready ? 'This is what would change:' : 'A dry run on the server shows what would change; nothing is written before.')}</span></div>
    <${Trouble} error=${error.value} />${(tried.value?.warnings || []).map((said) => html`<div class="trouble soft" key=${said}>▲ ${said}</div>`)}
    <div class="panes"><textarea id="editor" spellcheck=${false} aria-label="YAML" value=${text.value} onInput=${(event) => { text.value = event.target.value; }} onKeyDown=${indents}></textarea>${ready && html`<${Difference} before=${editable(object)} after=${editable(tried.value.object)} />`}</div></div>`;
}

/** Tab writes two spaces; Escape gives the key back to the page. */
export function indents(event) {
  if (event.key !== 'Tab' || event.shiftKey) return;
  event.preventDefault();
  event.target.setRangeText('  ', event.target.selectionStart, event.target.selectionEnd, 'end');
  event.target.dispatchEvent(new Event('input', { bubbles: true }));
}
