//! The `jwt` part of an `AuthenticationConfiguration`: issuers, what is wrong with them, and their expressions compiled.

use std::sync::Arc;

use cel::{Declarations, Program, Type};
use machinery::names::domain::is_domain_prefixed_path;
use machinery::status::FieldError;
use machinery::{Value, value};

use super::claims::{Claims, Mapped, Rule, claims_declarations, user_declarations};
use super::jwt::strings;
use super::oidc::Settings;
use crate::gates::outbound::Trust;

/// The most issuers.
const MAX_ISSUERS: usize = 64;

/// Reads them. The issuers of our own tokens are nobody else's.
pub fn read(tree: &Value, own: &[String]) -> Result<Vec<Settings>, Vec<FieldError>> {
    let entries = value::list(tree, "jwt");
    if entries.len() > MAX_ISSUERS {
        return Err(vec![FieldError::too_many("jwt", entries.len(), MAX_ISSUERS)]);
    }
    let mut reader = Reader::default();
    let mut issuers: Vec<Settings> = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let at = format!("jwt[{index}]");
        let settings = reader.issuer(entry, &at, own);
        if issuers.iter().any(|known| known.issuer == settings.issuer) {
            reader.errors.push(FieldError::duplicate(format!("{at}.issuer.url"), settings.issuer.as_str()));
        }
        if let Some(discovery) = &settings.discovery
            && issuers.iter().any(|known| known.discovery.as_ref() == Some(discovery))
        {
            reader.errors.push(FieldError::duplicate(format!("{at}.issuer.discoveryURL"), discovery.as_str()));
        }
        issuers.push(settings);
    }
    if reader.errors.is_empty() { Ok(issuers) } else { Err(reader.errors) }
}

#[derive(Default)]
struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    fn invalid(&mut self, path: String, value: &str, detail: impl Into<String>) {
        self.errors.push(FieldError::invalid(path, value, detail));
    }

    fn required(&mut self, path: String, detail: &str) {
        self.errors.push(FieldError::required(path, detail));
    }

    fn issuer(&mut self, tree: &Value, at: &str, own: &[String]) -> Settings {
        let text = |path: &str| value::text(tree, path).to_owned();
        let optional = |path: &str| Some(text(path)).filter(|text| !text.is_empty());
        let (issuer, discovery) = (text("issuer.url"), optional("issuer.discoveryURL"));
        match issuer.as_str() {
            "" => self.required(format!("{at}.issuer.url"), ""),
            url => self.address(url, &format!("{at}.issuer.url"), own),
        }
        if let Some(discovery) = &discovery {
            let path = format!("{at}.issuer.discoveryURL");
            if !issuer.is_empty() && issuer.trim_end_matches('/') == discovery.trim_end_matches('/') {
                self.invalid(path.clone(), discovery, "discoveryURL must be different from URL");
            }
            self.address(discovery, &path, &[]);
        }
        let audiences = strings(&tree["issuer"]["audiences"]);
        self.audiences(&audiences, value::text(tree, "issuer.audienceMatchPolicy"), &format!("{at}.issuer"));
        let authority = optional("issuer.certificateAuthority");
        if let Err(error) = (Trust { roots: authority.clone(), certificate: None }).tls() {
            self.invalid(format!("{at}.issuer.certificateAuthority"), "<omitted>", error.to_string());
        }
        let egress = value::text(tree, "issuer.egressSelectorType");
        if !egress.is_empty() {
            let why = "egress selector is not supported: there is one way out";
            self.invalid(format!("{at}.issuer.egressSelectorType"), egress, why);
        }
        let claims = self.claims(tree, at);
        Settings { issuer, discovery, authority, audiences, claims, algorithms: Vec::new() }
    }

    fn address(&mut self, url: &str, path: &str, own: &[String]) {
        let mut wrong = |detail: &str| self.errors.push(FieldError::invalid(path, url, detail));
        if own.iter().any(|issuer| issuer == url) {
            let mut sorted = own.to_vec();
            sorted.sort();
            wrong(&format!("URL must not overlap with disallowed issuers: [{}]", sorted.join(" ")));
        }
        let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
        let authority = rest.split('/').next().unwrap_or_default();
        if scheme != "https" {
            wrong("URL scheme must be https");
        }
        for (given, what) in [
            (authority.contains('@'), "username or password"),
            (!query.is_empty(), "query"),
            (!fragment.is_empty(), "fragment"),
        ] {
            if given {
                wrong(&format!("URL must not contain a {what}"));
            }
        }
    }

    fn audiences(&mut self, audiences: &[String], policy: &str, at: &str) {
        let path = format!("{at}.audiences");
        if audiences.is_empty() {
            self.required(path.clone(), &format!("at least one {path} is required"));
            return;
        }
        for (index, audience) in audiences.iter().enumerate() {
            if audience.is_empty() {
                self.required(format!("{path}[{index}]"), "");
            }
            if audiences[..index].contains(audience) {
                self.errors.push(FieldError::duplicate(format!("{path}[{index}]"), audience.as_str()));
            }
        }
        let at = format!("{at}.audienceMatchPolicy");
        match (audiences.len(), policy) {
            (_, "MatchAny") | (1, "") => {}
            (1, _) => self.invalid(at, policy, "audienceMatchPolicy must be empty or MatchAny for single audience"),
            _ => self.invalid(at, policy, "audienceMatchPolicy must be MatchAny for multiple audiences"),
        }
    }

    fn claims(&mut self, tree: &Value, at: &str) -> Claims {
        let declarations = claims_declarations();
        let mut claims = Claims::default();
        self.validation_rules(tree, at, &declarations, &mut claims);
        let mappings = format!("{at}.claimMappings");
        let mapping = &tree["claimMappings"];
        claims.username = self.mapped(&mapping["username"], &format!("{mappings}.username"), &declarations, true);
        claims.groups = self.mapped(&mapping["groups"], &format!("{mappings}.groups"), &declarations, false);
        claims.uid = self.uid(&mapping["uid"], &format!("{mappings}.uid"), &declarations);
        self.extra(mapping, &mappings, &declarations, &mut claims);
        self.email(mapping, &mappings, &claims);
        for (index, rule) in value::list(tree, "userValidationRules").iter().enumerate() {
            let path = format!("{at}.userValidationRules[{index}].expression");
            let program = self.rule(rule, path, &user_declarations(), &claims.user_rules);
            claims.user_rules.extend(program);
        }
        claims
    }

    fn validation_rules(&mut self, tree: &Value, at: &str, declarations: &Declarations, claims: &mut Claims) {
        for (index, rule) in value::list(tree, "claimValidationRules").iter().enumerate() {
            let path = format!("{at}.claimValidationRules[{index}]");
            let text = |key: &str| value::text(rule, key);
            match (text("claim"), text("expression")) {
                ("", "") => self.required(path, "claim or expression is required"),
                (claim, "") => {
                    if !text("message").is_empty() {
                        self.invalid(
                            format!("{path}.message"),
                            text("message"),
                            "may not be specified when claim is set",
                        );
                    }
                    if claims.required.iter().any(|(known, _)| known == claim) {
                        self.errors.push(FieldError::duplicate(format!("{path}.claim"), claim));
                    }
                    claims.required.push((claim.to_owned(), text("requiredValue").to_owned()));
                }
                ("", _) => {
                    let given = text("requiredValue");
                    if !given.is_empty() {
                        let why = "may not be specified when expression is set";
                        self.invalid(format!("{path}.requiredValue"), given, why);
                    }
                    let program = self.rule(rule, format!("{path}.expression"), declarations, &claims.rules);
                    claims.rules.extend(program);
                }
                (claim, _) => self.invalid(path, claim, "claim and expression can't both be set"),
            }
        }
    }

    /// A rule that is not there already.
    fn rule(&mut self, tree: &Value, path: String, declarations: &Declarations, known: &[Rule]) -> Option<Rule> {
        let expression = value::text(tree, "expression");
        if expression.is_empty() {
            self.required(path, "");
            return None;
        }
        if known.iter().any(|rule| rule.program.source() == expression) {
            self.errors.push(FieldError::duplicate(path, expression));
            return None;
        }
        let program = self.compile(expression, path, declarations, Some(&Type::Bool))?;
        Some(Rule { program, message: value::text(tree, "message").to_owned() })
    }

    fn mapped(&mut self, tree: &Value, path: &str, declarations: &Declarations, needed: bool) -> Mapped {
        let (claim, expression) = (value::text(tree, "claim"), value::text(tree, "expression"));
        let prefix = tree.get("prefix").and_then(Value::as_str);
        match (claim, expression) {
            ("", "") => {
                if needed {
                    self.required(path.to_owned(), "claim or expression is required");
                }
                Mapped::Nothing
            }
            ("", _) => {
                if let Some(prefix) = prefix {
                    self.invalid(format!("{path}.prefix"), prefix, "may not be specified when expression is set");
                }
                self.expression(expression, format!("{path}.expression"), declarations)
            }
            (_, "") => {
                if prefix.is_none() {
                    let why =
                        "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                    self.required(format!("{path}.prefix"), why);
                }
                Mapped::Claim { claim: claim.to_owned(), prefix: prefix.unwrap_or_default().to_owned() }
            }
            _ => {
                self.invalid(path.to_owned(), "", "claim and expression can't both be set");
                Mapped::Nothing
            }
        }
    }

    fn uid(&mut self, tree: &Value, path: &str, declarations: &Declarations) -> Mapped {
        match (value::text(tree, "claim"), value::text(tree, "expression")) {
            ("", "") => Mapped::Nothing,
            ("", expression) => self.expression(expression, format!("{path}.expression"), declarations),
            (claim, "") => Mapped::Claim { claim: claim.to_owned(), prefix: String::new() },
            _ => {
                self.invalid(path.to_owned(), "", "claim and expression can't both be set");
                Mapped::Nothing
            }
        }
    }

    fn expression(&mut self, source: &str, path: String, declarations: &Declarations) -> Mapped {
        self.compile(source, path, declarations, None).map_or(Mapped::Nothing, Mapped::Expression)
    }

    fn extra(&mut self, mapping: &Value, at: &str, declarations: &Declarations, claims: &mut Claims) {
        let mut seen: Vec<&str> = Vec::new();
        for (index, entry) in value::list(mapping, "extra").iter().enumerate() {
            let path = format!("{at}.extra[{index}]");
            let key_path = format!("{path}.key");
            let (key, expression) = (value::text(entry, "key"), value::text(entry, "valueExpression"));
            self.errors.extend(is_domain_prefixed_path(&key_path, key));
            if key.to_lowercase() != key {
                self.invalid(key_path.clone(), key, "must be lowercase");
            }
            let domain = key.split_once('/').map_or("", |(domain, _)| domain);
            let reserved = ["kubernetes.io", "k8s.io"];
            if reserved
                .iter()
                .any(|own| domain.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
            {
                let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
                self.invalid(key_path.clone(), key, why);
            }
            if seen.contains(&key) {
                self.errors.push(FieldError::duplicate(key_path, key));
                continue;
            }
            seen.push(key);
            if expression.is_empty() {
                self.required(format!("{path}.valueExpression"), "");
                continue;
            }
            let program = self.compile(expression, format!("{path}.valueExpression"), declarations, None);
            claims.extra.extend(program.map(|program| (key.to_owned(), program)));
        }
    }

    /// A name out of an address that nobody has verified is anybody's.
    fn email(&mut self, mapping: &Value, at: &str, claims: &Claims) {
        let Mapped::Expression(username) = &claims.username else { return };
        if !username.selects("claims", "email") {
            return;
        }
        let rules = claims.rules.iter().map(|rule| &rule.program);
        let mut all = rules.chain(claims.extra.iter().map(|(_, program)| program)).chain([username]);
        if !all.any(|program| program.selects("claims", "email_verified")) {
            self.invalid(
                format!("{at}.username.expression"),
                value::text(mapping, "username.expression"),
                "claims.email_verified must be used in claimMappings.username.expression or \
                 claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used \
                 in claimMappings.username.expression",
            );
        }
    }

    fn compile(
        &mut self,
        source: &str,
        path: String,
        declarations: &Declarations,
        wanted: Option<&Type>,
    ) -> Option<Arc<Program>> {
        match Program::compile(source, declarations) {
            Err(why) => self.invalid(path, source, format!("compilation failed: {why}")),
            Ok(program) => match wanted {
                Some(ty) if !program.may_be(ty) => self.invalid(path, source, format!("must evaluate to {ty}")),
                _ => return Some(Arc::new(program)),
            },
        }
        None
    }
}

#[cfg(test)]
mod tests {
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
            (
                "claimValidationRules",
                json!([{"expression": "claims.exp - claims.iat <= 86400", "message": "too long"}]),
            ),
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
}
