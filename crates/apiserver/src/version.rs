//! `/version`: which Kubernetes this speaks, and which Trireme it is.

use serde_json::{Value, json};

/// The version of the wire protocol.
pub const KUBERNETES: &str = "v1.37.0";

/// `version.Info`.
pub fn info() -> Value {
    let git_version = format!("{KUBERNETES}+trireme-{}", env!("CARGO_PKG_VERSION"));
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
