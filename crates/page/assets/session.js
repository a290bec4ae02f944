// Who uses the page: a token that they gave, or whoever the connection itself says they are (a certificate, or `trireme ui`).
// A token stays in memory; if it is to survive a reload, in this tab's sessionStorage. Never in a cookie: no other page can use it.
import { signal } from './dom.js';

const KEY = 'trireme-token';

export const token = signal(sessionStorage.getItem(KEY) || '');
/** The user's name and groups; null until the server has said who it is. */
export const user = signal(null);
/** Why somebody has to sign in; null while nobody has to. */
export const locked = signal(null);

export function signIn(text, keep) {
  token.value = text.trim();
  if (keep && token.value) sessionStorage.setItem(KEY, token.value);
  else sessionStorage.removeItem(KEY);
}

export function signOut(why = '') {
  token.value = '';
  user.value = null;
  sessionStorage.removeItem(KEY);
  locked.value = why;
}
