// Dark, light, or as the machine has it. It stays for the next visit.
import { signal, effect } from './dom.js';

const THEMES = ['auto', 'dark', 'light'];
const KEY = 'trireme-theme';

export const theme = signal(THEMES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : 'auto');
effect(() => {
  localStorage.setItem(KEY, theme.value);
  document.documentElement.dataset.theme = theme.value;
});
export const flipTheme = () => { theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length]; };
