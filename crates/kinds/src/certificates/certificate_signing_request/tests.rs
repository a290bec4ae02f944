//! What upstream says about CertificateSigningRequests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::Value;
use machinery::rest::User;
use serde_json::json;

use crate::certificates::certificate_signing_request::{SigningRequests, certificate_problem, conditions};
use crate::checks::{At, Errors};
use crate::strategy::Strategy;

#[test]
fn a_certificate_is_pem_and_nothing_else() {
    let check = |text: &str, expect: Option<&str>| {
        assert_eq!(certificate_problem(&STANDARD.encode(text)).as_deref(), expect, "{text}");
    };
    let key = pki::PrivateKey::generate().expect("a key");
    let now = jiff::Timestamp::UNIX_EPOCH;
    let authority = pki::Authority::new("ca", key, now, std::time::Duration::from_secs(60)).expect("an authority");
    let pem = authority.certificate().to_pem();
    check(&pem, None);
    check(&format!("{pem}{pem}"), None);
    check("foo", Some("must contain at least one CERTIFICATE PEM block"));
    check(
        "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
        Some("only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\""),
    );
    check(
        &pem.replace("CERTIFICATE-----\nM", "CERTIFICATE-----\na: b\n\nM"),
        Some("no PEM block headers are permitted"),
    );
}

#[test]
fn a_signer_leaves_what_the_approver_said_where_it_is() {
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason});
    let status = |conditions: Value| json!({"status": {"conditions": conditions}});
    let old = status(json!([condition("Approved", "ok"), condition("Other", "a")]));
    let mut new = status(json!([condition("Other", "b"), condition("Approved", "changed"), condition("Last", "c")]));
    SigningRequests.prepare_for_status_update(&mut new, &old);
    let kept = status(json!([condition("Other", "b"), condition("Approved", "ok"), condition("Last", "c")]));
    assert_eq!(new, kept);
    let mut removed = status(json!([condition("Other", "a")]));
    SigningRequests.prepare_for_status_update(&mut removed, &old);
    assert_eq!(removed, status(json!([condition("Other", "a")])));
}

#[test]
fn nobody_approves_and_denies() {
    let request = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}, {"type": "", "status": ""}]}});
    let mut errors = Errors::new();
    conditions(&At::root(&request).at("status.conditions"), &mut errors);
    let told: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "status.conditions[2].type: Required value",
            "status.conditions[2].status: Required value",
            r#"status.conditions: Invalid value: "{conditions[{\"type\": \"Approved\"}], conditions[{\"type\": \"Denied\"}]}": must specify at most one of: `conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`"#,
        ]
    );
}

#[test]
fn a_request_says_who_made_it_whatever_its_maker_says() {
    let mut request = json!({"spec": {"username": "system:node:n1", "uid": "forged", "groups": ["system:masters"]}});
    SigningRequests.record_creator(&mut request, &User::new("jane", ["developers"]));
    let wanted = json!({"spec": {"username": "jane", "groups": ["developers", "system:authenticated"]}});
    assert_eq!(request, wanted);
}
