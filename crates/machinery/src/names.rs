//! What a well-formed name is. Every check answers with upstream's words for what is wrong, and with nothing when all is well.
//!
//! Upstream checks with regular expressions and prints them in its messages. Here the expressions are only text of the
//! messages; the checks are written out, because they run over every label of every object that is written.

pub mod domain;
pub mod ip;

/// What is wrong with a value, in upstream's words; empty when it is well formed.
pub type Problems = Vec<String>;

/// A check of the name of an object. The second argument tells that it is a `generateName`, to which a suffix is added.
pub type NameFn = fn(&str, bool) -> Problems;

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_UNDERSCORE_FMT: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE_FMT: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const LABEL_WORDS: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN_WORDS: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const QUALIFIED_WORDS: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The letters and digits of generated names: no vowels, so no words, and nothing that is taken for something else.
pub const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Five of them, for the end of a name. `pick` chooses a number below the one it is given.
pub fn suffix(mut pick: impl FnMut(usize) -> usize) -> String {
    (0..5).map(|_| SAFE[pick(SAFE.len())] as char).collect()
}

/// A label of DNS: the names of namespaces and containers.
pub fn is_dns1123_label(value: &str) -> Problems {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push(too_many_characters(63));
    }
    if !label(value) {
        problems.push(if subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex(LABEL_WORDS, LABEL_FMT, &["my-name", "123-abc"])
        });
    }
    problems
}

/// A subdomain of DNS: the names of most objects.
pub fn is_dns1123_subdomain(value: &str) -> Problems {
    let mut problems = Vec::new();
    if value.len() > 253 {
        problems.push(too_many_characters(253));
    }
    if !subdomain(value) {
        problems.push(regex(SUBDOMAIN_WORDS, SUBDOMAIN_FMT, &["example.com"]));
    }
    problems
}

/// A subdomain of DNS in letters of either case: the names of drivers of devices.
pub fn is_dns1123_subdomain_caseless(value: &str) -> Problems {
    let mut problems = Vec::new();
    if value.len() > 253 {
        problems.push(too_many_characters(253));
    }
    if !subdomain(&value.to_ascii_lowercase()) {
        let words = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        problems.push(regex(words, SUBDOMAIN_FMT, &["Example.com"]));
    }
    problems
}

/// A subdomain of DNS that may have underscores too: the search domains of pods.
pub fn is_dns1123_subdomain_with_underscore(value: &str) -> Problems {
    let mut problems = Vec::new();
    if value.len() > 253 {
        problems.push(too_many_characters(253));
    }
    let part = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part);
        framed(part, lower_alphanumeric, |byte| lower_alphanumeric(byte) || matches!(byte, b'-' | b'_'))
    };
    if !value.split('.').all(part) {
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
        problems.push(regex(words, SUBDOMAIN_UNDERSCORE_FMT, &["example.com"]));
    }
    problems
}

/// A label of the older DNS, which starts with a letter: the names of Services.
pub fn is_dns1035_label(value: &str) -> Problems {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push(too_many_characters(63));
    }
    if !label(value) || value.as_bytes()[0].is_ascii_digit() {
        let words = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        problems.push(regex(words, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    problems
}

/// A subdomain below a wildcard: the hosts of an Ingress.
pub fn is_wildcard_dns1123_subdomain(value: &str) -> Problems {
    let mut problems = Vec::new();
    if value.len() > 253 {
        problems.push(too_many_characters(253));
    }
    if !value.strip_prefix("*.").is_some_and(subdomain) {
        let words = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        problems.push(regex(words, &format!("\\*\\.{SUBDOMAIN_FMT}"), &["*.example.com"]));
    }
    problems
}

/// The key of a label or an annotation, and whatever else is named with an optional domain before it.
pub fn is_qualified_name(value: &str) -> Problems {
    let mut problems = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex(QUALIFIED_WORDS, QUALIFIED_FMT, &["MyName", "my.name", "123-abc"])
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    problems.push(format!("prefix part {}", too_many_bytes(253)));
                }
                if !subdomain(prefix) {
                    problems.push(format!("prefix part {}", regex(SUBDOMAIN_WORDS, SUBDOMAIN_FMT, &["example.com"])));
                }
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_many_bytes(63)));
    }
    if !qualified(name) {
        let words = regex(QUALIFIED_WORDS, QUALIFIED_FMT, &["MyName", "my.name", "123-abc"]);
        problems.push(format!("name part {words}"));
    }
    problems
}

/// The value of a label.
pub fn is_label_value(value: &str) -> Problems {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push(too_many_bytes(63));
    }
    if !value.is_empty() && !qualified(value) {
        let words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        problems.push(regex(words, LABEL_VALUE_FMT, &["MyValue", "my_value", "12345"]));
    }
    problems
}

/// A name that can stand in a path of the API.
pub fn is_path_segment_name(name: &str) -> Problems {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => is_path_segment_prefix(name),
    }
}

/// The beginning of a name that can stand in a path of the API.
pub fn is_path_segment_prefix(name: &str) -> Problems {
    let forbidden = ["/", "%"].into_iter().filter(|text| name.contains(text));
    forbidden.map(|text| format!("may not contain '{text}'")).collect()
}

/// An identifier of C.
pub fn is_c_identifier(value: &str) -> Problems {
    if starts_and_goes_on(value, |b| b.is_ascii_alphabetic() || b == b'_', |b| b.is_ascii_alphanumeric() || b == b'_') {
        return Vec::new();
    }
    let words = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
    vec![regex(words, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// The name of an environment variable, as it was before v1.30.
pub fn is_env_var_name(value: &str) -> Problems {
    let mut problems = Vec::new();
    let start = |b: u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b'.' | b'_');
    if !starts_and_goes_on(value, start, |b| start(b) || b.is_ascii_digit()) {
        let words = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit";
        problems.push(regex(words, "[-._a-zA-Z][-._a-zA-Z0-9]*", &["my.env-name", "MY_ENV.NAME", "MyEnvName1"]));
    }
    problems.extend(change_of_directory(value));
    problems
}

/// The name of an environment variable: anything printable but `=`.
pub fn is_relaxed_env_var_name(value: &str) -> Problems {
    if value.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// The key of a ConfigMap or a Secret.
pub fn is_config_map_key(value: &str) -> Problems {
    let mut problems = Vec::new();
    if value.len() > 253 {
        problems.push(too_many_characters(253));
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if !starts_and_goes_on(value, legal, legal) {
        let words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        problems.push(regex(words, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    problems.extend(change_of_directory(value));
    problems
}

/// The name of a port of a container or a Service.
pub fn is_valid_port_name(port: &str) -> Problems {
    let mut problems = Vec::new();
    if port.len() > 15 {
        problems.push(too_many_characters(15));
    }
    let legal = |byte: u8| lower_alphanumeric(byte) || byte == b'-';
    if !starts_and_goes_on(port, legal, legal) {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !port.bytes().any(|byte| byte.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_owned());
    }
    if port.contains("--") {
        problems.push("must not contain consecutive hyphens".to_owned());
    }
    if port.starts_with('-') || port.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_owned());
    }
    problems
}

/// A port: 1 to 65535.
pub fn is_valid_port_num(port: i64) -> Problems {
    is_in_range(port, 1, 65535)
}

/// A number within bounds that belong to the range.
pub fn is_in_range(value: i64, low: i64, high: i64) -> Problems {
    if (low..=high).contains(&value) {
        return Vec::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

/// A user or group of Unix.
pub fn is_valid_user_id(id: i64) -> Problems {
    is_in_range(id, 0, i64::from(i32::MAX))
}

/// A percentage such as `25%`.
pub fn is_valid_percent(percent: &str) -> Problems {
    let digits = percent.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let words = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex(words, "[0-9]+%", &["1%", "93%"])]
}

/// The name of an HTTP header.
pub fn is_http_header_name(value: &str) -> Problems {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if starts_and_goes_on(value, legal, legal) {
        return Vec::new();
    }
    let words = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex(words, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// The reason of a condition.
pub fn is_valid_condition_reason(value: &str) -> Problems {
    let bytes = value.as_bytes();
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let legal = match bytes {
        [] => false,
        [first] => first.is_ascii_alphabetic(),
        [first, middle @ .., last] => {
            first.is_ascii_alphabetic()
                && word(*last)
                && middle.iter().all(|&byte| word(byte) || matches!(byte, b',' | b':'))
        }
    };
    if legal {
        return Vec::new();
    }
    let words = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    vec![regex(words, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples)]
}

/// [`is_dns1123_subdomain`] as the check of an object's name.
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Problems {
    if prefix { is_dns1123_subdomain(&with_suffix(name)) } else { is_dns1123_subdomain(name) }
}

/// [`is_dns1123_label`] as the check of an object's name.
pub fn name_is_dns_label(name: &str, prefix: bool) -> Problems {
    if prefix { is_dns1123_label(&with_suffix(name)) } else { is_dns1123_label(name) }
}

/// [`is_dns1035_label`] as the check of an object's name.
pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Problems {
    if prefix { is_dns1035_label(&with_suffix(name)) } else { is_dns1035_label(name) }
}

/// [`is_path_segment_name`] as the check of an object's name.
pub fn name_is_path_segment(name: &str, prefix: bool) -> Problems {
    if prefix { is_path_segment_prefix(name) } else { is_path_segment_name(name) }
}

/// A prefix may end with a dash, because a letter or a digit will follow. Upstream drops the character before the dash,
/// too, so that one more than the longest name is still accepted; so do we.
fn with_suffix(name: &str) -> std::borrow::Cow<'_, str> {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let last = rest.char_indices().next_back().map_or(0, |(at, _)| at);
            format!("{}a", &rest[..last]).into()
        }
        _ => name.into(),
    }
}

/// A sentence about a regular expression, with examples of what it accepts.
pub fn regex(words: &str, expression: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{expression}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{expression}')", examples.join(" or "))
}

/// The older checks count characters, where they mean bytes.
fn too_many_characters(most: usize) -> String {
    format!("must be no more than {most} characters")
}

fn too_many_bytes(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

fn change_of_directory(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Not empty, with one set of bytes at both ends and another between them.
fn framed(value: &str, ends: impl Fn(u8) -> bool, middle: impl Fn(u8) -> bool) -> bool {
    match value.as_bytes() {
        [] => false,
        [one] => ends(*one),
        [first, inner @ .., last] => ends(*first) && ends(*last) && inner.iter().all(|&byte| middle(byte)),
    }
}

fn starts_and_goes_on(value: &str, start: impl Fn(u8) -> bool, rest: impl Fn(u8) -> bool) -> bool {
    matches!(value.as_bytes(), [first, more @ ..] if start(*first) && more.iter().all(|&byte| rest(byte)))
}

fn label(value: &str) -> bool {
    framed(value, lower_alphanumeric, |byte| lower_alphanumeric(byte) || byte == b'-')
}

fn subdomain(value: &str) -> bool {
    value.split('.').all(label)
}

fn qualified(value: &str) -> bool {
    framed(
        value,
        |byte| byte.is_ascii_alphanumeric(),
        |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, check: fn(&str) -> Problems, good: &[&str], bad: &[&str]) {
        for value in good {
            assert_eq!(check(value), Vec::<String>::new(), "{name}: {value:?}");
        }
        for value in bad {
            assert_ne!(check(value), Vec::<String>::new(), "{name}: {value:?}");
        }
    }

    #[test]
    fn names_are_accepted_and_refused() {
        let (label63, label64) = ("a".repeat(63), "a".repeat(64));
        check(
            "label",
            is_dns1123_label,
            &["a", "0", "a-b", "0-9", &label63],
            &["", "A", "-a", "a-", "a.b", "a_b", &label64],
        );
        check(
            "subdomain",
            is_dns1123_subdomain,
            &["a", "a.b", "0.1-2.c"],
            &["", "a..b", ".a", "a.", "A", "a_b", &"a".repeat(254)],
        );
        check("1035", is_dns1035_label, &["a", "a-1"], &["", "1a", "a.b", "a-"]);
        check("underscore", is_dns1123_subdomain_with_underscore, &["_a.b", "a_b.c"], &["", "__a", "a_", "A"]);
        check("wildcard", is_wildcard_dns1123_subdomain, &["*.a.b"], &["*", "*.*.a", "*a.b", "a.b"]);
        let longest = format!("{}/{}", "a".repeat(253), label63);
        check(
            "qualified",
            is_qualified_name,
            &["a", "A_b.C-1", "a.b/C", &longest],
            &["", "a/b/c", "/a", "a/", "A.b/c", "-a", "a b", &label64],
        );
        check("value", is_label_value, &["", "A_b.C", &label63], &["-a", "a b", "ü", &label64]);
        check("segment", is_path_segment_name, &["", "a:b", "..."], &[".", "..", "a/b", "a%"]);
        check("identifier", is_c_identifier, &["_", "a1"], &["", "1", "a-"]);
        check("variable", is_env_var_name, &["A", "-a.b", "a..b"], &["", "1", "..", ".", "..a", "a b"]);
        check("relaxed", is_relaxed_env_var_name, &["1", "a b"], &["", "a=b", "ü", "\n"]);
        check("key", is_config_map_key, &["a", "A.b_c-1", ".a"], &["", ".", "..", "..a", "a/b"]);
        check("port", is_valid_port_name, &["a", "80-http"], &["", "80", "a--b", "-a", "a-", "A", "0123456789abcdef"]);
        check("percent", is_valid_percent, &["0%", "100%"], &["", "%", "1", "a%", "1%%"]);
        check("header", is_http_header_name, &["X-A"], &["", "X_A"]);
        check("reason", is_valid_condition_reason, &["A", "A_", "A,B:C"], &["", "1", "_", "A,"]);
    }

    #[test]
    fn the_words_are_upstreams() {
        assert_eq!(is_dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(
            is_dns1123_subdomain("A"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(is_qualified_name(&"a".repeat(64)), ["name part must be no more than 63 bytes"]);
        assert_eq!(
            is_label_value("a b"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
        assert_eq!(is_valid_port_num(0), ["must be between 1 and 65535, inclusive"]);
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        assert!(name_is_dns_label("web-", true).is_empty());
        assert!(!name_is_dns_label("web-", false).is_empty());
        assert!(!name_is_dns_label("-", true).is_empty());
        assert!(!name_is_dns_label("ü-", false).is_empty());
        assert!(name_is_path_segment("..", true).is_empty());
    }
}
