//! `/version`: which Kubernetes this speaks, and which Trireme it is.

use rules::names::GIT_VERSION;
use serde_json::{Value, json};

/// `version.Info`, under the version that the server was told to report.
pub fn info(reported: Option<&str>) -> Value {
    let git_version = reported.unwrap_or(GIT_VERSION);
    json!({
        "major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "37",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
        "gitVersion": git_version, "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("linux/{}", arch()),
    })
}

/// The architecture in Go's words, which clients know.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
