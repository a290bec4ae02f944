//! Names that only a few kinds have: signers and the bundles of their roots.

use machinery::names;
use machinery::names::Problems;

use crate::checks::{At, Errors};

/// Three numbers, then what was before the release, then what was built.
pub fn is_semantic_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, early) = text.split_once('-').map_or((text, None), |(core, early)| (core, Some(early)));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    core.split('.').count() == 3
        && core.split('.').all(number)
        && early.is_none_or(|early| {
            early.split('.').all(|part| word(part) && (number(part) || !part.bytes().all(|byte| byte.is_ascii_digit())))
        })
        && build.is_none_or(|build| build.split('.').all(word))
}

/// Whether a signer belongs to Kubernetes itself.
pub fn is_kubernetes_signer(name: &str) -> bool {
    let host = name.split_once('/').map_or(name, |(host, _)| host);
    host == "kubernetes.io" || host.ends_with(".kubernetes.io")
}

/// The name of a signer: a domain and a path below it.
pub fn signer_name(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST_DOMAIN: usize = 253;
    const MOST: usize = MOST_DOMAIN + 1 + 253 + 63 + 1;
    if !errors.required_text(at) {
        return;
    }
    let mut segments = at.text().split('/');
    let (Some(domain), Some(path), None) = (segments.next(), segments.next(), segments.next()) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid_text(at, detail);
    };
    if domain.len() > MOST_DOMAIN {
        errors.too_long(at, MOST_DOMAIN);
    }
    first_wrong(at, domain, names::is_dns1123_label, errors);
    if !domain.contains('.') {
        errors.invalid_value(at, domain, "should be a domain with at least two segments separated by dots");
    }
    first_wrong(at, path, names::is_dns1123_subdomain, errors);
    if at.text().len() > MOST {
        errors.too_long(at, MOST);
    }
}

/// Only the first wrong label is spoken of: the others would get the same message.
fn first_wrong(at: &At<'_, '_>, segment: &str, check: fn(&str) -> Problems, errors: &mut Errors) {
    let wrong = segment.split('.').map(|label| (label, check(label))).find(|(_, problems)| !problems.is_empty());
    for (label, problem) in
        wrong.into_iter().flat_map(|(label, problems)| problems.into_iter().map(move |problem| (label, problem)))
    {
        errors.invalid_value(at, segment, format!("validating label {label:?}: {problem}"));
    }
}

/// The name of a ClusterTrustBundle, which begins with its signer, if it has one.
pub fn trust_bundle_name(signer: &str, name: &str) -> Problems {
    if signer.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        return names::name_is_dns_subdomain(name, false);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        None => vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")],
        Some(rest) => names::name_is_dns_subdomain(rest, false),
    }
}

/// A domain and a path below it: who takes care of something.
pub fn domain_prefixed_path(at: &At<'_, '_>, errors: &mut Errors) {
    if !errors.required_text(at) {
        return;
    }
    let Some((domain, path)) =
        at.text().split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        return errors.invalid(at, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    };
    for problem in names::is_dns1123_subdomain(domain) {
        errors.invalid_value(at, domain, problem);
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !path.bytes().all(legal) {
        errors.invalid_value(at, path, names::regex("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[]));
    }
}

/// Something else that is named by group, kind and name.
pub fn typed_reference(at: &At<'_, '_>, kind: &str, errors: &mut Errors) {
    for field in [kind, "name"] {
        let part = at.at(field);
        if errors.required_text(&part) {
            errors.problems(&part, names::is_path_segment_name(part.text()));
        }
    }
}

/// A domain name with at least two parts.
pub fn qualified_domain(at: &At<'_, '_>, errors: &mut Errors) {
    if !errors.required_text(at) {
        return;
    }
    let name = at.text().strip_suffix('.').unwrap_or(at.text());
    let problems = names::is_dns1123_subdomain(name);
    if !problems.is_empty() {
        return errors.invalid_value(at, name, problems.join(","));
    }
    if !name.contains('.') {
        return errors.invalid_value(at, name, "should be a domain with at least two segments separated by dots");
    }
    for label in name.split('.') {
        let problems = names::is_dns1123_label(label);
        if !problems.is_empty() {
            return errors.invalid_value(at, label, problems.join(","));
        }
    }
}
