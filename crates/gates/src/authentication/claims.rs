//! What the claims of a token make of its bearer: claims that must hold, and the user that they describe, by name or by
//! expression. Pure: whoever calls has checked the signature.

use std::sync::Arc;

use cel::{Declarations, ObjectType, Program, Scope, Type, Value as Computed};
use machinery::Value;
use machinery::patch::json_type;
use machinery::rest::User;
use serde_json::json;

/// Where a part of the user comes from.
#[derive(Debug, Clone, Default)]
pub enum Mapped {
    #[default]
    Nothing,
    Claim {
        claim: String,
        /// What its value begins with, so that it is nobody else's.
        prefix: String,
    },
    /// An expression over all claims.
    Expression(Arc<Program>),
}

/// An expression that must hold.
#[derive(Debug, Clone)]
pub struct Rule {
    pub program: Arc<Program>,
    /// What is said when it does not.
    pub message: String,
}

#[derive(Debug, Clone, Default)]
pub struct Claims {
    /// Claims that must have a value.
    pub required: Vec<(String, String)>,
    /// What must hold of the claims.
    pub rules: Vec<Rule>,
    pub username: Mapped,
    pub groups: Mapped,
    pub uid: Mapped,
    /// More about the user, by key.
    pub extra: Vec<(String, Arc<Program>)>,
    /// What must hold of the user.
    pub user_rules: Vec<Rule>,
}

/// What expressions over claims may use.
pub fn claims_declarations() -> Declarations {
    let mut declarations = Declarations::default();
    declarations.escaped_fields = true;
    declarations.add("claims", Type::map(Type::String, Type::Dyn));
    declarations
}

/// What expressions over the user may use.
pub fn user_declarations() -> Declarations {
    let strings = || Type::list(Type::String);
    let fields = [
        ("username", Type::String),
        ("uid", Type::String),
        ("groups", strings()),
        ("extra", Type::map(Type::String, strings())),
    ];
    let mut declarations = Declarations::default();
    declarations.escaped_fields = true;
    declarations.add("user", ObjectType::declare("kubernetes.UserInfo", fields));
    declarations
}

impl Claims {
    /// The user whom these claims describe.
    pub fn user(&self, claims: &Value) -> Result<User, String> {
        let numbers = doubles(claims);
        let mut scope = Scope::new(cel::PER_CALL_LIMIT);
        scope.add("claims", &numbers);
        let name = self.name(claims, &scope)?;
        let groups = self.groups(claims, &scope)?;
        let uid = self.uid(claims, &scope)?;
        let mut user = User { uid, ..User::new(name, groups.iter().map(String::as_str)) };
        if let Some(id) = claims["jti"].as_str() {
            user.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, program) in &self.extra {
            let strings = strings(evaluate(program, &scope)?)
                .map_err(|why| format!("oidc: error evaluating extra claim expression: {}: {why}", program.source()))?;
            if !strings.is_empty() {
                user.extra.insert(key.clone(), strings);
            }
        }
        for (claim, wanted) in &self.required {
            let value =
                claims.get(claim).ok_or_else(|| format!("oidc: required claim {claim} not present in ID token"))?;
            match value.as_str() {
                Some(text) if text == wanted => {}
                Some(text) => {
                    let why = format!("value does not match. Got = {text}, want = {wanted}");
                    return Err(format!("oidc: required claim {claim} {why}"));
                }
                None => return Err(format!("oidc: parse claim {claim}: {}", not_a_string(value))),
            }
        }
        hold(&self.rules, &scope)
            .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))?;
        if !self.user_rules.is_empty() {
            // The group of everybody who is authenticated comes after: it is not the issuer's to give.
            let seen = json!({"username": user.name, "uid": user.uid, "groups": groups, "extra": user.extra});
            let mut scope = Scope::new(cel::PER_CALL_LIMIT);
            scope.add("user", &seen);
            hold(&self.user_rules, &scope)
                .map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))?;
        }
        Ok(user)
    }

    fn name<'a>(&'a self, claims: &Value, scope: &Scope<'a>) -> Result<String, String> {
        match &self.username {
            Mapped::Nothing => Err("oidc: no username claim is configured".to_owned()),
            Mapped::Expression(program) => {
                let failed = |why: &str| format!("oidc: error evaluating username claim expression: {why}");
                match evaluate(program, scope).map_err(|why| failed(&why))? {
                    Computed::String(name) if name.is_empty() => {
                        Err("oidc: empty username via CEL expression is not allowed".to_owned())
                    }
                    Computed::String(name) => Ok(name.into_owned()),
                    _ => Err(failed("username claim expression must return a string")),
                }
            }
            Mapped::Claim { claim, prefix } => {
                let failed = |why: &str| format!("oidc: parse username claims {claim:?}: {why}");
                let value = claims.get(claim).ok_or_else(|| failed("claim not present"))?;
                let name = value.as_str().ok_or_else(|| failed(&not_a_string(value)))?;
                // A name that is only a prefix is nobody's.
                if name.is_empty() {
                    return Err(failed("claim not present"));
                }
                if claim == "email" {
                    match claims.get("email_verified") {
                        None | Some(Value::Bool(true)) => {}
                        Some(Value::Bool(false)) => return Err("oidc: email not verified".to_owned()),
                        Some(other) => {
                            let why = format!("json: cannot unmarshal {} into Go value of type bool", json_type(other));
                            return Err(format!("oidc: parse 'email_verified' claim: {why}"));
                        }
                    }
                }
                Ok(format!("{prefix}{name}"))
            }
        }
    }

    fn groups<'a>(&'a self, claims: &Value, scope: &Scope<'a>) -> Result<Vec<String>, String> {
        match &self.groups {
            Mapped::Nothing => Ok(Vec::new()),
            Mapped::Expression(program) => evaluate(program, scope)
                .and_then(strings)
                .map_err(|why| format!("oidc: error evaluating group claim expression: {why}")),
            Mapped::Claim { claim, prefix } => {
                let failed = |why: &Value| format!("oidc: parse groups claim {claim:?}: {}", not_a_string(why));
                let one =
                    |group: &Value| group.as_str().map(|group| format!("{prefix}{group}")).ok_or_else(|| failed(group));
                match claims.get(claim) {
                    None | Some(Value::Null) => Ok(Vec::new()),
                    Some(Value::Array(groups)) => groups.iter().map(one).collect(),
                    // Some issuers have only one, such as a role.
                    Some(group) => Ok(vec![one(group)?]),
                }
            }
        }
    }

    fn uid<'a>(&'a self, claims: &Value, scope: &Scope<'a>) -> Result<String, String> {
        match &self.uid {
            Mapped::Nothing => Ok(String::new()),
            Mapped::Expression(program) => {
                let failed = |why: &str| format!("oidc: error evaluating uid claim expression: {why}");
                match evaluate(program, scope).map_err(|why| failed(&why))? {
                    Computed::String(uid) => Ok(uid.into_owned()),
                    _ => Err(failed("uid claim expression must return a string")),
                }
            }
            Mapped::Claim { claim, .. } => {
                let failed = |why: &str| format!("oidc: parse uid claim {claim:?}: {why}");
                let value = claims.get(claim).ok_or_else(|| failed("claim not present"))?;
                value.as_str().map(str::to_owned).ok_or_else(|| failed(&not_a_string(value)))
            }
        }
    }
}

/// Numbers of a token are doubles to expressions, whether they have a fraction or not.
fn doubles(claims: &Value) -> Value {
    match claims {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.iter().map(doubles).collect(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), doubles(field))).collect(),
        other => other.clone(),
    }
}

fn evaluate<'a>(program: &'a Program, scope: &Scope<'a>) -> Result<Computed<'a>, String> {
    scope.take_cost();
    let failed = |why| format!("expression '{}' resulted in error: {why}", program.source());
    program.evaluate(scope).map_err(failed)
}

/// Whether all rules hold.
fn hold<'a>(rules: &'a [Rule], scope: &Scope<'a>) -> Result<(), String> {
    for rule in rules {
        match evaluate(&rule.program, scope)? {
            Computed::Bool(true) => {}
            Computed::Bool(false) => {
                return Err(format!("validation expression '{}' failed: {}", rule.program.source(), rule.message));
            }
            _ => return Err("validation expression must return a boolean".to_owned()),
        }
    }
    Ok(())
}

/// Texts of a computed value: one, or several; empty ones are none.
fn strings(value: Computed<'_>) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let mut texts = match &value {
        Computed::Null => Vec::new(),
        Computed::String(text) => vec![text.to_string()],
        Computed::List(list) => {
            list.items().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect::<Result<_, _>>()?
        }
        _ => return Err(wrong()),
    };
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

fn not_a_string(value: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type string", json_type(value))
}
