// What every view is written with: elements as tagged templates, signals, hooks. Whatever a template is given is text, never markup.
import { h, render, Fragment } from './vendor/preact.js';
import htm from './vendor/htm.js';

export { render, Fragment };
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.js';
export { signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from './vendor/signals.js';
export const html = htm.bind(h);

/** Names of classes that hold. */
export const classes = (...names) => names.filter(Boolean).join(' ');
