//! PodCertificateRequests: certificates that pods ask for.

pub mod columns;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, names as rules};

use crate::certificates::pem::{OMITTED, blocks};
use crate::checks::conditions::conditions;
use crate::checks::rare_names::{is_kubernetes_signer, signer_name};
use crate::checks::{At, Errors, immutable_spec};
use crate::strategy::{Flags, Strategy};

const MOST_REQUEST: usize = 10 * 1024;
const MOST_CHAIN: usize = 100 * 1024;
const MOST_UID: usize = 128;
const LEAST_EXPIRATION: i64 = 60 * 60;
const MOST_EXPIRATION: i64 = 91 * 24 * 60 * 60;
const MOST_KUBERNETES_EXPIRATION: i64 = 24 * 60 * 60;
const TERMINAL: [&str; 3] = ["Issued", "Denied", "Failed"];

pub struct PodCertificateRequests;

impl Strategy for PodCertificateRequests {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, allows_unconditional_update: false, ..Flags::USUAL }
    }

    fn fields(&self) -> &'static [Field] {
        const { &[Field::text("spec.signerName"), Field::text("spec.podName"), Field::text("spec.nodeName")] }
    }

    fn default(&self, request: &mut Value) {
        machinery::value::set_default(request, "spec.maxExpirationSeconds", 86_400);
    }

    fn validate(&self, request: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        pod_certificate(&At::root(request).at("spec"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        immutable_spec(new, old)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        answer(&At::root(new), &At::root(old), &mut errors);
        errors.into_vec()
    }
}

fn pod_certificate(spec: &At<'_, '_>, errors: &mut Errors) {
    let signer = spec.at("signerName");
    signer_name(&signer, errors);
    for (name, uid) in [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")] {
        let (name, uid) = (spec.at(name), spec.at(uid));
        errors.problems(&name, rules::name_is_dns_subdomain(name.text(), false));
        if uid.text().is_empty() {
            errors.invalid_text(&uid, "must not be empty");
        }
        if uid.text().len() > MOST_UID {
            errors.too_long(&uid, MOST_UID);
        }
    }
    let expiration = spec.at("maxExpirationSeconds");
    let Some(seconds) = expiration.int() else { return errors.required(&expiration, "must be set") };
    let most = if is_kubernetes_signer(signer.text()) { MOST_KUBERNETES_EXPIRATION } else { MOST_EXPIRATION };
    if !(LEAST_EXPIRATION..=most).contains(&seconds) {
        errors.invalid(&expiration, format!("must be in the range [{LEAST_EXPIRATION}, {most}]"));
    }
    let stub = spec.at("stubPKCS10Request");
    if stub.text().is_empty() {
        let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
        return errors.invalid_value(spec, OMITTED, detail);
    }
    let bytes = STANDARD.decode(stub.text()).unwrap_or_default();
    if bytes.len() > MOST_REQUEST {
        errors.too_long(&stub, MOST_REQUEST);
    } else if pki::Request::from_der(&bytes).is_err() {
        errors.invalid_value(&stub, OMITTED, "must be a valid PKCS#10 CSR");
    }
}

/// A request is answered once, in one of three ways.
fn answer(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let (status, before) = (new.at("status"), old.at("status"));
    let list = status.at("conditions");
    for (index, condition) in list.items().enumerate() {
        let kind = condition.at("type");
        if !TERMINAL.contains(&kind.text()) {
            errors.not_supported(&kind, &TERMINAL);
            continue;
        }
        if list.items().take(index).any(|other| TERMINAL.contains(&other.text_at("type"))) {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid_text(&kind, detail);
        }
        errors.one_of(&condition.at("status"), &["True"]);
    }
    conditions(&list, errors);
    if !errors.is_empty() {
        return;
    }
    let answered = |status: &At<'_, '_>| {
        status.at("conditions").items().next().map(|condition| condition.text_at("type").to_owned())
    };
    if answered(&before).is_some() {
        let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
        return errors.immutable_because(&status, &before, detail);
    }
    match answered(&status).as_deref() {
        Some("Issued") => issued(&status, &new.at("spec"), errors),
        Some(_) => {
            if status.entries().any(|(field, value)| field != "conditions" && value.is_set()) {
                let detail =
                    "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
                errors.invalid(&status, detail);
            }
        }
        None => {
            let detail = "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"";
            errors.immutable_because(&status, &before, detail);
        }
    }
}

fn issued(status: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    let chain = status.at("certificateChain");
    if chain.text().len() > MOST_CHAIN {
        return errors.too_long(&chain, MOST_CHAIN);
    }
    let mut certificates = blocks(chain.text()).peekable();
    if certificates.peek().is_none() {
        return errors.invalid_text(&chain, "issued certificate chain must contain at least one certificate");
    }
    let mut leaf = None;
    for (index, block) in certificates.enumerate() {
        if block.label != "CERTIFICATE" {
            let detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
            return errors.invalid_text(&chain, detail);
        }
        match pki::Certificate::from_der(&block.bytes) {
            Ok(certificate) => {
                leaf.get_or_insert(certificate);
            }
            Err(_) => {
                let which = if index == 0 { "leaf" } else { "intermediate" };
                return errors.invalid_text(&chain, format!("{which} certificate does not parse as valid X.509"));
            }
        }
    }
    let Some(leaf) = leaf else { return };
    let stub = STANDARD.decode(spec.text_at("stubPKCS10Request")).unwrap_or_default();
    if !pki::Request::from_der(&stub).is_ok_and(|stub| stub.public_key == leaf.public_key) {
        return errors.invalid_text(&chain, "leaf certificate was not issued to the requested public key");
    }
    let before = errors.len();
    for (field, detail) in [
        ("notBefore", "must be present and consistent with the issued certificate"),
        ("notAfter", "must be present and consistent with the issued certificate"),
        ("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]"),
    ] {
        if !status.has(field) {
            errors.required(&status.at(field), detail);
        }
    }
    if errors.len() == before {
        validity(status, &leaf, spec.at("maxExpirationSeconds").int().unwrap_or(0), errors);
    }
}

/// The times say what the certificate says, and leave enough of it to renew it in.
fn validity(status: &At<'_, '_>, leaf: &pki::Certificate, most: i64, errors: &mut Errors) {
    let (from, until, refresh) = (status.at("notBefore"), status.at("notAfter"), status.at("beginRefreshAt"));
    let time = |at: &At<'_, '_>| at.text().parse::<Timestamp>().unwrap_or(Timestamp::UNIX_EPOCH).as_second();
    let (begins, ends) = (leaf.not_before.as_second(), leaf.not_after.as_second());
    if time(&from) != begins {
        return errors.invalid_text(&from, "must be set to the NotBefore time encoded in the leaf certificate");
    }
    if time(&until) != ends {
        return errors.invalid_text(&until, "must be set to the NotAfter time encoded in the leaf certificate");
    }
    let (chain, lifetime) = (status.at("certificateChain"), ends - begins);
    if lifetime < 3600 {
        return errors.invalid_value(&chain, lifetime, "leaf certificate lifetime must be >= 1 hour");
    }
    if lifetime > most {
        let detail = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})");
        return errors.invalid_value(&chain, lifetime, detail);
    }
    if time(&refresh) < begins + 600 {
        errors.invalid_text(&refresh, "must be at least 10 minutes after status.notBefore");
    } else if time(&refresh) > ends - 600 {
        errors.invalid_text(&refresh, "must be at least 10 minutes before status.notAfter");
    }
}
