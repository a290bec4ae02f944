// Who manages which field, from `metadata.managedFields`. Pure.

/** A function from a path of an object to the names of the managers of that field. */
export function managers(object) {
  const entries = (object.metadata?.managedFields || []).map((one) => ({ name: one.manager + (one.subresource ? `/${one.subresource}` : ''), fields: one.fieldsV1 || {} }));
  return (path) => entries.filter(({ fields }) => owns(fields, path, object)).map(({ name }) => name);
}

function owns(fields, path, object) {
  let at = fields;
  let value = object;
  for (const part of path) {
    value = value?.[part];
    const next = typeof part === 'number' ? item(at, value) : at[`f:${part}`];
    if (next === undefined) return false;
    at = next;
  }
  // A field that holds others is theirs who own it as a whole.
  return Object.keys(at).length === 0 || '.' in at;
}

/** The entry of an item of a list, by the keys that its manager wrote. */
function item(fields, value) {
  for (const [key, inside] of Object.entries(fields)) {
    if (key.startsWith('k:')) {
      const keys = JSON.parse(key.slice(2));
      if (Object.entries(keys).every(([name, wanted]) => value?.[name] === wanted)) return inside;
    } else if (key.startsWith('v:') && JSON.stringify(value) === key.slice(2)) return inside;
  }
  return undefined;
}
