// How things are shown: ages, amounts, durations. Pure.

/** As kubectl writes how long ago something was. */
export function age(from, now = Date.now()) {
  const seconds = Math.floor((now - Date.parse(from)) / 1000);
  if (Number.isNaN(seconds)) return '';
  if (seconds < 0) return '0s';
  if (seconds < 120) return `${seconds}s`;
  const [m, h, d] = [Math.floor(seconds / 60), Math.floor(seconds / 3600), Math.floor(seconds / 86400)];
  if (m < 10) return seconds % 60 ? `${m}m${seconds % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  if (h < 8) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  if (h < 48) return `${h}h`;
  if (d < 8) return h % 24 ? `${d}d${h % 24}h` : `${d}d`;
  if (d < 730) return `${d}d`;
  return `${Math.floor(d / 365)}y`;
}

const UNITS = { n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

/** A quantity as a number. */
export function amount(quantity) {
  const [, digits, unit] = /^([+-]?[\d.]+(?:[eE][+-]?\d+)?)([A-Za-z]*)$/.exec(String(quantity ?? '')) || [];
  return digits === undefined ? 0 : Number(digits) * (UNITS[unit] ?? 1);
}

export function bytes(count) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (count >= 1024 && at < names.length - 1) { count /= 1024; at++; }
  return `${count >= 100 || at === 0 ? Math.round(count) : count.toFixed(1)} ${names[at]}`;
}

export const cores = (count) => (count < 0.01 ? `${Math.round(count * 1000)}m` : count < 10 ? count.toFixed(2) : count.toFixed(0));

/** A duration of so many seconds in three digits or so. */
export function took(seconds) {
  if (seconds < 0.01) return `${(seconds * 1e3).toFixed(2)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds < 100) return `${seconds.toFixed(2)} s`;
  return `${Math.round(seconds)} s`;
}

export const percent = (part, whole) => (whole > 0 ? Math.min(100, Math.round((part / whole) * 100)) : 0);

/** One number with as many digits as say something. */
export const short = (number) => (number >= 1e6 ? `${(number / 1e6).toFixed(1)}M` : number >= 1e4 ? `${(number / 1e3).toFixed(0)}k`
  : number >= 100 || Number.isInteger(number) ? String(Math.round(number)) : number.toFixed(1));

export const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });
export const stamp = (time) => new Date(time).toLocaleString([], { hour12: false });
