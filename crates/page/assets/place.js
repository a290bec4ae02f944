// Which namespace is looked at; empty is all of them. It stays for the next visit.
import { signal, effect } from './dom.js';

const KEY = 'trireme-namespace';
export const namespace = signal(localStorage.getItem(KEY) || '');
effect(() => localStorage.setItem(KEY, namespace.value));
