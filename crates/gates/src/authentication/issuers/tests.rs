use super::*;
use serde_json::json;

/// An issuer with changes, each at a dotted path.
fn issuer(changes: &[(&str, Value)]) -> Value {
    let mut jwt = json!({
        "issuer": {"url": "https://issuer.example", "audiences": ["us"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    });
    for (path, change) in changes {
        value::set(&mut jwt, path, change.clone());
    }
    jwt
}

fn refused(changes: &[(&str, Value)], expect: &[&str]) {
    let errors = read(&json!({"jwt": [issuer(changes)]}), &["https://own".to_owned()]).expect_err("refused");
    let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(shown, expect);
}

#[test]
fn issuers_are_checked_as_upstream_checks_them() {
    refused(
        &[("issuer", json!({"audiences": ["a", "", "a"]}))],
        &[
            "jwt[0].issuer.url: Required value",
            "jwt[0].issuer.audiences[1]: Required value",
            "jwt[0].issuer.audiences[2]: Duplicate value: \"a\"",
            "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
        ],
    );
    refused(
        &[("issuer.url", json!("http://u@x?q=1#f")), ("issuer.discoveryURL", json!("http://u@x?q=1#f"))],
        &[
            "jwt[0].issuer.url: Invalid value: \"http://u@x?q=1#f\": URL scheme must be https",
            "jwt[0].issuer.url: Invalid value: \"http://u@x?q=1#f\": URL must not contain a username or password",
            "jwt[0].issuer.url: Invalid value: \"http://u@x?q=1#f\": URL must not contain a query",
            "jwt[0].issuer.url: Invalid value: \"http://u@x?q=1#f\": URL must not contain a fragment",
            "jwt[0].issuer.discoveryURL: Invalid value: \"http://u@x?q=1#f\": discoveryURL must be different from URL",
            "jwt[0].issuer.discoveryURL: Invalid value: \"http://u@x?q=1#f\": URL scheme must be https",
            "jwt[0].issuer.discoveryURL: Invalid value: \"http://u@x?q=1#f\": URL must not contain a username or password",
            "jwt[0].issuer.discoveryURL: Invalid value: \"http://u@x?q=1#f\": URL must not contain a query",
            "jwt[0].issuer.discoveryURL: Invalid value: \"http://u@x?q=1#f\": URL must not contain a fragment",
        ],
    );
    refused(
        &[("issuer.url", json!("https://own"))],
        &[
            "jwt[0].issuer.url: Invalid value: \"https://own\": URL must not overlap with disallowed issuers: [https://own]",
        ],
    );
    refused(
        &[("issuer.audiences", json!([]))],
        &["jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"],
    );
    let twice = read(&json!({"jwt": [issuer(&[]), issuer(&[])]}), &[]).expect_err("refused");
    assert_eq!(twice[0].to_string(), "jwt[1].issuer.url: Duplicate value: \"https://issuer.example\"");
    let many: Vec<Value> = (0..65).map(|_| issuer(&[])).collect();
    let many = read(&json!({"jwt": many}), &[]).expect_err("refused");
    assert_eq!(many[0].to_string(), "jwt: Too many: 65: must have at most 64 items");
}

#[test]
fn mappings_and_rules_are_checked_as_upstream_checks_them() {
    let prefix = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
    refused(
        &[("claimMappings.username", json!({"claim": "sub"})), ("claimMappings.groups", json!({"claim": "g"}))],
        &[
            &format!("jwt[0].claimMappings.username.prefix: Required value: {prefix}"),
            &format!("jwt[0].claimMappings.groups.prefix: Required value: {prefix}"),
        ],
    );
    refused(
        &[
            ("claimMappings.username", json!({"claim": "sub", "expression": "claims.sub"})),
            ("claimMappings.groups", json!({"expression": "claims.groups", "prefix": "x"})),
            ("claimMappings.uid", json!({"claim": "a", "expression": "b"})),
            (
                "claimMappings.extra",
                json!([{"key": "Upper.example/x", "valueExpression": "''"}, {"key": "a.k8s.io/x"}, {"key": "x"},
                    {"key": "ok.example/a", "valueExpression": "claims."}]),
            ),
            (
                "claimValidationRules",
                json!([{}, {"claim": "a", "expression": "b"}, {"claim": "hd", "message": "m"}, {"claim": "hd"},
                        {"expression": "claims.x", "requiredValue": "y"}, {"expression": "user.name == ''"}]),
            ),
            (
                "userValidationRules",
                json!([{}, {"expression": "true"}, {"expression": "true"}, {"expression": "user.nam == ''"}]),
            ),
        ],
        &[
            "jwt[0].claimValidationRules[0]: Required value: claim or expression is required",
            "jwt[0].claimValidationRules[1]: Invalid value: \"a\": claim and expression can't both be set",
            "jwt[0].claimValidationRules[2].message: Invalid value: \"m\": may not be specified when claim is set",
            "jwt[0].claimValidationRules[3].claim: Duplicate value: \"hd\"",
            "jwt[0].claimValidationRules[4].requiredValue: Invalid value: \"y\": may not be specified when expression is set",
            "jwt[0].claimValidationRules[4].expression: Invalid value: \"claims.x\": must evaluate to bool",
            "jwt[0].claimValidationRules[5].expression: Invalid value: \"user.name == ''\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'user' (in container '')\n | user.name == ''\n | ^",
            "jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both be set",
            "jwt[0].claimMappings.groups.prefix: Invalid value: \"x\": may not be specified when expression is set",
            "jwt[0].claimMappings.uid: Invalid value: \"\": claim and expression can't both be set",
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"Upper.example\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "jwt[0].claimMappings.extra[0].key: Invalid value: \"Upper.example/x\": must be lowercase",
            "jwt[0].claimMappings.extra[1].key: Invalid value: \"a.k8s.io/x\": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
            "jwt[0].claimMappings.extra[1].valueExpression: Required value",
            "jwt[0].claimMappings.extra[2].key: Invalid value: \"x\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            "jwt[0].claimMappings.extra[2].valueExpression: Required value",
            "jwt[0].claimMappings.extra[3].valueExpression: Invalid value: \"claims.\": compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'\n | claims.\n | .......^",
            "jwt[0].userValidationRules[0].expression: Required value",
            "jwt[0].userValidationRules[2].expression: Duplicate value: \"true\"",
            "jwt[0].userValidationRules[3].expression: Invalid value: \"user.nam == ''\": compilation failed: ERROR: <input>:1:5: undefined field 'nam'\n | user.nam == ''\n | ....^",
        ],
    );
}

#[test]
fn an_address_that_nobody_verified_names_nobody() {
    let email = ("claimMappings.username", json!({"expression": "claims.email"}));
    let why = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression \
                   or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
    let expect = format!("jwt[0].claimMappings.username.expression: Invalid value: \"claims.email\": {why}");
    refused(std::slice::from_ref(&email), &[&expect]);
    let verified = json!([{"expression": "claims.?email_verified.orValue(true) == true"}]);
    assert!(read(&json!({"jwt": [issuer(&[email, ("claimValidationRules", verified)])]}), &[]).is_ok());
}

fn user(changes: &[(&str, Value)], claims: &Value) -> Result<machinery::rest::User, String> {
    let issuers = read(&json!({"jwt": [issuer(changes)]}), &[]).expect("settings");
    issuers[0].claims.user(claims)
}

#[test]
fn expressions_describe_the_user() {
    let changes = [
        ("claimMappings.username", json!({"expression": "'oidc:' + claims.sub"})),
        ("claimMappings.groups", json!({"expression": "claims.roles.split(',') + ['', 'all']"})),
        ("claimMappings.uid", json!({"expression": "string(int(claims.number))"})),
        (
            "claimMappings.extra",
            json!([{"key": "acme.example/team", "valueExpression": "claims.kubernetes__dot__io.team"},
                    {"key": "acme.example/none", "valueExpression": "claims.?none.orValue('')"}]),
        ),
        ("claimValidationRules", json!([{"expression": "claims.exp - claims.iat <= 86400", "message": "too long"}])),
        (
            "userValidationRules",
            json!([{"expression": "!user.username.startsWith('system:')", "message": "reserved"},
                    {"expression": "user.groups == ['a', 'b', 'all']"},
                    {"expression": "user.extra.acme__dot__example__slash__team == ['red']"}]),
        ),
    ];
    let claims = json!({"sub": "jane", "roles": "a,b", "number": 7, "exp": 200, "iat": 100, "jti": "j",
            "kubernetes.io": {"team": "red"}});
    let jane = user(&changes, &claims).expect("a user");
    assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("oidc:jane", "7"));
    assert_eq!(jane.groups, ["a", "b", "all", "system:authenticated"]);
    assert_eq!(
        json!(jane.extra),
        json!({"acme.example/team": ["red"], "authentication.kubernetes.io/credential-id": ["JTI=j"]})
    );
    let with = |key: &str, change: Value| {
        let mut claims = claims.clone();
        claims[key] = change;
        user(&changes, &claims).expect_err("refused")
    };
    assert_eq!(
        with("exp", json!(1_000_000)),
        "oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.iat <= 86400' failed: too long"
    );
    assert_eq!(
        with("roles", json!("x")),
        "oidc: error evaluating user info validation rule: validation expression 'user.groups == ['a', 'b', 'all']' failed: "
    );
    assert_eq!(
        with("sub", json!(5)),
        "oidc: error evaluating username claim expression: expression ''oidc:' + claims.sub' resulted in error: no such overload"
    );
}

#[test]
fn expressions_of_other_types_are_refused_when_they_are_computed() {
    let check = |path: &str, mapping: Value, expect: &str| {
        assert_eq!(user(&[(path, mapping)], &json!({"sub": "jane", "n": 1})).expect_err("refused"), expect);
    };
    let username = |source: &str| json!({"expression": source});
    check(
        "claimMappings.username",
        username("claims.n"),
        "oidc: error evaluating username claim expression: username claim expression must return a string",
    );
    check("claimMappings.username", username("''"), "oidc: empty username via CEL expression is not allowed");
    check(
        "claimMappings.groups",
        username("[claims.n]"),
        "oidc: error evaluating group claim expression: expression must return a string or a list of strings",
    );
    check(
        "claimMappings.uid",
        username("claims.n"),
        "oidc: error evaluating uid claim expression: uid claim expression must return a string",
    );
    check(
        "claimMappings.username",
        username("[0,1,2,3,4,5,6,7,8,9].map(a, [0,1,2,3,4,5,6,7,8,9].map(b, lists.range(100000).sum()))"),
        "oidc: error evaluating username claim expression: expression '[0,1,2,3,4,5,6,7,8,9].map(a, \
             [0,1,2,3,4,5,6,7,8,9].map(b, lists.range(100000).sum()))' resulted in error: operation cancelled: \
             actual cost limit exceeded",
    );
}
