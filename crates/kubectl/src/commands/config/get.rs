//! `kubectl config current-context`, `get-contexts`, `get-clusters` and `get-users`.

use crate::command::{Command, Invocation};
use crate::config::Section;
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::print::tabs::Tabs;

pub static CURRENT_CONTEXT: Command = Command {
    name: "current-context",
    aliases: &[],
    usage: "[flags]",
    short: "Display the current-context",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(current_context(invocation))),
};

pub static CONTEXTS: Command = Command {
    name: "get-contexts",
    aliases: &[],
    usage: "[(-o|--output=)name)]",
    short: "Describe one or many contexts",
    flags: &[&[
        Flag::bool("no-headers", "Print no headers."),
        Flag::string("output", "", "Output format: name.").short('o'),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(contexts(invocation))),
};

pub static CLUSTERS: Command = Command {
    name: "get-clusters",
    aliases: &[],
    usage: "[flags]",
    short: "Display clusters defined in the kubeconfig",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(names(invocation, Section::Clusters))),
};

pub static USERS: Command = Command {
    name: "get-users",
    aliases: &[],
    usage: "[flags]",
    short: "Display users defined in the kubeconfig",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(names(invocation, Section::Users))),
};

async fn current_context(invocation: &mut Invocation) -> Outcome {
    match super::load(invocation)?.current {
        current if current.is_empty() => Err(Failure::message("current-context is not set")),
        current => invocation.say(&current),
    }
}

async fn names(invocation: &mut Invocation, section: Section) -> Outcome {
    let config = super::load(invocation)?;
    invocation.say("NAME")?;
    for name in config.section(section).keys() {
        invocation.say(name)?;
    }
    Ok(())
}

async fn contexts(invocation: &mut Invocation) -> Outcome {
    let config = super::load(invocation)?;
    let only_names = match invocation.flags.text("output") {
        "" | "wide" => false,
        "name" => true,
        other => {
            return Err(Failure::Message(format!(
                "--output {other} is not available in kubectl config get-contexts; resetting to default output format"
            )));
        }
    };
    let asked = invocation.arguments();
    let wanted = if asked.is_empty() { config.contexts.keys().cloned().collect() } else { asked };
    let mut text = String::new();
    if !only_names && !invocation.flags.is("no-headers") {
        text += "CURRENT\tNAME\tCLUSTER\tAUTHINFO\tNAMESPACE\n";
    }
    let mut missing = Vec::new();
    for name in &wanted {
        let Some(context) = config.contexts.get(name) else {
            missing.push(Failure::Message(format!("context {name} not found")));
            continue;
        };
        if only_names {
            text += &format!("{name}\n");
            continue;
        }
        let mark = if *name == config.current { "*" } else { "" };
        let field = |field: &str| context.text(field).to_owned();
        text += &format!("{mark}\t{name}\t{}\t{}\t{}\n", field("cluster"), field("user"), field("namespace"));
    }
    let text = Tabs::new().align(&text);
    invocation.print(&text)?;
    Failure::all(missing)
}
