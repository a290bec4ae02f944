// What differs between two texts, line by line: the shortest way from one to the other (Myers), within a limit. Pure.

const MOST = 2000;

/** `[[mark, line]]` with mark ' ', '-' or '+'. */
export function diff(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  const same = (lines) => lines.map((line) => [' ', line]);
  return [...same(before.slice(0, head)), ...middle(before.slice(head, before.length - tail), after.slice(head, after.length - tail)), ...same(after.slice(after.length - tail))];
}

function middle(a, b) {
  const replaced = () => [...a.map((line) => ['-', line]), ...b.map((line) => ['+', line])];
  if (!a.length || !b.length || a.length + b.length > 2 * MOST) return replaced();
  const trail = [];
  let furthest = new Map([[1, 0]]);
  for (let steps = 0; steps <= a.length + b.length; steps++) {
    trail.push(new Map(furthest));
    for (let k = -steps; k <= steps; k += 2) {
      const down = k === -steps || (k !== steps && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? furthest.get(k + 1) : furthest.get(k - 1) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x++; y++; }
      furthest.set(k, x);
      if (x >= a.length && y >= b.length) return walk(trail, a, b);
    }
    if (steps > MOST / 2) return replaced();
  }
  return replaced();
}

function walk(trail, a, b) {
  const found = [];
  let [x, y] = [a.length, b.length];
  for (let steps = trail.length - 1; steps >= 0; steps--) {
    const furthest = trail[steps];
    const k = x - y;
    const down = k === -steps || (k !== steps && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const [px, py] = [furthest.get(from), furthest.get(from) - from];
    while (x > px && y > py && x > 0 && y > 0) found.push([' ', a[(y--, --x)]]);
    if (steps > 0) found.push(down ? ['+', b[--y]] : ['-', a[--x]]);
  }
  return found.reverse();
}

/** Only the lines around changes; `null` stands for lines left out. */
export function around(lines, context = 3) {
  const near = new Set();
  lines.forEach(([mark], at) => { if (mark !== ' ') for (let i = at - context; i <= at + context; i++) near.add(i); });
  const shown = [];
  lines.forEach((line, at) => {
    if (near.has(at)) shown.push(line);
    else if (shown.length === 0 || shown[shown.length - 1] !== null) shown.push(null);
  });
  return near.size ? shown : [];
}
