//! `kubectl config delete-cluster`, `delete-context` and `delete-user`.

use crate::command::{Command, Invocation};
use crate::config::Section;
use crate::error::{Failure, Outcome};

pub static CLUSTER: Command = Command {
    name: "delete-cluster",
    aliases: &[],
    usage: "NAME",
    short: "Delete the specified cluster from the kubeconfig",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(delete(invocation, Section::Clusters))),
};

pub static CONTEXT: Command = Command {
    name: "delete-context",
    aliases: &[],
    usage: "NAME",
    short: "Delete the specified context from the kubeconfig",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(delete(invocation, Section::Contexts))),
};

pub static USER: Command = Command {
    name: "delete-user",
    aliases: &[],
    usage: "NAME",
    short: "Delete the specified user from the kubeconfig",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(delete(invocation, Section::Users))),
};

async fn delete(invocation: &mut Invocation, section: Section) -> Outcome {
    let [name] = &invocation.flags.arguments[..] else {
        if section == Section::Users {
            return Err(invocation.usage("user to delete is required"));
        }
        let help = crate::help::of(invocation.command, &invocation.path);
        return invocation.print(&help);
    };
    let name = name.clone();
    let before = super::load(invocation)?;
    let file = super::file(invocation);
    let what = section.one();
    let mut after = before.clone();
    if after.section_mut(section).remove(&name).is_none() {
        return Err(Failure::Message(format!("cannot delete {what} {name}, not in {file}")));
    }
    if section == Section::Contexts && before.current == name {
        invocation.streams.error(
            "warning: this removed your active context, use \"kubectl config use-context\" to select a different one",
        );
    }
    super::save(invocation, &before, &after)?;
    invocation.say(&format!("deleted {what} {name} from {file}"))
}
