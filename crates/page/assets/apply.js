// Any number of documents, applied server-side: first what each would change, then all of them.
import { html, useSignal, signal } from './dom.js';
import { documents, apply } from './write.js';
import { get } from './api.js';
import { pathOf } from './kinds.js';
import { Difference, bare } from './code.js';
import { Trouble, Toggle, Health } from './widgets.js';
import { useKeys } from './keyboard.js';
import { indents } from './edit.js';
import { namespace } from './place.js';
import { objectOf } from './route.js';

const text = signal('');
const shown = (object) => { const copy = bare(object); delete copy.status; if (copy.metadata) { delete copy.metadata.resourceVersion; delete copy.metadata.generation; } return copy; };

export function ApplyView() {
  const tried = useSignal(null);
  const error = useSignal(null);
  const force = useSignal(false);
  const run = async (dry) => {
    error.value = null;
    const sent = text.value;
    let list;
    try { list = documents(sent, namespace.value); } catch (failed) { error.value = { reason: 'Invalid', message: failed.message }; return; }
    const results = [];
    for (const one of list) {
      const before = dry ? await get(pathOf(one.kind, one.namespace, one.name), { quiet: true }).catch(() => null) : null;
      const result = await apply(one, one.text, { dry, force: force.value }).then((answer) => ({ ...one, before, ...answer }), (failed) => ({ ...one, error: failed }));
      results.push(result);
      tried.value = { text: sent, dry, force: force.value, results: [...results] };
    }
  };
  const ready = tried.value?.dry && tried.value.text === text.value && tried.value.force === force.value && tried.value.results.length > 0 && tried.value.results.every((one) => !one.error);
  useKeys('Apply', [['Ctrl+Enter', 'try, then apply', () => { document.getElementById(ready ? 'apply' : 'try')?.click(); }]], [ready]);
  return html`<div class="edit"><div class="toolbar"><button id="try" class=${ready ? '' : 'primary'} disabled=${!text.value.trim()} onClick=${() => run(true)}>Try <kbd>Ctrl ⏎</kbd></button><button id="apply" class=${ready ? 'primary' : ''} disabled=${!ready} onClick=${() => run(false)}>Apply</button><${Toggle} on=${force.value} flip=${() => { force.value = !force.value; }} title="Take fields that others manage">force</${Toggle}><span class="said">Nothing is written before a dry run has shown what would change.</span></div>
    <${Trouble} error=${error.value} /><div class="panes"><textarea id="editor" spellcheck=${false} aria-label="YAML" placeholder=${'apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n…'} value=${text.value} onInput=${(event) => { text.value = event.target.value; }} onKeyDown=${indents}></textarea>
      ${tried.value && html`<div class="results">${tried.value.results.map((one) => html`<${Result} key=${`${one.kind.id}/${one.namespace}/${one.name}`} one=${one} dry=${tried.value.dry} />`)}</div>`}</div></div>`;
}

function Result({ one, dry }) {
  const word = one.error ? 'refused' : one.created ? (dry ? 'would be created' : 'created') : dry ? 'would be changed' : 'applied';
  return html`<section class="result"><h3><${Health} level=${one.error ? 'bad' : dry ? 'wait' : 'ok'} word=${word} /> <a href=${objectOf(one.kind, one.namespace, one.name, dry ? '' : 'hops')}>${one.kind.kind} ${one.namespace ? `${one.namespace}/` : ''}${one.name}</a>${!dry && !one.error && html` <a class="more" href=${objectOf(one.kind, one.namespace, one.name, 'hops')}>see its twelve hops →</a>`}</h3>
    <${Trouble} error=${one.error} />${(one.warnings || []).map((said) => html`<div class="trouble soft" key=${said}>▲ ${said}</div>`)}${dry && one.object && html`<${Difference} before=${one.before && shown(one.before)} after=${shown(one.object)} />`}</section>`;
}
