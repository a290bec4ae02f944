//! `kubectl kustomize`: what a kustomization makes. The work is that of crate `kustomize`.

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::resource::files::kustomized;

pub static COMMAND: Command = Command {
    name: "kustomize",
    aliases: &[],
    usage: "DIR [flags]",
    short: "Build a kustomization target from a directory or URL",
    flags: &[&[
        Flag::string(
            "load-restrictor",
            "LoadRestrictionsRootOnly",
            "Which files may be read: LoadRestrictionsRootOnly or LoadRestrictionsNone.",
        ),
        Flag::string("output", "", "File to write to.").short('o'),
        Flag::bool("as-current-user", "Run plug-ins as yourself; there are none."),
        Flag::bool("enable-alpha-plugins", "Run plug-ins; there are none."),
        Flag::bool("enable-helm", "Make resources of charts, where a kustomization names any."),
        Flag::array("env", "A variable for plug-ins.").short('e'),
        Flag::array("helm-api-versions", "Versions that charts are told of."),
        Flag::bool("helm-debug", "Let helm say more."),
        Flag::string("helm-command", "helm", "The program helm."),
        Flag::string("helm-kube-version", "", "The version that charts are told of."),
        Flag::array("mount", "What plug-ins may see."),
        Flag::bool("network", "Let plug-ins use the network."),
        Flag::string("network-name", "bridge", "The network of plug-ins."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let directory = match &invocation.flags.arguments[..] {
        [] => ".".to_owned(),
        [directory] => directory.clone(),
        _ => return Err(Failure::message("specify one path to kustomization.yaml")),
    };
    let restrictor = match invocation.flags.text("load-restrictor") {
        "LoadRestrictionsRootOnly" | "rootOnly" => kustomize::Restrictor::RootOnly,
        "LoadRestrictionsNone" | "none" => kustomize::Restrictor::None,
        other => {
            return Err(Failure::Message(format!(
                "illegal flag value --load-restrictor {other}; legal values: [LoadRestrictionsRootOnly LoadRestrictionsNone]"
            )));
        }
    };
    let options = kustomize::Options { restrictor, ..kustomize::Options::default() };
    let text = kustomized(&directory, options, &invocation.session.environment, &mut invocation.streams)?;
    match invocation.flags.given("output").map(str::to_owned) {
        None => invocation.print(&text),
        Some(file) => Ok(std::fs::write(invocation.session.environment.path(&file), text)?),
    }
}
