// Hooks that several views need: a feed for as long as a view is shown, the clock, a request with its answer.
// A component is drawn again when its properties are others or a signal that it read has changed: who is handed a feed reads its `changes`.
import { useEffect, useState, useSignal, signal } from './dom.js';
import { follow, release } from './feed.js';
import { moment } from './moment.js';

/** The feed of a kind while the view is shown; null without a kind. The view is drawn again whenever the feed changes. */
export function useFeed(kind, options = {}) {
  const [feed, keep] = useState(null);
  const at = moment.value?.at;
  useEffect(() => {
    if (!kind) { keep(null); return undefined; }
    const followed = follow(kind, options);
    keep(followed);
    return () => release(followed);
  }, [kind?.id, kind?.version, at, JSON.stringify(options)]);
  feed?.changes.value;
  feed?.state.value;
  return feed;
}

/** Seconds since the epoch, which go on while somebody looks. */
export const tick = signal(Date.now());
setInterval(() => { if (!document.hidden) tick.value = Date.now(); }, 1000);

/** Repeats `work` every `period` while the view is shown and looked at. `work` gets a signal that ends with the view. */
export function useEvery(period, work, on) {
  useEffect(() => {
    const ending = new AbortController();
    let timer;
    const turn = async () => {
      if (!document.hidden) await work(ending.signal).catch(() => {});
      if (!ending.signal.aborted) timer = setTimeout(turn, period);
    };
    turn();
    return () => { ending.abort(); clearTimeout(timer); };
  }, on);
}

/** The answer of `question`, asked again when `on` changes: `{ value, error }`. */
export function useAnswer(question, on) {
  const answer = useSignal({});
  useEffect(() => {
    const ending = new AbortController();
    answer.value = {};
    question(ending.signal).then((value) => { answer.value = { value }; }, (error) => {
      if (!ending.signal.aborted) answer.value = { error };
    });
    return () => ending.abort();
  }, on);
  return answer.value;
}
