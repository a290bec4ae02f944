// What was said about one object, newest first.
import { html } from './dom.js';
import { find } from './kinds.js';
import { useFeed } from './use.js';
import { Age, Empty, Trouble } from './widgets.js';
import { lastSeen } from './overview.js';

export function EventsOf({ object }) {
  const { uid, name, namespace } = object.metadata;
  const feed = useFeed(find('events'), { namespace: namespace || '', whole: true, fields: `involvedObject.name=${name}` });
  const list = [...(feed?.rows.values() || [])].map((row) => row.object).filter((event) => !event.involvedObject?.uid || event.involvedObject.uid === uid || event.involvedObject.uid === name).sort((a, b) => lastSeen(b) - lastSeen(a));
  if (feed?.error.value) return html`<${Trouble} error=${feed.error.value} />`;
  if (!list.length) return html`<${Empty}>Nothing was said about it in the last hour.</${Empty}>`;
  return html`<ul class="events whole">${list.map((event) => html`<li key=${event.metadata.uid}><${Age} at=${new Date(lastSeen(event)).toISOString()} /><span><span class=${`word ${event.type === 'Warning' ? 'warn' : 'ok'}`}>${event.type === 'Warning' ? '▲ ' : ''}${event.reason}</span>${event.count > 1 || event.series ? html` <small>×${event.series?.count || event.count}</small>` : ''} <small>${event.source?.component || event.reportingComponent}</small><span class="message">${event.message}</span></span></li>`)}</ul>`;
}
