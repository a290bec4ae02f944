//! `kubectl certificate approve` and `deny`.

use machinery::status::go_quote;
use machinery::value::{list, text};
use serde_json::{Value, json};

use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::report::Report;
use crate::resource::helper::DryRun;
use crate::resource::{Builder, Info, files};

pub static COMMAND: Command = Command {
    name: "certificate",
    aliases: &[],
    usage: "SUBCOMMAND",
    short: "Modify certificate resources",
    flags: &[],
    children: &[&APPROVE, &DENY],
    run: None,
};

static FORCE: &[Flag] = &[Flag::bool("force", "Say it again where it was said.")];

static APPROVE: Command = Command {
    name: "approve",
    aliases: &[],
    usage: "(-f FILENAME | NAME)",
    short: "Approve a certificate signing request",
    flags: &[sets::PRINT, sets::FILENAME, FORCE],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, "Approved"))),
};

static DENY: Command = Command {
    name: "deny",
    aliases: &[],
    usage: "(-f FILENAME | NAME)",
    short: "Deny a certificate signing request",
    flags: &[sets::PRINT, sets::FILENAME, FORCE],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation, "Denied"))),
};

async fn run(invocation: &mut Invocation, verdict: &str) -> Outcome {
    let names = invocation.arguments();
    let mut builder = Builder { latest: true, ..Builder::from_flags(&invocation.session, &invocation.flags)? };
    if names.is_empty() && builder.has_no_files() {
        return Err(Failure::message("one or more CSRs must be specified as <name> or -f <filename>"));
    }
    let typed = |name: &String| match name.contains('/') {
        true => name.clone(),
        false => format!("certificatesigningrequests/{name}"),
    };
    if !names.is_empty() && !builder.has_no_files() {
        files::are_there(&builder, &invocation.session)?;
        return Err(Failure::message("resource/name arguments cannot be provided when a path is specified"));
    }
    builder.arguments = names.iter().map(typed).collect();
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?.all()?;
    if found.is_empty() {
        return invocation.say("No resources found");
    }
    for info in found {
        let object = judge(invocation, &info, verdict).await?;
        let done = if verdict == "Approved" { "approved" } else { "denied" };
        Report::new(invocation, DryRun::No, false)?.say(invocation, &object, done)?;
    }
    Ok(())
}

async fn judge(invocation: &Invocation, info: &Info, verdict: &str) -> Outcome<Value> {
    let mut object = info.object.clone();
    let mut conditions = list(&object, "status.conditions").to_vec();
    for condition in &conditions {
        let kind = text(condition, "type");
        if kind == verdict && !invocation.flags.is("force") {
            return Ok(object);
        }
        if kind != verdict && matches!(kind, "Approved" | "Denied") {
            let name = go_quote(&info.name);
            return Err(Failure::Message(format!("certificate signing request {name} is already {kind}")));
        }
    }
    let (reason, word) = if verdict == "Approved" { ("KubectlApprove", "approved") } else { ("KubectlDeny", "denied") };
    conditions.retain(|condition| text(condition, "type") != verdict);
    conditions.push(json!({
        "type": verdict, "status": "True", "reason": reason,
        "message": format!("This CSR was {word} by kubectl certificate {}.", if verdict == "Approved" { "approve" } else { "deny" }),
        "lastUpdateTime": machinery::time::format(jiff::Timestamp::now()),
    }));
    machinery::value::set(&mut object, "status.conditions", Value::Array(conditions));
    let path = info.mapping.path("", &info.name, "approval");
    invocation.session.api()?.send(http::Method::PUT, &path, JSON, &object).await
}
