//! Secrets.

pub mod columns;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::core::data::{MOST, bytes, check_key, stays_fixed};
use crate::keep::keep;
use crate::strategy::Strategy;

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
