//! How a webhook is reached: by URL or through a Service. Definitions of custom resources say it in the same words.

use std::collections::HashSet;

use machinery::names;

use crate::checks::{At, Errors};

/// The versions of the reviews that a webhook understands.
pub fn review_versions(list: &At<'_, '_>, needed: &str, errors: &mut Errors) {
    if list.is_empty() {
        return errors.required(list, needed);
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for version in list.items() {
        if seen.contains(&version.text()) {
            errors.invalid(&version, "duplicate version");
            continue;
        }
        seen.insert(version.text());
        errors.problems(&version, names::is_dns1035_label(version.text()));
    }
    if !seen.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        errors.invalid(list, "must include at least one of v1, v1beta1");
    }
}

/// How a webhook is reached: by a URL or by a service.
pub fn client_config(at: &At<'_, '_>, errors: &mut Errors) {
    let (url, service) = (at.at("url"), at.at("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => webhook_url(&url, errors),
        (false, true) => webhook_service(&service, errors),
        _ => errors.required(at, "exactly one of url or service is required"),
    }
}

fn webhook_url(at: &At<'_, '_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = at.text().split_once("://").unwrap_or(("", at.text()));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(user, host)| (user, host));
    if scheme != "https" {
        errors.invalid_value(at, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        errors.invalid_value(at, host, format!("host must be specified{FORM}"));
    }
    for (part, detail) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            errors.invalid_value(at, part, detail);
        }
    }
}

/// Upstream takes the name for the namespace and the namespace for the name; so do its errors.
fn webhook_service(at: &At<'_, '_>, errors: &mut Errors) {
    if at.text_at("namespace").is_empty() {
        errors.required(&at.at("name"), "");
    }
    if at.text_at("name").is_empty() {
        errors.required(&at.at("namespace"), "");
    }
    let port = at.at("port");
    let problems = names::is_valid_port_num(port.int().unwrap_or(443));
    if !problems.is_empty() {
        errors.invalid_int(&port, format!("port is not valid: {}", problems.join(", ")));
    }
    let path = at.at("path");
    match path.text() {
        "" | "/" => {}
        "//" => errors.invalid(&path, "segment[0] may not be empty"),
        text => {
            if !text.starts_with('/') {
                errors.invalid(&path, "must start with a '/'");
            }
            let rest = text.get(1..).unwrap_or_default();
            for (index, step) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
                if step.is_empty() {
                    errors.invalid(&path, format!("segment[{index}] may not be empty"));
                    continue;
                }
                for problem in names::is_dns1123_subdomain(step) {
                    errors.invalid(&path, format!("segment[{index}]: {problem}"));
                }
            }
        }
    }
}
