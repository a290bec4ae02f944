// Objects as YAML, line by line, each line with the path of what it says: for showing, for comparing, for who manages it. Pure.

const PLAIN = /^[A-Za-z_./][\w ./@+-]*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n|~|\.nan|\.inf)$/i;
const NUMBER = /^[-+.]?[\d.]/;

function scalar(value) {
  if (value === null || value === undefined) return 'null';
  if (typeof value !== 'string') return String(value);
  if (value !== '' && PLAIN.test(value) && !WORDS.test(value) && !NUMBER.test(value) && !value.endsWith(' ') && !value.endsWith(':')) return value;
  return JSON.stringify(value);
}

const isBlock = (value) => typeof value === 'string' && value.includes('\n') && !/[^\P{C}\n\t]/u.test(value) && !/^[ \t\n]/.test(value) && !/[ \t]\n/.test(value);
const isEmpty = (value) => typeof value === 'object' && value !== null && Object.keys(value).length === 0;

/** `[{ text, path }]`; a path is a list of keys and places. */
export function yamlLines(value) {
  const lines = [];
  write(lines, value, '', [], '');
  return lines;
}

export const yaml = (value) => yamlLines(value).map((line) => line.text).join('\n') + '\n';

/** `lead` is what stands before the first line: the indent, with a dash where it is an item. */
function write(lines, value, indent, path, lead) {
  if (typeof value !== 'object' || value === null || isEmpty(value)) {
    lines.push({ text: lead + (isEmpty(value) ? (Array.isArray(value) ? '[]' : '{}') : scalar(value)), path });
    return;
  }
  if (Array.isArray(value)) {
    value.forEach((one, at) => write(lines, one, `${indent}  `, [...path, at], `${at === 0 && lead ? lead : indent}- `));
    return;
  }
  let first = true;
  for (const [key, one] of Object.entries(value)) {
    if (one === undefined) continue;
    const begin = (first && lead ? lead : indent) + `${scalar(key)}:`;
    first = false;
    const here = [...path, key];
    if (isBlock(one)) block(lines, one, begin, indent, here);
    else if (typeof one === 'object' && one !== null && !isEmpty(one)) {
      lines.push({ text: begin, path: here });
      write(lines, one, Array.isArray(one) ? indent : `${indent}  `, here, '');
    } else lines.push({ text: `${begin} ${isEmpty(one) ? (Array.isArray(one) ? '[]' : '{}') : scalar(one)}`, path: here });
  }
}

function block(lines, text, begin, indent, path) {
  const kept = text.endsWith('\n') ? (text.endsWith('\n\n') ? '+' : '') : '-';
  lines.push({ text: `${begin} |${kept}`, path });
  const parts = text.replace(/\n$/, '').split('\n');
  parts.forEach((part) => lines.push({ text: part ? `${indent}  ${part}` : '', path }));
}
