//! Which requests a proxy passes on: pages in a browser must not reach the API by it. Pure.

use regex::Regex;

pub struct Filter {
    accept_paths: Vec<Regex>,
    reject_paths: Vec<Regex>,
    accept_hosts: Vec<Regex>,
    reject_methods: Vec<Regex>,
}

impl Filter {
    /// Each is a list of patterns, separated by commas.
    pub fn new(
        accept_paths: &str,
        reject_paths: &str,
        accept_hosts: &str,
        reject_methods: &str,
    ) -> Result<Self, regex::Error> {
        Ok(Self {
            accept_paths: patterns(accept_paths)?,
            reject_paths: patterns(reject_paths)?,
            accept_hosts: patterns(accept_hosts)?,
            reject_methods: patterns(reject_methods)?,
        })
    }

    pub fn accepts(&self, method: &str, path: &str, host: &str) -> bool {
        let any = |list: &[Regex], text: &str| list.iter().any(|pattern| pattern.is_match(text));
        !any(&self.reject_paths, path)
            && !any(&self.reject_methods, method)
            && any(&self.accept_paths, path)
            && any(&self.accept_hosts, without_port(host))
    }
}

fn patterns(text: &str) -> Result<Vec<Regex>, regex::Error> {
    if text.is_empty() { Ok(Vec::new()) } else { text.split(',').map(Regex::new).collect() }
}

/// `localhost` of `localhost:8001`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((before, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !before.ends_with(':') => {
            before.trim_start_matches('[').trim_end_matches(']')
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_may_ask_and_not_for_commands() {
        let usual = "^localhost$,^127\\.0\\.0\\.1$,^\\[::1\\]$";
        let filter =
            Filter::new("^.*", "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach", usual, "^$").expect("patterns");
        for (method, path, host, expected) in [
            ("GET", "/api/v1/pods", "localhost:8001", true),
            ("GET", "/api/v1/pods", "127.0.0.1", true),
            ("GET", "/api/v1/pods", "evil.example:8001", false),
            ("POST", "/api/v1/namespaces/a/pods/b/exec", "localhost", false),
            ("DELETE", "/api/v1/pods", "[::1]", true),
        ] {
            assert_eq!(filter.accepts(method, path, host), expected, "{method} {path} {host}");
        }
        let filter = Filter::new("^/api", "", "^.*$", "POST,PUT").expect("patterns");
        assert!(
            !filter.accepts("POST", "/api", "x")
                && !filter.accepts("GET", "/x", "x")
                && filter.accepts("GET", "/api", "x")
        );
        assert!(Filter::new("(", "", "", "").is_err());
    }
}
