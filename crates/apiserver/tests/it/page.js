// Tables for the pure modules of the page; answers with what is wrong.
(async () => {
  const wrong = [];
  const same = (what, found, wanted) => { if (JSON.stringify(found) !== JSON.stringify(wanted)) wrong.push(`${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`); };
  const [yaml, diff, screen, metrics, policy, managed, format, health, story, table, write, palette, terminal] = await Promise.all(
    ['yaml', 'diff', 'screen', 'metrics', 'policy', 'managed', 'format', 'health', 'story', 'table', 'write', 'palette', 'terminal'].map((name) => import(`./${name}.js`)));

  for (const [value, text] of [
    [{ a: 'plain', b: 'true', c: '1e3', d: '', e: null, f: 7, g: 'a: b' }, 'a: plain\nb: "true"\nc: "1e3"\nd: ""\ne: null\nf: 7\ng: "a: b"\n'],
    [{ list: [1, { x: 'w', z: [] }], none: {} }, 'list:\n- 1\n- x: w\n  z: []\nnone: {}\n'],
    [{ text: 'one\ntwo\n', cut: 'one\ntwo' }, 'text: |\n  one\n  two\ncut: |-\n  one\n  two\n'],
    [{ bad: '\u0007\n', tail: 'x \ny' }, 'bad: "\\u0007\\n"\ntail: "x \\ny"\n'],
    [{ '<b>': '- x', '': '#' }, '"<b>": "- x"\n"": "#"\n'],
  ]) same('yaml', yaml.yaml(value), text);

  for (const [a, b, marks] of [['abc', 'abc', '   '], ['abc', 'axc', ' -+ '], ['', 'ab', '++'], ['ab', '', '--'], ['abcdef', 'bcxdef', '-  +   ']]) {
    const found = diff.diff([...a], [...b]);
    same(`diff ${a} ${b}`, found.map(([mark]) => mark).join(''), marks);
    same('diff back', found.filter(([mark]) => mark !== '-').map(([, line]) => line).join(''), b);
  }
  same('around', diff.around(diff.diff([...'abcdefghij'], [...'abcdexghij']), 1).map((line) => line && line[1]), [null, 'e', 'f', 'x', 'g', null]);

  const drawn = (text, columns = 10, rows = 3) => { const one = new screen.Screen(columns, rows); one.write(text); return one.grid.map((line) => line.map((cell) => cell.letter).join('').trimEnd()).join('|'); };
  for (const [text, wanted] of [['ab\r\ncd', 'ab|cd|'], ['0123456789x', '0123456789|x|'], ['a\u001b[2;3Hb', 'a|  b|'], ['abc\u001b[2D\u001b[K', 'a||'], ['1\r\n2\r\n3\r\n4', '2|3|4'], ['x\u001b[?1049hy\u001b[?1049l', 'x||'], ['\u001b]0;title\u0007ok', 'ok||'], ['\u001b[31mred\u001b[0m', 'red||'], ['\u001b[99999999C|', '         ||||'.slice(0, 9) + '|||']]) same(`screen ${JSON.stringify(text)}`, drawn(text), wanted);
  const split = new screen.Screen(10, 2);
  split.write('\u001b[3');
  split.write('1mr\u001b[6n');
  same('an order in two parts', [split.grid[0][0], split.replies], [{ letter: 'r', style: 'f1' }, '\u001b[1;2R']);
  same('keys', [terminal.sent({ key: 'c', ctrlKey: true }), terminal.sent({ key: 'ArrowUp' }, true), terminal.sent({ key: 'Enter' }), terminal.sent({ key: 'Shift' })], ['\u0003', '\u001bOA', '\r', '']);

  same('figures', metrics.figures('# HELP a b\na{x="1",y="a\\"}b"} 3\na 4 99\nb 5\n', new Set(['a'])), [{ name: 'a', labels: { x: '1', y: 'a\\"}b' }, value: 3 }, { name: 'a', labels: {}, value: 4 }]);
  same('quantile', [metrics.quantile(0.5, {}, { 0.1: 5, 0.2: 10, '+Inf': 10 }), metrics.quantile(0.99, { 0.1: 1 }, { 0.1: 1, '+Inf': 0 })], [0.1, null]);
  same('policy', policy.allows({ spec: { policyTypes: ['Ingress', 'Egress'], ingress: [{ from: [{ podSelector: { matchLabels: { app: 'a' } } }, { ipBlock: { cidr: '10.0.0.0/8' } }], ports: [{ port: 80 }] }] } }), ['In: from pods with app=a of its namespace or addresses 10.0.0.0/8 at 80/TCP', 'Out: nothing is allowed']);
  same('selector', [policy.fitsSelector({ matchExpressions: [{ key: 'a', operator: 'NotIn', values: ['x'] }] }, {}), policy.fitsSelector({ matchLabels: { a: 'b' } }, { a: 'c' })], [true, false]);
  const who = managed.managers({ metadata: { managedFields: [{ manager: 'kubectl', fieldsV1: { 'f:spec': { 'f:ports': { 'k:{"port":80}': { '.': {}, 'f:name': {} } } } } }] }, spec: { ports: [{ port: 81 }, { port: 80, name: 'a' }] } });
  same('managers', [who(['spec', 'ports', 1, 'name']), who(['spec', 'ports', 0, 'name']), who(['spec'])], [['kubectl'], [], []]);

  same('ages', [30, 119, 125, 3600, 90000, 864000, 1e8].map((ago) => format.age(new Date(1e12 - ago * 1000).toISOString(), 1e12)), ['30s', '119s', '2m5s', '60m', '25h', '10d', '3y']);
  same('amounts', ['100m', '1Gi', '2', '1e3', '', 'x'].map(format.amount), [0.1, 2 ** 30, 2, 1000, 0, 0]);
  const columns = [{ name: 'Name' }, { name: 'Ready' }, { name: 'Status' }];
  same('health', [['1/1', 'Running'], ['0/1', 'Running'], ['0/1', 'CrashLoopBackOff'], ['0/1', 'Pending'], ['0/1', 'Completed']].map(([ready, status]) => health.ofRow({ cells: ['a', ready, status] }, columns).level), ['ok', 'warn', 'bad', 'wait', 'done']);

  const members = [{ uid: 'd', name: 'deployment/a', owner: '' }, { uid: 'p', name: 'pod/a', owner: 'd', node: 'n' }];
  const span = (hop, stage, uid, request, process, start, took) => ({ hop, name: `hop ${hop}`, stage, verb: '', by: '', uid, request, process, start, took });
  const told = story.tell(members, { silent: new Map(), spans: [span(2, '', '', 1, 's', 1000, 2), span(7, '', 'd', 1, 's', 1002, 5), span(10, 'bind', 'p', 0, 's', 1010, 3), span(11, 'sandbox', 'p', 0, 'n', 900, 40), span(7, '', 'd', 9, 's', -60000, 5)] });
  same('story', told.chapters.map(({ member, rows }) => [member.name, rows.map((row) => [row.hop, row.times[0][0]])]), [['deployment/a', [[2, 0], [7, 2]]], ['pod/a', [[10, 10], [11, 10]]]]);
  same('the longest', story.longest(told).row.stage, 'sandbox');
  same('decisions', [story.said({ decided: 'pulled', bytes: 7 }), story.said({ decided: 'nothing to do' }), story.said({ writes: 3 }), story.said({ writes: 1 }), story.said({ decided: 'TaintToleration refused 1 node', nodes: 2 })], ['pulled, 7 bytes', '', 'in a group of 3 writes', '', 'TaintToleration refused 1 node, looked at 2 nodes']);

  const rows = [{ name: 'b', namespace: 'x', cells: ['b', 10], labels: { app: 'web' } }, { name: 'a', namespace: 'y', cells: ['a', 9] }];
  same('filter', ['', 'B', '-b', 'app=web', 'app=web -x', 'b y'].map((filter) => rows.filter(table.fits(filter)).map((row) => row.name).join('')), ['ba', 'b', 'a', 'b', '', '']);
  same('order', ['', 'N', '-N'].map((sort) => table.ordered([...rows], sort, [{ name: 'Name' }, { name: 'N' }]).map((row) => row.name).join('')), ['ba', 'ab', 'ba']);
  same('palette', [palette.score('deployments', 'dep') > palette.score('endpointslices', 'dep'), palette.score('pods', 'x')], [true, 0]);
  const fails = (text) => { try { write.documents(text, ''); return ''; } catch (error) { return error.message; } };
  same('documents', [fails('kind: Pod'), fails('apiVersion: nowhere/v1\nkind: Nothing\nmetadata:\n  name: a')], ['Each document needs apiVersion, kind and metadata.name.', 'The server has no kind Nothing in nowhere/v1.']);
  return wrong;
})()
