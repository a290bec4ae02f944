//! ConfigMaps, Secrets and ServiceAccounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::names;
use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use super::super::strategy::Strategy;
use super::common::{At, Errors};
use crate::rest::keep;

/// The most that all values together may hold.
const MOST: usize = 1024 * 1024;
const FIXED: &str = "field is immutable when `immutable` is set";

/// ConfigMaps.
pub struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let (data, binary) = (root.at("data"), root.at("binaryData"));
        let mut size = 0;
        for (key, entry) in data.entries() {
            check_key(key, &entry, &mut errors);
            if binary.key(key).is_set() {
                errors.invalid_value(&entry, key, "duplicate of key present in binaryData");
            }
            size += entry.text().len();
        }
        for (key, entry) in binary.entries() {
            check_key(key, &entry, &mut errors);
            size += bytes(entry.text());
        }
        if size > MOST {
            errors.push(FieldError::too_long("", MOST));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = stays_fixed(new, old, &["data", "binaryData"]);
        errors.extend(self.validate(new));
        errors
    }
}

fn check_key(key: &str, entry: &At<'_, '_>, errors: &mut Errors) {
    for problem in names::is_config_map_key(key) {
        errors.invalid_value(entry, key, problem);
    }
}

/// How many bytes a value holds.
fn bytes(encoded: &str) -> usize {
    encoded.len() / 4 * 3 - encoded.bytes().rev().take_while(|byte| *byte == b'=').count().min(2)
}

/// An object that says it is immutable stays so, and as it is.
fn stays_fixed(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if value::flag(old, "immutable") {
        if !value::flag(new, "immutable") {
            errors.push(FieldError::forbidden("immutable", FIXED));
        }
        let changed = fields.iter().filter(|field| new.get(**field) != old.get(**field));
        errors.extend(changed.map(|field| FieldError::forbidden(*field, FIXED)));
    }
    errors
}

/// Secrets.
pub struct Secrets;

impl Strategy for Secrets {
    fn fields(&self) -> &'static [Field] {
        const { &[Field::text("type")] }
    }

    /// What is written in plain text is kept as bytes, and owned as such.
    fn default(&self, secret: &mut Value) {
        value::set_default(secret, "type", "Opaque");
        merge_plain(secret);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        if value::text(new, "type").is_empty() {
            keep(new, old, "type");
        }
    }

    fn validate(&self, secret: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(secret);
        let data = root.at("data");
        let mut size = 0;
        for (key, entry) in data.entries() {
            check_key(key, &entry, &mut errors);
            size += bytes(entry.text());
        }
        if size > MOST {
            errors.too_long(&data, MOST);
        }
        validate_type(&root, &data, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (fresh, stale) = (At::root(new), At::root(old));
        errors.immutable(&fresh.at("type"), &stale.at("type"));
        errors.extend(stays_fixed(new, old, &["data"]));
        errors.extend(self.validate(new));
        errors.into_vec()
    }

    fn warnings(&self, secret: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if value::text(secret, "type") == "kubernetes.io/tls" {
            let entry = |key: &str| {
                value::at(secret, "data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default()
            };
            for key in ["tls.crt", "tls.key"] {
                if !entry(key).is_empty()
                    && !STANDARD.decode(entry(key)).is_ok_and(|pem| pem.starts_with(b"-----BEGIN "))
                {
                    warnings.push("tls: failed to find any PEM data in certificate input".to_owned());
                }
            }
        }
        warnings
    }
}

/// What secrets of a known type must have.
fn validate_type(secret: &At<'_, '_>, data: &At<'_, '_>, errors: &mut Errors) {
    const ACCOUNT: &str = "kubernetes.io/service-account.name";
    let required = |key: &str, errors: &mut Errors| {
        // Bytes that are null are none, and the entry is there all the same.
        if data.value().get(key).is_none() {
            errors.required(&data.key(key), "");
        }
    };
    match secret.text_at("type") {
        "kubernetes.io/service-account-token" => {
            let annotations = secret.at("metadata.annotations");
            errors.required_text(&annotations.key(ACCOUNT));
        }
        "kubernetes.io/dockercfg" => docker_config(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => docker_config(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !data.key("username").is_set() && !data.key("password").is_set() => {
            required("username", errors);
            required("password", errors);
        }
        "kubernetes.io/ssh-auth" => {
            errors.required_text(&data.key("ssh-privatekey"));
        }
        "kubernetes.io/tls" => {
            required("tls.crt", errors);
            required("tls.key", errors);
        }
        _ => {}
    }
}

fn docker_config(data: &At<'_, '_>, key: &str, errors: &mut Errors) {
    let entry = &data.key(key);
    if data.value().get(key).is_none() {
        return errors.required(entry, "");
    }
    let decoded = STANDARD.decode(entry.text()).unwrap_or_default();
    let why = match serde_json::from_slice::<Value>(&decoded) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(_) => "json: cannot unmarshal into Go value of type map[string]interface {}".to_owned(),
        Err(_) if decoded.is_empty() => "unexpected end of JSON input".to_owned(),
        Err(error) if error.is_eof() => "unexpected end of JSON input".to_owned(),
        Err(_) => {
            let shown = char::from(decoded[0]);
            format!("invalid character {shown:?} looking for beginning of value")
        }
    };
    errors.invalid_value(entry, "<secret contents redacted>", why);
}

fn merge_plain(secret: &mut Value) {
    let Some(plain) = value::remove(secret, "stringData") else { return };
    let data = value::object_mut(secret, "data");
    for (key, text) in plain.as_object().into_iter().flatten() {
        data.insert(key.clone(), json!(STANDARD.encode(text.as_str().unwrap_or_default())));
    }
}

/// ServiceAccounts.
pub struct ServiceAccounts;

impl Strategy for ServiceAccounts {
    fn prepare_for_create(&self, account: &mut Value) {
        name_secrets(account);
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        name_secrets(new);
    }

    fn warnings(&self, account: &Value, _old: Option<&Value>) -> Vec<String> {
        const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
        let annotated =
            value::at(account, "metadata.annotations").is_some_and(|annotations| annotations.get(MOUNTABLE).is_some());
        let warning = format!(
            "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        );
        annotated.then_some(warning).into_iter().collect()
    }
}

/// A secret of an account is in its namespace: nothing but its name counts.
fn name_secrets(account: &mut Value) {
    for secret in value::list_mut(account, "secrets") {
        if let Some(fields) = secret.as_object_mut() {
            fields.retain(|field, _| field == "name");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn secrets_have_what_their_type_needs() {
        assert_eq!(
            shown(Secrets.validate(&json!({"type": "kubernetes.io/tls"}))),
            ["data[tls.crt]: Required value", "data[tls.key]: Required value"]
        );
        assert_eq!(
            shown(Secrets.validate(&json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "e30="}}))),
            Vec::<String>::new()
        );
        assert_eq!(
            shown(Secrets.validate(&json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "eA=="}}))),
            [
                "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value"
            ]
        );
        assert_eq!(
            shown(Secrets.validate_update(&json!({"type": "a"}), &json!({"type": "b"}))),
            ["type: Invalid value: \"a\": field is immutable"]
        );
    }

    #[test]
    fn what_is_written_plainly_is_kept_as_bytes() {
        let mut secret = json!({"stringData": {"a": "b"}, "data": {"c": "ZA=="}});
        Secrets.default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}}));
        let mut account = json!({"secrets": [{"name": "s", "kind": "Secret", "namespace": "x"}]});
        ServiceAccounts.prepare_for_create(&mut account);
        assert_eq!(account, json!({"secrets": [{"name": "s"}]}));
    }

    #[test]
    fn what_is_immutable_stays() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        assert_eq!(
            shown(ConfigMaps.validate_update(&json!({"data": {"a": "2"}}), &old)),
            [
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ]
        );
        assert_eq!(
            shown(ConfigMaps.validate(&json!({"data": {"a": "1"}, "binaryData": {"a": ""}}))),
            ["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"]
        );
        assert!(
            shown(ConfigMaps.validate(&json!({"data": {"a/b": "1"}})))[0]
                .starts_with("data[a/b]: Invalid value: \"a/b\": a valid config key")
        );
    }
}
