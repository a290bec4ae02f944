// What a network policy says, in words, and which pods it is about. Pure.

/** Whether labels fit a selector of Kubernetes. */
export function fitsSelector(selector = {}, labels = {}) {
  return Object.entries(selector.matchLabels || {}).every(([key, value]) => labels[key] === value)
    && (selector.matchExpressions || []).every(({ key, operator, values = [] }) => {
      if (operator === 'In') return values.includes(labels[key]);
      if (operator === 'NotIn') return !values.includes(labels[key]);
      return operator === 'Exists' ? key in labels : !(key in labels);
    });
}

export const selects = (policy, pod) => policy.metadata.namespace === pod.namespace && fitsSelector(policy.spec?.podSelector, pod.labels || {});

function words(selector) {
  const parts = [...Object.entries(selector?.matchLabels || {}).map(([key, value]) => `${key}=${value}`), ...(selector?.matchExpressions || []).map(({ key, operator, values }) => `${key} ${operator}${values ? ` ${values.join('|')}` : ''}`)];
  return parts.join(', ');
}

function peer({ podSelector, namespaceSelector, ipBlock }) {
  if (ipBlock) return `addresses ${ipBlock.cidr}${ipBlock.except?.length ? ` except ${ipBlock.except.join(', ')}` : ''}`;
  const pods = podSelector ? (words(podSelector) ? `pods with ${words(podSelector)}` : 'all pods') : 'all pods';
  if (!namespaceSelector) return `${pods} of its namespace`;
  return `${pods} of ${words(namespaceSelector) ? `namespaces with ${words(namespaceSelector)}` : 'all namespaces'}`;
}

const port = ({ port: from, endPort, protocol = 'TCP' }) => `${from === undefined ? 'every port' : endPort ? `${from}-${endPort}` : from}/${protocol}`;

/** A sentence for each rule. */
export function allows(policy) {
  const { spec = {} } = policy;
  const types = spec.policyTypes || ['Ingress', ...(spec.egress ? ['Egress'] : [])];
  return types.flatMap((type) => {
    const [rules, side, way] = type === 'Ingress' ? [spec.ingress, 'from', 'In'] : [spec.egress, 'to', 'Out'];
    if (!rules?.length) return [`${way}: nothing is allowed`];
    return rules.map((rule) => `${way}: ${side} ${rule[side]?.length ? rule[side].map(peer).join(' or ') : 'anybody'}${rule.ports?.length ? ` at ${rule.ports.map(port).join(', ')}` : ''}`);
  });
}
