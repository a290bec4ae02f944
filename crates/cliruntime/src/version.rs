//! Which version this kubectl is of, and whether that is the server's.

use machinery::status::go_quote;
use serde_json::{Value, json};

use crate::error::{Failure, Outcome};

/// The fields of a version as Go declares them, with their names in JSON.
const FIELDS: [(&str, &str); 13] = [
    ("Major", "major"),
    ("Minor", "minor"),
    ("EmulationMajor", "emulationMajor"),
    ("EmulationMinor", "emulationMinor"),
    ("MinCompatibilityMajor", "minCompatibilityMajor"),
    ("MinCompatibilityMinor", "minCompatibilityMinor"),
    ("GitVersion", "gitVersion"),
    ("GitCommit", "gitCommit"),
    ("GitTreeState", "gitTreeState"),
    ("BuildDate", "buildDate"),
    ("GoVersion", "goVersion"),
    ("Compiler", "compiler"),
    ("Platform", "platform"),
];

/// What this kubectl says of itself.
pub fn own() -> Value {
    let version = rules::names::VERSION;
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || numbers.next().unwrap_or_default().to_owned();
    let machine = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    json!({
        "major": next(), "minor": next(), "gitVersion": version, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": format!("linux/{machine}"),
    })
}

/// Refuses a server of another version, for `--match-server-version`.
pub(crate) fn must_match(server: &Value) -> Outcome {
    let own = own();
    // What follows the plus says who built it. Upstream's compares that and the commit too, of which ours knows none.
    let version = |of| machinery::value::text(of, "gitVersion").split('+').next().unwrap_or_default();
    if version(server) == version(&own) {
        return Ok(());
    }
    let (server, own) = (as_go(server), as_go(&own));
    Err(Failure::Message(format!("server version (&{server}) differs from client version ({own})")))
}

/// A version as Go's `%#v` shows it.
fn as_go(version: &Value) -> String {
    let field = |(name, json): &(&str, &str)| format!("{name}:{}", go_quote(machinery::value::text(version, json)));
    format!("version.Info{{{}}}", FIELDS.iter().map(field).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_another_version_is_named_as_go_shows_it() {
        assert!(must_match(&own()).is_ok());
        let mut other = own();
        other["gitVersion"] = format!("{}+by-somebody", rules::names::VERSION).into();
        assert!(must_match(&other).is_ok());
        other["gitVersion"] = "v1.36.1".into();
        let said = must_match(&other).expect_err("refused").render();
        let start = "error: server version (&version.Info{Major:\"1\", Minor:\"37\", EmulationMajor:\"\", ";
        assert!(said.starts_with(start), "{said}");
        assert!(said.contains(" GitVersion:\"v1.36.1\", GitCommit:\"\", GitTreeState:\"clean\", "), "{said}");
        assert!(said.contains("\"}) differs from client version (version.Info{Major:\"1\", "), "{said}");
    }
}
