//! Volumes that put several sources into one directory.

use std::collections::HashSet;

use machinery::{names, objectmeta, value};

use crate::checks::rare_names::{signer_name, trust_bundle_name};
use crate::checks::{At, Errors};
use crate::core::pod::volumes::{downward_file, file_mode, key_to_path, not_reserved};

pub fn projected(at: &At<'_, '_>, errors: &mut Errors) {
    file_mode(&at.at("defaultMode"), errors);
    errors.user_id_if_set(&at.at("defaultUser"));
    let mut paths: HashSet<&str> = HashSet::new();
    for source in at.at("sources").items() {
        let mut kinds = 0;
        for (kind, rules) in PROJECTIONS {
            if source.has(kind) {
                kinds += 1;
                rules(at, &source.at(kind), &mut paths, errors);
            }
        }
        if kinds > 1 {
            errors.forbidden(&source, "may not specify more than 1 volume type per source");
        }
    }
}

/// A kind of projection and its rules: the whole volume, the source, the paths taken so far.
type Projection = (&'static str, for<'v> fn(&At<'_, 'v>, &At<'_, 'v>, &mut HashSet<&'v str>, &mut Errors));

const PROJECTIONS: [Projection; 6] = [
    ("secret", project_items),
    ("configMap", project_items),
    ("downwardAPI", project_downward),
    ("serviceAccountToken", project_token),
    ("clusterTrustBundle", project_bundle),
    ("podCertificate", project_certificate),
];

/// Two files cannot have one path.
fn take<'v>(volume: &At<'_, 'v>, path: &'v str, shown: &str, paths: &mut HashSet<&'v str>, errors: &mut Errors) {
    if !paths.insert(path) {
        errors.invalid_value(volume, shown, "conflicting duplicate paths");
    }
}

fn project_items<'v>(volume: &At<'_, 'v>, at: &At<'_, 'v>, paths: &mut HashSet<&'v str>, errors: &mut Errors) {
    errors.required_text(&at.at("name"));
    for item in at.at("items").items() {
        key_to_path(&item, errors);
        if !item.text_at("path").is_empty() {
            take(volume, item.text_at("path"), at.text_at("name"), paths, errors);
        }
    }
}

fn project_downward<'v>(volume: &At<'_, 'v>, at: &At<'_, 'v>, paths: &mut HashSet<&'v str>, errors: &mut Errors) {
    for file in value::list(at.value(), "items") {
        downward_file(at, file, errors);
        let path = value::text(file, "path");
        if !path.is_empty() {
            take(volume, path, path, paths, errors);
        }
    }
}

fn project_token<'v>(volume: &At<'_, 'v>, at: &At<'_, 'v>, _: &mut HashSet<&'v str>, errors: &mut Errors) {
    let expiration = at.at("expirationSeconds");
    match expiration.int() {
        None => errors.required(&expiration, ""),
        Some(seconds) if seconds < 600 => {
            errors.invalid(&expiration, "may not specify a duration less than 10 minutes")
        }
        Some(seconds) if seconds > 1 << 32 => {
            errors.invalid(&expiration, "may not specify a duration larger than 2^32 seconds");
        }
        Some(_) => {}
    }
    let whole = volume.to_string();
    let path = At::part(&whole, at.value());
    if errors.required_text(&path.at("path")) {
        not_reserved(&path.at("path"), errors);
    }
    errors.user_id_if_set(&at.at("user"));
}

fn project_bundle<'v>(volume: &At<'_, 'v>, at: &At<'_, 'v>, paths: &mut HashSet<&'v str>, errors: &mut Errors) {
    match (at.has("name"), at.has("signerName")) {
        (true, true) => errors.invalid(at, "only one of name and signerName may be used"),
        (true, false) => {
            let name = at.at("name");
            if name.text().is_empty() {
                errors.required(&name, "must be a valid object name");
            }
            let signer = name.text().rsplit_once(':').map_or_else(String::new, |(signer, _)| signer.replace(':', "/"));
            for problem in trust_bundle_name(&signer, name.text()) {
                errors.invalid_text(&name, format!("not a valid clustertrustbundlename: {problem}"));
            }
            if at.has("labelSelector") {
                errors.invalid(&at.at("labelSelector"), "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if at.text_at("signerName").is_empty() {
                errors.required(&at.at("signerName"), "must be a valid signer name");
            }
            signer_name(&at.at("signerName"), errors);
            errors.label_selector(&at.at("labelSelector"));
        }
        (false, false) => errors.required(at, "either name or signerName must be specified"),
    }
    errors.required_text(&at.at("path"));
    errors.user_id_if_set(&at.at("user"));
    not_reserved(&at.at("path"), errors);
    take(volume, at.text_at("path"), at.text_at("path"), paths, errors);
}

fn project_certificate<'v>(volume: &At<'_, 'v>, at: &At<'_, 'v>, paths: &mut HashSet<&'v str>, errors: &mut Errors) {
    const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    signer_name(&at.at("signerName"), errors);
    user_annotations(&at.at("userAnnotations"), errors);
    errors.user_id_if_set(&at.at("user"));
    errors.one_of(&at.at("keyType"), &KEY_TYPES);
    let expiration = at.at("maxExpirationSeconds");
    if let Some(seconds) = expiration.int() {
        // A day for the signers of Kubernetes itself, 91 days for all others.
        let most =
            if crate::checks::rare_names::is_kubernetes_signer(at.text_at("signerName")) { 86_400 } else { 7_862_400 };
        if seconds < 3600 {
            errors.invalid(&expiration, "if provided, maxExpirationSeconds must be >= 3600");
        }
        if seconds > most {
            errors.invalid(&expiration, format!("if provided, maxExpirationSeconds must be <= {most}"));
        }
    }
    let mut any = false;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = at.at(field);
        if !path.text().is_empty() {
            any = true;
            not_reserved(&path, errors);
            take(volume, path.text(), path.text(), paths, errors);
        }
    }
    if !any {
        errors.required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}

/// What a pod tells its signer. Whether a key is in capitals does not matter.
fn user_annotations(at: &At<'_, '_>, errors: &mut Errors) {
    let path = at.to_string();
    for (key, _) in at.entries() {
        errors.extend(names::domain::is_domain_prefixed_key(&path, &key.to_lowercase()));
    }
    let size: usize = at.entries().map(|(key, entry)| key.len() + entry.text().len()).sum();
    if size > objectmeta::MAX_ANNOTATIONS {
        errors.too_long(at, objectmeta::MAX_ANNOTATIONS);
    }
}
