//! Names with a domain in them: finalizers' owners, signers, gates, keys of other people's making.

use super::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name, regex};
use crate::status::FieldError;

/// A domain of at least three parts, without a dot at its end.
pub fn is_fully_qualified_name(path: &str, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let problems = is_dns1123_subdomain(name);
    if !problems.is_empty() {
        return vec![FieldError::invalid(path, name, problems.join(","))];
    }
    if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        return vec![FieldError::invalid(path, name, detail)];
    }
    Vec::new()
}

/// A domain of at least two parts, with or without a dot at its end.
pub fn is_fully_qualified_domain_name(path: &str, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = is_dns1123_subdomain(name);
    if !problems.is_empty() {
        return vec![FieldError::invalid(path, name, problems.join(","))];
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return vec![FieldError::invalid(path, name, detail)];
    }
    let wrong = |label: &str| {
        let problems = is_dns1123_label(label);
        (!problems.is_empty()).then(|| FieldError::invalid(path, label, problems.join(",")))
    };
    name.split('.').find_map(wrong).into_iter().collect()
}

/// A domain, a slash, and a path as HTTP has them: `acme.io/foo`.
pub fn is_domain_prefixed_path(path: &str, value: &str) -> Vec<FieldError> {
    const LEGAL: &[u8] = b"/-._~%!$&'()*+,;=:";
    if value.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let Some((host, rest)) = value.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        return vec![FieldError::invalid(path, value, "must be a domain-prefixed path (such as \"acme.io/foo\")")];
    };
    let problems = is_dns1123_subdomain(host).into_iter();
    let mut errors: Vec<FieldError> = problems.map(|problem| FieldError::invalid(path, host, problem)).collect();
    if !rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || LEGAL.contains(&byte)) {
        let detail = regex("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[]);
        errors.push(FieldError::invalid(path, rest, detail));
    }
    errors
}

/// The key of a label that has a domain: `acme.io/foo`.
pub fn is_domain_prefixed_key(path: &str, key: &str) -> Vec<FieldError> {
    if key.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let problems = is_qualified_name(key);
    if problems.is_empty() && !key.contains('/') {
        return vec![FieldError::invalid(path, key, "must be a domain-prefixed key (such as \"acme.io/foo\")")];
    }
    problems.into_iter().map(|problem| FieldError::invalid(path, key, problem)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, check: fn(&str, &str) -> Vec<FieldError>, good: &[&str], bad: &[&str]) {
        for value in good {
            assert_eq!(check("f", value), [], "{name}: {value:?}");
        }
        for value in bad {
            assert!(!check("f", value).is_empty(), "{name}: {value:?}");
        }
    }

    #[test]
    fn domains_are_accepted_and_refused() {
        check("name", is_fully_qualified_name, &["a.b.c"], &["", "a.b", "a.b.c.", "A.b.c"]);
        let long = format!("{}.io", "a".repeat(64));
        check("domain", is_fully_qualified_domain_name, &["a.b", "a.b."], &["", "a", "A.b", &long]);
        check(
            "path",
            is_domain_prefixed_path,
            &["a.io/b", "a.io/b/c%20"],
            &["", "a.io", "/b", "a.io/", "A.io/b", "a.io/b c"],
        );
        check("key", is_domain_prefixed_key, &["a.io/B_c"], &["", "b", "a.io/b/c", "A.io/b"]);
    }
}
