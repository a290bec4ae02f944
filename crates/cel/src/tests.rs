//! Expressions and what they come to: one table per library.

use std::sync::Arc;

use serde_json::json;

use super::*;

const LIMIT: u64 = 1_000_000;
/// What upstream's parser wants where something to compute with is missing.
const OPERAND: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

fn declarations() -> Declarations {
    let mut declarations = Declarations::default();
    declarations.builds_objects = true;
    declarations.add("object", Type::Dyn);
    declarations.add("oldObject", Type::Dyn);
    declarations.add("authorizer", Type::Named("kubernetes.authorization.Authorizer".into()));
    declarations.add("request", ObjectType::declare("kubernetes.AdmissionRequest", [("operation", Type::String)]));
    declarations
}

fn object() -> serde_json::Value {
    json!({
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "x", "tier": "front"}},
        "spec": {"replicas": 3, "ratio": 0.5, "containers": [{"name": "a", "image": "r/i:1"}, {"name": "b", "image": "r/j:2", "tty": true}]},
    })
}

/// What an expression comes to, as text; faults too.
fn run(source: &str) -> String {
    let program = match Program::compile(source, &declarations()) {
        Ok(program) => program,
        Err(problem) => return format!("does not compile: {}", problem.lines().next().unwrap_or_default()),
    };
    let (object, request) = (object(), json!({"operation": "CREATE"}));
    let mut scope = Scope::new(LIMIT);
    scope.add("object", &object);
    scope.add("oldObject", Value::Null);
    scope.add("request", &request);
    scope.add("authorizer", Value::authorizer());
    match program.evaluate(&scope) {
        Ok(value) => functions::strings::show(&value),
        Err(fault) => format!("fails: {fault}"),
    }
}

fn check(cases: &[(&str, &str)]) {
    for (source, expect) in cases {
        assert_eq!(run(source), *expect, "{source}");
    }
}

#[test]
fn operators_and_literals() {
    check(&[
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("-5 / 2", "-2"),
        ("7 % 3", "1"),
        ("7u + 1u", "8"),
        ("0x1f", "31"),
        ("1.5e3", "1500"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9223372036854775807 + 1", "fails: integer overflow"),
        ("1 / 0", "fails: division by zero"),
        ("'a' + \"b\"", "ab"),
        (r"r'\d' + '\u00e9\n'", "\\dé\n"),
        ("'''a'b'''", "a'b"),
        ("b'abc' == bytes('abc')", "true"),
        ("!true || false", "false"),
        ("true ? 'y' : 'n'", "y"),
        ("1 < 2 && 2.0 >= 2", "true"),
        (
            "1 == 1.0 && 1u == 1",
            "does not compile: ERROR: <input>:1:3: found no matching overload for '_==_' applied to '(int, double)'",
        ),
        ("dyn(1) == 1.0 && dyn(1u) == 1", "true"),
        ("[1, 2] + [3] == [1, 2, 3]", "true"),
        ("{'a': 1, 'b': 2}['b']", "2"),
        ("{'a': 1}.b", "fails: no such key: b"),
        ("[1][3]", "fails: index out of bounds: 3"),
        ("2 in [1, 2]", "true"),
        ("'app' in object.metadata.labels", "true"),
        ("type(1) == int && type('a') == string && type([]) == list", "true"),
        ("int('5') + int(2.9)", "7"),
        ("int('x')", "fails: type conversion error from 'string' to 'int'"),
        ("duration(string(1))", "fails: type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("timestamp(string(1))", "fails: type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        ("string(1.0) + string(true)", "1true"),
        ("// a comment\n1", "1"),
    ]);
}

#[test]
fn objects_are_looked_into() {
    check(&[
        ("object.spec.replicas <= 5", "true"),
        ("object.metadata.namespace", "default"),
        ("object.spec.missing == 1", "fails: no such key: missing"),
        ("has(object.spec.missing)", "false"),
        ("has(object.spec.replicas) && has(object.metadata.labels.app)", "true"),
        ("oldObject == null", "true"),
        ("object.spec.missing == 1 || true", "true"),
        ("false && object.spec.missing == 1", "false"),
        ("object.spec.?missing.orValue(7)", "7"),
        ("object.?spec.?replicas.orValue(7)", "3"),
        ("object.metadata.labels[?'none'].hasValue()", "false"),
        ("object.spec.?replicas.optMap(r, r * 2).orValue(0)", "6"),
        ("[1, ?optional.none(), 3].size()", "2"),
        ("{?'a': optional.of(1), ?'b': optional.none()}.size()", "1"),
        ("Object{spec: Object.spec{replicas: 2}}", "{spec: {replicas: 2}}"),
        ("request.operation == 'CREATE'", "true"),
    ]);
}

#[test]
fn comprehensions() {
    check(&[
        ("object.spec.containers.all(c, c.image.startsWith('r/'))", "true"),
        ("object.spec.containers.exists(c, c.name == 'b')", "true"),
        ("object.spec.containers.exists_one(c, has(c.tty))", "true"),
        ("object.spec.containers.map(c, c.name)", "[a, b]"),
        ("object.spec.containers.map(c, has(c.tty), c.name)", "[b]"),
        ("object.spec.containers.filter(c, !has(c.tty)).size()", "1"),
        ("object.metadata.labels.all(k, k.size() > 2)", "true"),
        ("object.spec.containers.exists(c, c.tty)", "true"),
        ("object.spec.containers.all(c, c.tty)", "fails: no such key: tty"),
        ("[1, 2, 3].all(i, v, v == i + 1)", "true"),
        ("['x', 'y'].transformList(i, v, v + string(i))", "[x0, y1]"),
        ("{'a': 1}.transformMap(k, v, v + 1)", "{a: 2}"),
        ("['k'].transformMapEntry(i, v, {v: i})", "{k: 0}"),
        ("[optional.of(1), optional.none()].unwrapOpt()", "[1]"),
        ("optional.unwrap([optional.of('a'), optional.none()])", "[a]"),
        ("[3, 1, 2].sort()", "[1, 2, 3]"),
        ("object.spec.containers.sortBy(c, c.image).map(c, c.name)", "[a, b]"),
    ]);
}

#[test]
fn texts_and_lists() {
    check(&[
        ("'a,b,c'.split(',')", "[a, b, c]"),
        ("'a,b,c'.split(',', 2)", "[a, b,c]"),
        ("['a', 'b'].join('-')", "a-b"),
        ("'hello'.substring(1, 3)", "el"),
        ("'héllo'.indexOf('l')", "2"),
        ("'hello'.lastIndexOf('l')", "3"),
        ("'hello'.charAt(9)", "fails: index out of range: 9"),
        ("'Hello'.lowerAscii() + ' x '.trim()", "hellox"),
        ("'aXbX'.replace('X', '-', 1)", "a-bX"),
        ("'abc 123'.find('[0-9]+')", "123"),
        ("'1 2 3'.findAll('[0-9]', 2)", "[1, 2]"),
        ("'abc'.matches('^[a-c]+$')", "true"),
        ("'abc'.matches('(' + '')", "fails: error parsing regexp: missing closing ): `(`"),
        ("'%s has %d: %.2f %x'.format(['x', 3, 1.5, 255])", "x has 3: 1.50 ff"),
        ("strings.quote('a\"b')", "\"a\\\"b\""),
        ("[1, 2, 3].sum() == 6 && [2, 1].max() == 2 && [2, 1].min() == 1", "true"),
        ("[1, 2].isSorted() && ![2, 1].isSorted()", "true"),
        ("['a', 'b', 'a'].lastIndexOf('a')", "2"),
        ("sets.contains([1, 2], [2]) && sets.equivalent([1], [1, 1]) && !sets.intersects([1], [2])", "true"),
        ("[[[1]], [[2], [3]]].flatten()", "[[1], [2], [3]]"),
        ("[[[1]], [[2], [3]]].flatten(2)", "[1, 2, 3]"),
        ("[1, 2, 3, 4].slice(1, 3)", "[2, 3]"),
        ("[1, 1, 2].distinct()", "[1, 2]"),
        ("lists.range(3)", "[0, 1, 2]"),
        ("[].first().hasValue()", "false"),
    ]);
}

#[test]
fn time_and_libraries_of_kubernetes() {
    check(&[
        ("duration('1h30m').getMinutes()", "90"),
        ("timestamp('2024-02-03T04:05:06Z').getMonth()", "1"),
        ("timestamp('2024-02-03T04:05:06Z') + duration('1s') > timestamp('2024-02-03T04:05:06Z')", "true"),
        ("string(duration('1.5s'))", "1.5s"),
        ("quantity('1Gi').isGreaterThan(quantity('1Mi')) && isQuantity('5m') && !isQuantity('x')", "true"),
        ("quantity('1').add(quantity('500m')).compareTo(quantity('1.5'))", "0"),
        ("quantity('2k').asInteger()", "2000"),
        ("quantity('1') == quantity('1000m')", "true"),
        ("isIP('::1') && !isIP('1.2.3') && ip('10.0.0.1').family() == 4", "true"),
        ("ip.isCanonical('127.0.0.1') && ip('127.0.0.1').isLoopback()", "true"),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", "true"),
        ("cidr('10.1.2.3/8').masked().prefixLength()", "8"),
        ("url('https://user@example.com:80/a%20b?x=1&x=2').getHost()", "example.com:80"),
        ("url('https://[::1]:80/').getHostname() + url('https://h/').getPort()", "::1"),
        ("url('https://h/p?x=1&x=2').getQuery()", "{x: [1, 2]}"),
        ("isURL('no url')", "false"),
        ("isURL('http://#%blah$#@')", "false"),
        ("isURL('http://a%zz/')", "false"),
        ("isURL('http://user:word@host/a')", "true"),
        ("semver('1.2.3').isLessThan(semver('1.10.0')) && !isSemver('1.2') && isSemver('v1.2', true)", "true"),
        ("semver('1.0.0-rc.1').compareTo(semver('1.0.0'))", "-1"),
        ("!format.dns1123Label().validate('my-name').hasValue()", "true"),
        ("format.named('uuid').value().validate('x').hasValue()", "true"),
        ("jsonpatch.escapeKey('k8s.io/my~label')", "k8s.io~1my~0label"),
    ]);
}

#[test]
fn what_makes_no_sense_does_not_compile() {
    let problem = |source: &str| Program::compile(source, &declarations()).expect_err(source);
    assert_eq!(
        problem("object.a == nothing"),
        "ERROR: <input>:1:13: undeclared reference to 'nothing' (in container '')\n | object.a == nothing\n | ............^"
    );
    check(&[
        ("nothing(1)", "does not compile: ERROR: <input>:1:8: undeclared reference to 'nothing' (in container '')"),
        ("request.nothing", "does not compile: ERROR: <input>:1:8: undefined field 'nothing'"),
        (
            "1 + 'a'",
            "does not compile: ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (
            "1 +",
            &format!(
                "does not compile: ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {OPERAND}"
            ),
        ),
        (
            "",
            &format!(
                "does not compile: ERROR: <input>:1:1: Syntax error: mismatched input '<EOF>' expecting {OPERAND}"
            ),
        ),
        ("(1 + 2", "does not compile: ERROR: <input>:1:7: Syntax error: missing ')' at '<EOF>'"),
        ("true true", "does not compile: ERROR: <input>:1:6: Syntax error: extraneous input 'true' expecting <EOF>"),
        ("has(1)", "does not compile: ERROR: <input>:1:5: invalid argument to has() macro"),
        ("true && 1", "does not compile: ERROR: <input>:1:9: expected type 'bool' but found 'int'"),
        ("'a'.matches('[')", "does not compile: ERROR: <input>:1:13: invalid matches argument"),
        (
            "1.matches('[')",
            "does not compile: ERROR: <input>:1:10: found no matching overload for 'matches' applied to 'int.(string)'",
        ),
        ("timestamp('x') == null", "does not compile: ERROR: <input>:1:11: invalid timestamp argument"),
        ("duration('x') == null", "does not compile: ERROR: <input>:1:10: invalid duration argument"),
        (
            "size(1, 2)",
            "does not compile: ERROR: <input>:1:5: found no matching overload for 'size' applied to '(int, int)'",
        ),
        ("'a", "does not compile: ERROR: <input>:1:1: Syntax error: token recognition error at: ''a'"),
        (
            "1.all(x, true)",
            "does not compile: ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("'a'.nothing()", "does not compile: ERROR: <input>:1:12: undeclared reference to 'nothing' (in container '')"),
    ]);
    let compiled = |source: &str| Program::compile(source, &declarations()).expect(source);
    assert!(compiled("object.x == 1").may_be(&Type::Bool) && !compiled("1").may_be(&Type::Bool));
    assert!(!compiled("object.x").may_be(&Type::Bool), "upstream does not take it for a truth either");
}

#[test]
fn nesting_and_cost_are_bounded() {
    for bomb in ["(".repeat(5_000), "[".repeat(5_000), "!".repeat(90_000), "a.".repeat(40_000), "-".repeat(90_000)] {
        assert!(Program::compile(&bomb, &declarations()).is_err());
    }
    let chain = vec!["1"; 20_000].join("+");
    assert!(Program::compile(&chain, &declarations()).expect_err("too deep").contains("recursion limit"));
    let deep = format!("{}1{}", "[".repeat(240), "]".repeat(240));
    assert!(!run(&deep).starts_with("does not compile"));
    let too_long = " ".repeat(100_001);
    assert!(Program::compile(&too_long, &declarations()).expect_err("too long").contains("exceeds limit"));
    let list = "[0,1,2,3,4,5,6,7,8,9]";
    let slow =
        format!("{list}.all(a, {list}.all(b, {list}.all(c, {list}.all(d, {list}.all(e, {list}.all(f, true))))))");
    check(&[
        (&slow, "fails: operation cancelled: actual cost limit exceeded"),
        ("lists.range(100000000).size()", "fails: operation cancelled: actual cost limit exceeded"),
        ("authorizer.path('/a').check('get').allowed() || true", "fails: an authorization check is pending"),
    ]);
}

#[test]
fn composed_variables_are_computed_when_used_and_once() {
    let mut declarations = declarations();
    let compile = |source: &str, declarations: &Declarations| Program::compile(source, declarations);
    let mut composed = Vec::new();
    for (name, source) in
        [("replicas", "object.spec.replicas"), ("twice", "variables.replicas * 2"), ("broken", "object.none")]
    {
        composed.push(Composed { name: name.to_owned(), program: compile(source, &declarations) });
        // Each sees those before it.
        declarations.add("variables", Type::map(Type::String, Type::Dyn));
    }
    let program = compile("variables.twice == 6 && has(variables.broken)", &declarations).expect("compiles");
    let broken = compile("variables.broken == 1", &declarations).expect("compiles");
    let object = object();
    let mut scope = Scope::new(LIMIT);
    scope.add("object", &object);
    scope.compose(&composed);
    assert!(matches!(program.evaluate(&scope), Ok(Value::Bool(true))));
    let fault = broken.evaluate(&scope).expect_err("fails").to_string();
    assert_eq!(fault, "composited variable \"broken\" fails to evaluate: no such key: none");
    assert!(scope.take_cost() > 0 && scope.take_cost() == 0);
}

#[test]
fn questions_are_asked_and_answered() {
    let source = "authorizer.group('apps').resource('deployments').namespace('n').check('create').allowed() && \
                  !authorizer.serviceAccount('n', 'sa').path('/healthz').check('get').allowed()";
    let program = Program::compile(source, &declarations()).expect("compiles");
    let mut scope = Scope::new(LIMIT);
    scope.add("authorizer", Value::authorizer());
    let mut asked = Vec::new();
    let outcome = loop {
        match program.evaluate(&scope) {
            Err(Fault::Pending(question)) => {
                scope.take_cost();
                let allowed = question.subject == Subject::Requester;
                asked.push(question.verb.clone());
                scope.decide(*question, Decision { allowed, ..Decision::default() });
            }
            outcome => break outcome,
        }
    };
    assert!(matches!(outcome, Ok(Value::Bool(true))), "{outcome:?}");
    assert_eq!(asked, ["create", "get"]);
}

#[test]
fn names_are_bound_where_they_may_be() {
    let mut declarations = Declarations::default();
    let bound = "cel.bind(x, [1, 2], x.size() + x[0])";
    assert!(Program::compile(bound, &declarations).is_err());
    declarations.binds = true;
    let program = Program::compile(bound, &declarations).expect("compiles");
    let value = program.evaluate(&Scope::new(LIMIT)).expect("computes");
    assert!(matches!(value.kind(), Kind::Int), "{value:?}");
    let error = Program::compile("cel.bind(1, 2, 3)", &declarations).expect_err("refused");
    assert!(error.contains("cel.bind() variable names must be simple identifiers"), "{error}");
}

#[test]
fn costs_are_estimated_as_upstream_does() {
    let mut declarations = Declarations::default();
    declarations.binds = true;
    declarations.add("list", Type::list(Type::String));
    declarations.add("text", Type::String);
    let sizes = |path: &[Arc<str>]| match path.iter().map(|part| &**part).collect::<Vec<_>>().as_slice() {
        ["list"] => Some(100),
        ["list", "@items"] | ["text"] => Some(50),
        _ => None,
    };
    for (expression, cost) in [
        ("true", 0),
        ("text == 'abc'", 2),
        // An ident, the condition (2), and `accumulator && x == text` for each of a hundred; then the result.
        ("list.all(x, x == text)", 1 + 1 + 100 * (2 + 1 + 1 + 1 + 5)),
        ("list.exists(x, x.startsWith('a'))", 1 + 1 + 100 * (3 + 1 + 1 + 1)),
        ("text.matches('abcd')", 1 + 6),
        ("cel.bind(t, text, t == t)", 10 + 1 + 1 + 1 + 5),
        ("list.map(x, x + x)", 1 + 10 + 1 + 100 * (12 + 2 + 10)),
        ("[text, 'b'].filter(x, x != 'a').size()", 1 + (10 + 1) + 10 + 1 + 2 * (13 + 2)),
    ] {
        let program = Program::compile(expression, &declarations).expect(expression);
        assert_eq!(program.estimate(&declarations, &sizes), cost, "{expression}");
    }
    declarations.add("any", Type::map(Type::String, Type::Any));
    let error = Program::compile("any.x.exists(y, true)", &declarations).expect_err("refused");
    assert!(error.contains("expression of type 'any' cannot be range of a comprehension"), "{error}");
    assert_eq!(Program::compile("any.x", &declarations).expect("compiles").output(), &Type::Any);
    // What nobody knows the size of may cost anything.
    declarations.add("unknown", Type::Dyn);
    let program = Program::compile("unknown.exists(x, true)", &declarations).expect("compiles");
    assert_eq!(program.estimate(&declarations, &sizes), u64::MAX);
}
