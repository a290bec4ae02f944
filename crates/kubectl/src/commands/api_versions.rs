//! `kubectl api-versions`.

use crate::command::{Command, Invocation};
use crate::error::Outcome;

pub static COMMAND: Command = Command {
    name: "api-versions",
    aliases: &[],
    usage: "",
    short: "Print the supported API versions on the server, in the form of \"group/version\"",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    if !invocation.flags.arguments.is_empty() {
        return Err(invocation.usage(format_args!("unexpected arguments: [{}]", invocation.flags.arguments.join(" "))));
    }
    // What is remembered may be old, and this command is asked what there is now.
    let discovery = invocation.session.rediscover().await?;
    let mut versions: Vec<String> = discovery
        .groups
        .iter()
        .flat_map(|group| group.versions.iter().map(|version| facts::api_version(&group.name, version)))
        .collect();
    versions.sort();
    for version in versions {
        invocation.say(&version)?;
    }
    Ok(())
}
