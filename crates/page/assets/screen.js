// A terminal's screen: letters and orders in, a grid of cells out (VT100 and the parts of xterm that shells, editors and pagers use). Pure.

const BLANK = { letter: ' ', style: '' };
const SCROLLBACK = 2000;

export class Screen {
  constructor(columns, rows) {
    Object.assign(this, { columns, rows, x: 0, y: 0, style: {}, saved: { x: 0, y: 0, style: {} }, top: 0, bottom: rows - 1, wrap: false, cursor: true, history: [], replies: '', title: '', other: null, keys: false, rest: '' });
    this.grid = this.blank();
  }

  blank() { return Array.from({ length: this.rows }, () => this.line()); }
  line() { return new Array(this.columns).fill(BLANK); }

  resize(columns, rows) {
    const fit = (grid) => Array.from({ length: rows }, (_, y) => Array.from({ length: columns }, (_, x) => grid[y]?.[x] || BLANK));
    // What stood above stays; the cursor's line stays in sight.
    const gone = Math.max(0, this.y - rows + 1);
    if (gone && !this.other) this.history.push(...this.grid.slice(0, gone));
    this.grid = fit(this.grid.slice(gone));
    if (this.other) this.other.grid = fit(this.other.grid);
    Object.assign(this, { columns, rows, y: this.y - gone, x: Math.min(this.x, columns - 1), top: 0, bottom: rows - 1 });
  }

  /** Takes text; what it asks to be answered is in `replies`. */
  write(text) {
    let at = 0;
    const all = this.rest + text;
    this.rest = '';
    while (at < all.length) {
      const code = all.charCodeAt(at);
      if (code === 0x1b) {
        const used = this.order(all.slice(at));
        if (!used) { this.rest = all.slice(at, at + 4096); return; }
        at += used;
      } else if (code < 0x20 || code === 0x7f) { this.control(code); at++; } else {
        const letter = String.fromCodePoint(all.codePointAt(at));
        this.put(letter);
        at += letter.length;
      }
    }
  }

  put(letter) {
    if (this.wrap) { this.x = 0; this.down(); this.wrap = false; }
    this.grid[this.y][this.x] = { letter, style: this.styled() };
    if (this.x === this.columns - 1) this.wrap = true;
    else this.x++;
  }

  styled() {
    const { bold, dim, under, inverse, fore, back } = this.style;
    return [bold && 'bold', dim && 'dim', under && 'under', inverse && 'inverse', fore !== undefined && `f${fore}`, back !== undefined && `b${back}`].filter(Boolean).join(' ');
  }

  control(code) {
    this.wrap = false;
    if (code === 8) this.x = Math.max(0, this.x - 1);
    else if (code === 9) this.x = Math.min(this.columns - 1, (this.x & ~7) + 8);
    else if (code === 10 || code === 11 || code === 12) this.down();
    else if (code === 13) this.x = 0;
  }

  down() {
    if (this.y !== this.bottom) { this.y = Math.min(this.rows - 1, this.y + 1); return; }
    const [gone] = this.grid.splice(this.top, 1);
    if (this.top === 0 && !this.other) {
      this.history.push(gone);
      if (this.history.length > SCROLLBACK) this.history.shift();
    }
    this.grid.splice(this.bottom, 0, this.line());
  }

  up() {
    if (this.y !== this.top) { this.y = Math.max(0, this.y - 1); return; }
    this.grid.splice(this.bottom, 1);
    this.grid.splice(this.top, 0, this.line());
  }

  /** An order that begins with escape: how many letters it has, 0 for one that is not whole yet. */
  order(text) {
    const kind = text[1];
    if (kind === undefined) return 0;
    if (kind === '[') {
      const found = /^\u001b\[([0-?]*)([ -/]*)([@-~])/.exec(text);
      if (!found) return text.length > 64 ? 2 : 0;
      this.sequence(found[1], found[3]);
      return found[0].length;
    }
    if (kind === ']' || kind === 'P' || kind === '_' || kind === '^') {
      const found = /^\u001b[\]P_^][^\u0007\u001b]*(?:\u0007|\u001b\\)/.exec(text);
      return found ? found[0].length : text.length > 4096 ? 2 : 0;
    }
    if (kind === '(' || kind === ')' || kind === '#') return text.length > 2 ? 3 : 0;
    if (kind === '7') this.save();
    else if (kind === '8') this.restore();
    else if (kind === 'D') this.down();
    else if (kind === 'E') { this.x = 0; this.down(); } else if (kind === 'M') this.up();
    else if (kind === 'c') Object.assign(this, new Screen(this.columns, this.rows));
    return 2;
  }

  save() { this.saved = { x: this.x, y: this.y, style: { ...this.style } }; }
  restore() { Object.assign(this, { x: this.saved.x, y: Math.min(this.saved.y, this.rows - 1), style: { ...this.saved.style } }); }

  sequence(parameters, final) {
    const own = /^[?>=]/.test(parameters);
    const numbers = parameters.replace(/^[?>=]/, '').split(/[;:]/).map((one) => (one === '' ? undefined : Number(one)));
    const n = Math.min(numbers[0] || 1, 10_000);
    this.wrap = false;
    if (own) { if (final === 'h' || final === 'l') numbers.forEach((mode) => this.mode(mode, final === 'h')); return; }
    const column = (x) => { this.x = Math.max(0, Math.min(this.columns - 1, x)); };
    const row = (y) => { this.y = Math.max(0, Math.min(this.rows - 1, y)); };
    const act = {
      A: () => row(this.y - n), B: () => row(this.y + n), C: () => column(this.x + n), D: () => column(this.x - n), E: () => { row(this.y + n); column(0); }, F: () => { row(this.y - n); column(0); },
      G: () => column(n - 1), '`': () => column(n - 1), d: () => row(n - 1), H: () => { row(n - 1); column((numbers[1] || 1) - 1); }, f: () => { row(n - 1); column((numbers[1] || 1) - 1); },
      J: () => this.erase(numbers[0] || 0), K: () => this.eraseLine(numbers[0] || 0), m: () => this.sgr(numbers), s: () => this.save(), u: () => this.restore(),
      L: () => this.shift(n, 1), M: () => this.shift(n, -1), S: () => { for (let i = 0; i < Math.min(n, this.rows); i++) { const y = this.y; this.y = this.bottom; this.down(); this.y = y; } },
      P: () => { const line = this.grid[this.y]; line.splice(this.x, n); while (line.length < this.columns) line.push(BLANK); },
      '@': () => { const line = this.grid[this.y]; line.splice(this.x, 0, ...new Array(Math.min(n, this.columns)).fill(BLANK)); line.length = this.columns; },
      X: () => { for (let x = this.x; x < Math.min(this.columns, this.x + n); x++) this.grid[this.y][x] = BLANK; },
      r: () => { this.top = Math.max(0, (numbers[0] || 1) - 1); this.bottom = Math.min(this.rows, numbers[1] || this.rows) - 1; if (this.top >= this.bottom) { this.top = 0; this.bottom = this.rows - 1; } this.x = 0; this.y = 0; },
      n: () => { if (numbers[0] === 6) this.replies += `\u001b[${this.y + 1};${this.x + 1}R`; if (numbers[0] === 5) this.replies += '\u001b[0n'; }, c: () => { this.replies += '\u001b[?1;2c'; },
    }[final];
    act?.();
  }

  shift(count, way) {
    if (this.y < this.top || this.y > this.bottom) return;
    for (let i = 0; i < Math.min(count, this.rows); i++) {
      if (way > 0) { this.grid.splice(this.bottom, 1); this.grid.splice(this.y, 0, this.line()); } else { this.grid.splice(this.y, 1); this.grid.splice(this.bottom, 0, this.line()); }
    }
  }

  mode(number, on) {
    if (number === 25) this.cursor = on;
    if (number === 1) this.keys = on;
    if ([47, 1047, 1049].includes(number)) {
      if (on && !this.other) { this.other = { grid: this.grid, x: this.x, y: this.y }; this.grid = this.blank(); } else if (!on && this.other) { Object.assign(this, this.other, { other: null }); }
    }
  }

  erase(what) {
    if (what === 0) { this.eraseLine(0); for (let y = this.y + 1; y < this.rows; y++) this.grid[y] = this.line(); }
    if (what === 1) { this.eraseLine(1); for (let y = 0; y < this.y; y++) this.grid[y] = this.line(); }
    if (what >= 2) this.grid = this.blank();
    if (what === 3) this.history = [];
  }

  eraseLine(what) {
    const [from, to] = [[this.x, this.columns], [0, this.x + 1], [0, this.columns]][what] || [0, 0];
    for (let x = from; x < to; x++) this.grid[this.y][x] = BLANK;
  }

  sgr(numbers) {
    for (let at = 0; at < numbers.length; at++) {
      const n = numbers[at] || 0;
      if (n === 0) this.style = {};
      else if (n === 1) this.style.bold = true;
      else if (n === 2) this.style.dim = true;
      else if (n === 4) this.style.under = true;
      else if (n === 7) this.style.inverse = true;
      else if (n === 22) { this.style.bold = false; this.style.dim = false; } else if (n === 24) this.style.under = false;
      else if (n === 27) this.style.inverse = false;
      else if (n >= 30 && n <= 37) this.style.fore = n - 30;
      else if (n === 39) delete this.style.fore;
      else if (n >= 40 && n <= 47) this.style.back = n - 40;
      else if (n === 49) delete this.style.back;
      else if (n >= 90 && n <= 97) this.style.fore = n - 82;
      else if (n >= 100 && n <= 107) this.style.back = n - 92;
      else if (n === 38 || n === 48) {
        // Of 256 colours the first sixteen are had; of others the nearest of them.
        const field = n === 38 ? 'fore' : 'back';
        if (numbers[at + 1] === 5) { this.style[field] = nearest(numbers[at + 2]); at += 2; } else if (numbers[at + 1] === 2) { this.style[field] = ofParts(numbers[at + 2], numbers[at + 3], numbers[at + 4]); at += 4; }
      }
    }
  }

  /** A line as runs of one style. */
  runs(line, cursorAt = -1) {
    const found = [];
    line.forEach(({ letter, style }, x) => {
      const mark = x === cursorAt ? `${style} cursor` : style;
      const last = found[found.length - 1];
      if (last && last.style === mark) last.text += letter;
      else found.push({ text: letter, style: mark });
    });
    return found;
  }
}

function nearest(number = 0) {
  if (number < 16) return number;
  if (number >= 232) return number < 244 ? 8 : 7;
  const cube = number - 16;
  return ofParts(Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51);
}

const ofParts = (r = 0, g = 0, b = 0) => (r > 127 ? 1 : 0) + (g > 127 ? 2 : 0) + (b > 127 ? 4 : 0) + (Math.max(r, g, b) > 200 ? 8 : 0);
