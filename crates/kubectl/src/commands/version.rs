//! `kubectl version`.

use machinery::codec::yaml;
use serde_json::{Value, json};

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::print::json;

pub static COMMAND: Command = Command {
    name: "version",
    aliases: &[],
    usage: "[flags]",
    short: "Print the client and server version information",
    flags: &[&[
        Flag::bool("client", "Show the client's version only."),
        Flag::string("output", "", "One of 'yaml' or 'json'.").short('o'),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// The order in which upstream writes these fields as JSON.
const ORDER: &[&str] = &[
    "clientVersion",
    "kustomizeVersion",
    "serverVersion",
    "major",
    "minor",
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];
/// The version of kustomize whose files are understood.
const KUSTOMIZE: &str = "v5.8.1";

async fn run(invocation: &mut Invocation) -> Outcome {
    if !invocation.flags.arguments.is_empty() {
        return Err(Failure::Message(format!("extra arguments: [{}]", invocation.flags.arguments.join(" "))));
    }
    let output = invocation.flags.text("output").to_owned();
    if !matches!(output.as_str(), "" | "yaml" | "json") {
        return Err(Failure::message("--output must be 'yaml' or 'json'"));
    }
    // A server of another version is refused before anything is said.
    if !invocation.flags.is("client")
        && let Ok(api) = invocation.session.api()
    {
        api.matched().await?;
    }
    let mut versions = json!({"clientVersion": cliruntime::version::own(), "kustomizeVersion": KUSTOMIZE});
    let mut failed = None;
    if !invocation.flags.is("client") {
        match server(invocation).await {
            Ok(version) => versions["serverVersion"] = version,
            Err(error) => failed = Some(error),
        }
    }
    let text = match output.as_str() {
        "yaml" => yaml::encode(&versions) + "\n",
        // Two blanks a level, where other commands have four.
        "json" => json::ordered(&versions, ORDER).replace("    ", "  ") + "\n",
        _ => {
            let of = |name: &str| machinery::value::text(&versions, &format!("{name}.gitVersion")).to_owned();
            let mut text = format!("Client Version: {}\nKustomize Version: {KUSTOMIZE}\n", of("clientVersion"));
            if versions.get("serverVersion").is_some() {
                text += &format!("Server Version: {}\n", of("serverVersion"));
            }
            text
        }
    };
    invocation.print(&text)?;
    if let Some(warning) = skew(&versions) {
        invocation.streams.error(&warning);
    }
    failed.map_or(Ok(()), Err)
}

async fn server(invocation: &Invocation) -> Outcome<Value> {
    let api = invocation.session.api()?;
    // A limit that the user gave goes with every request.
    let path = format!("/version?timeout={}", crate::discovery::PATIENCE);
    api.get(if api.is_limited() { "/version" } else { &path }).await
}

/// Versions that are more than one minor apart are not supported together.
fn skew(versions: &Value) -> Option<String> {
    let number = |name: &str| -> Option<i64> {
        let text = machinery::value::text(versions, name);
        text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
    };
    let (client, server) = (number("clientVersion.minor")?, number("serverVersion.minor")?);
    let of = |side: &str| {
        let major = machinery::value::text(versions, &format!("{side}.major"));
        let minor = number(&format!("{side}.minor")).unwrap_or_default();
        format!("{major}.{minor}")
    };
    ((client - server).abs() > 1).then(|| {
        format!(
            "Warning: version difference between client ({}) and server ({}) exceeds the supported minor version skew of +/-1",
            of("clientVersion"),
            of("serverVersion")
        )
    })
}
