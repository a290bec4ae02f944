//! `kubectl config view`.

use crate::command::{Command, Invocation};
use crate::config::file;
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::print::{OBJECTS, Printer, Request, json};

pub static COMMAND: Command = Command {
    name: "view",
    aliases: &[],
    usage: "[flags]",
    short: "Display merged kubeconfig settings or a specified kubeconfig file",
    flags: &[&[
        Flag::string("output", "yaml", "Output format.").short('o'),
        Flag::string("template", "", "Template or file for formats that need one."),
        Flag::bool("allow-missing-template-keys", "Fields that are missing are no error.").default("true"),
        Flag::bool("show-managed-fields", "Show metadata.managedFields."),
        Flag::bool("flatten", "Put the content of files in their place."),
        Flag::bool("merge", "Merge all files.").default("true"),
        Flag::bool("minify", "Show only what the current context needs."),
        Flag::bool("raw", "Show data and secrets as they are."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    if !invocation.flags.arguments.is_empty() {
        return Err(invocation.usage(format_args!("unexpected arguments: [{}]", invocation.flags.arguments.join(" "))));
    }
    if !invocation.flags.is("merge") && invocation.flags.given("kubeconfig").is_none() {
        return Err(Failure::message("if merge==false a precise file must be specified"));
    }
    let mut config = super::load(invocation)?;
    let (flatten, raw) = (invocation.flags.is("flatten"), invocation.flags.is("raw"));
    if let Some(context) = invocation.flags.given("context") {
        config.current = context.to_owned();
    }
    if invocation.flags.is("minify") {
        config.minify().map_err(Failure::Message)?;
    }
    if flatten {
        config.flatten().map_err(Failure::Message)?;
    }
    if !raw && !flatten {
        config.redact();
    }
    let tree = config.to_value();
    if invocation.flags.text("output") == "json" {
        let text = json::ordered(&tree, file::ORDER);
        return invocation.say(&text);
    }
    let request = Request { allowed: OBJECTS, typed: false };
    let printer = Printer::from_flags(&invocation.flags, &invocation.session.environment, &request)?;
    if let Some(mut printer) = printer {
        let text = printer.print(&tree)?;
        invocation.print(&text)?;
    }
    Ok(())
}
