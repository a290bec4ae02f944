//! The `jwt` part of an `AuthenticationConfiguration`: issuers, what is wrong with them, and their expressions compiled.

use std::sync::Arc;

use cel::{Declarations, Program, Type};
use machinery::names::domain::is_domain_prefixed_path;
use machinery::status::FieldError;
use machinery::{Value, value};

use super::claims::{Claims, Mapped, Rule, claims_declarations, user_declarations};
use super::jwt::strings;
use super::oidc::Settings;
use crate::outbound::Trust;

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
mod tests;
