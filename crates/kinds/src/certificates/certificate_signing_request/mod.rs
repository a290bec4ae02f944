//! CertificateSigningRequests: their spec is what was asked for, by whom, and never changes.

pub mod columns;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::object::Field;
use machinery::rest::User;
use machinery::status::FieldError;
use machinery::{Value, value};
use serde_json::json;

use crate::checks::rare_names::signer_name;
use crate::checks::{At, Errors};
use crate::keep::keep;
use crate::strategy::{NameRule, Strategy, Subresource};

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

pub struct SigningRequests;

impl Strategy for SigningRequests {
    fn subresource(&self, name: &str) -> Option<Subresource> {
        matches!(name, "approval" | "status").then_some(Subresource::Part)
    }

    fn resets(&self, subresource: &str, _has_status: bool) -> &'static [&'static str] {
        match subresource {
            "" => &["spec", "status"],
            "status" => &["spec", "status.conditions"],
            "approval" => &["spec", "status.certificate"],
            _ => &[],
        }
    }

    fn fields(&self) -> &'static [Field] {
        const { &[Field::text("spec.signerName")] }
    }

    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn prepare_for_create(&self, request: &mut Value) {
        value::set(request, "status", json!({}));
    }

    /// Whatever the request says of its maker is replaced: approvers and signers rely on it.
    fn record_creator(&self, request: &mut Value, creator: &User) {
        let own = [
            ("spec.username", json!(creator.name), creator.name.is_empty()),
            ("spec.uid", json!(creator.uid), creator.uid.is_empty()),
            ("spec.groups", json!(creator.groups), creator.groups.is_empty()),
            ("spec.extra", json!(creator.extra), creator.extra.is_empty()),
        ];
        for (path, new, empty) in own {
            if empty {
                value::remove(request, path);
            } else {
                value::set(request, path, new);
            }
        }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
        keep(new, old, "status");
    }

    /// The signer may not touch what the approver said. Where it adds or removes such conditions, validation refuses that.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        for kind in ["Approved", "Denied"] {
            let is_kind = |condition: &Value| value::text(condition, "type") == kind;
            let before: Vec<&Value> = value::list(old, "status.conditions").iter().filter(|one| is_kind(one)).collect();
            let now = value::list_mut(new, "status.conditions").iter_mut().filter(|one| is_kind(one));
            let now: Vec<&mut Value> = now.collect();
            if now.len() == before.len() {
                now.into_iter().zip(before).for_each(|(now, before)| now.clone_from(before));
            }
        }
    }

    /// The approver may not touch what the signer said.
    fn prepare_for_subresource_update(&self, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
        let conditions = value::at(new, "status.conditions").cloned();
        keep(new, old, "status");
        match conditions {
            Some(conditions) => value::set(new, "status.conditions", conditions),
            None => {
                value::remove(new, "status.conditions");
            }
        }
    }

    fn validate(&self, request: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate(&At::root(request), None, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        update(new, old, false, false)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        update(new, old, false, true)
    }

    fn validate_subresource_update(&self, _subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        update(new, old, true, false)
    }
}

fn validate(request: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let spec = request.at("spec");
    let wanted = spec.at("request");
    let decoded = STANDARD.decode(wanted.text()).unwrap_or_default();
    let pem = String::from_utf8_lossy(&decoded);
    if !pem.contains("-----BEGIN CERTIFICATE REQUEST-----") && !pem.contains("-----BEGIN NEW CERTIFICATE REQUEST-----")
    {
        errors.invalid_text(&wanted, "PEM block type must be CERTIFICATE REQUEST");
    }
    let usages = spec.at("usages");
    if usages.is_empty() {
        errors.required(&usages, "");
    }
    for usage in usages.items() {
        errors.one_of(&usage, &USAGES);
    }
    for (index, usage) in usages.items().enumerate() {
        if usages.items().take(index).any(|known| known.value() == usage.value()) {
            errors.duplicate(&usage, usage.text());
        }
    }
    let signer = spec.at("signerName");
    let legacy = old.is_some_and(|old| old.at("spec.signerName").text() == LEGACY_SIGNER);
    if signer.text() == LEGACY_SIGNER && !legacy {
        errors.invalid(&signer, "the legacy signerName is not allowed via this API version");
    } else {
        signer_name(&signer, errors);
    }
    let expiration = spec.at("expirationSeconds");
    if expiration.int().is_some_and(|seconds| seconds < 600) {
        errors.invalid(&expiration, "may not specify a duration less than 600 seconds (10 minutes)");
    }
    conditions(&request.at("status.conditions"), errors);
}

pub fn conditions(list: &At<'_, '_>, errors: &mut Errors) {
    let mut seen: HashSet<&str> = HashSet::new();
    for condition in list.items() {
        let (kind, status) = (condition.at("type"), condition.at("status"));
        errors.required_text(&kind);
        let fixed = matches!(kind.text(), "Approved" | "Denied" | "Failed");
        let allowed: &[&str] = if fixed { &["True"] } else { &["False", "True", "Unknown"] };
        errors.required_one_of(&status, allowed);
        if seen.contains(&kind.text()) {
            errors.duplicate(&kind, kind.text());
        }
        seen.insert(kind.text());
    }
    if seen.contains(&"Approved") && seen.contains(&"Denied") {
        const BOTH: [&str; 2] = [r#"conditions[{"type": "Approved"}]"#, r#"conditions[{"type": "Denied"}]"#];
        let shown = format!("{{{}}}", BOTH.join(", "));
        let why = format!("must specify at most one of: `{}`, `{}`", BOTH[0], BOTH[1]);
        errors.invalid_value(list, shown, why);
    }
}

/// What is wrong with a signed certificate; the text may have nothing else in it.
pub fn certificate_problem(encoded: &str) -> Option<String> {
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut blocks = 0;
    for block in text.split("-----BEGIN ").skip(1) {
        let (kind, rest) = block.split_once("-----").unwrap_or((block, ""));
        if kind != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {kind:?}"));
        }
        if rest.lines().take_while(|line| !line.starts_with("-----END")).any(|line| line.contains(':')) {
            return Some("no PEM block headers are permitted".to_owned());
        }
        if let Err(error) = pki::Certificate::from_pem(&format!("-----BEGIN {block}")) {
            return Some(format!("x509: {error}"));
        }
        blocks += 1;
    }
    (blocks == 0).then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

fn update(new: &Value, old: &Value, approves: bool, signs: bool) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (fresh, stale) = (At::root(new), At::root(old));
    validate(&fresh, Some(&stale), &mut errors);
    let (certificate, before) = (fresh.at("status.certificate"), stale.at("status.certificate"));
    if certificate.value() != before.value()
        && !certificate.text().is_empty()
        && let Some(why) = certificate_problem(certificate.text())
    {
        errors.invalid_value(&certificate, "<certificate data>", why);
    }
    let of_kind = |request: &Value, kind: &str| -> Vec<Value> {
        value::list(request, "status.conditions")
            .iter()
            .filter(|condition| value::text(condition, "type") == kind)
            .cloned()
            .collect()
    };
    let list = fresh.at("status.conditions");
    for kind in ["Approved", "Denied", "Failed"] {
        if of_kind(new, kind).len() < of_kind(old, kind).len() {
            errors.forbidden(&list, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for kind in ["Approved", "Denied"] {
        let (now, then) = (of_kind(new, kind), of_kind(old, kind));
        if approves || now.len() < then.len() {
            continue;
        }
        if now.len() > then.len() {
            errors.forbidden(&list, format!("updates may not add a condition of type {kind:?}"));
        } else if now != then {
            errors.forbidden(&list, format!("updates may not modify a condition of type {kind:?}\n"));
        }
    }
    if certificate.value() != before.value() {
        if !signs {
            errors.forbidden(&certificate, "updates may not set certificate content");
        } else if !before.text().is_empty() {
            errors.forbidden(&certificate, "updates may not modify existing certificate content");
        }
    }
    errors.into_vec()
}
