// Which moment the page shows: now, or a past revision of the whole cluster. Whoever reads a list asks here at which revision.
import { signal } from './dom.js';

/** null is now; else `{ at, time }`: what the server is asked for (a time or a revision), and the time for people. */
export const moment = signal(null);
