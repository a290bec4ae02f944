//! Commands for nodes: `cordon`, `uncordon`, `drain` and `taint`.

pub mod cordon;
pub mod drain;
mod filters;
pub mod taint;

use serde_json::json;

use crate::command::Invocation;
use crate::error::{Failure, Outcome};
use crate::report::Report;
use crate::resource::helper::{DryRun, STRATEGIC, Writing};
use crate::resource::{Builder, Info};

/// The nodes that a command is about.
async fn find(invocation: &mut Invocation, usage: &str) -> Outcome<Vec<Info>> {
    let arguments = invocation.arguments();
    let selector = !invocation.flags.text("selector").is_empty();
    if arguments.is_empty() && !invocation.flags.changed("selector") {
        return Err(invocation.usage(format_args!("USAGE: {usage} [flags]")));
    }
    if !arguments.is_empty() && selector {
        return Err(invocation.usage("error: cannot specify both a node name and a --selector option"));
    }
    if arguments.is_empty() && !selector {
        return Err(Failure::message(crate::resource::arguments::MISSING));
    }
    let mut builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    if !invocation.flags.knows("chunk-size") {
        builder.chunk = 500;
    }
    let word = |name: &String| if name.contains('/') { name.clone() } else { format!("nodes/{name}") };
    builder.arguments = if selector { vec!["nodes".to_owned()] } else { arguments.iter().map(word).collect() };
    let mut infos = Vec::new();
    for arguments in builder.arguments.chunks(1) {
        // The first that is not there ends it.
        let one = Builder { arguments: arguments.to_vec(), ..builder.clone() };
        infos.extend(one.infos(&invocation.session, &mut invocation.streams).await?.all()?);
    }
    match infos.iter().find(|info| info.mapping.kind != "Node") {
        Some(other) => {
            let what = machinery::status::go_quote(&other.mapping.resource);
            Err(Failure::Message(format!("error: expected resource of type node, got {what}")))
        }
        None => Ok(infos),
    }
}

/// Makes nodes take pods, or no more.
async fn set_unschedulable(invocation: &mut Invocation, infos: &[Info], wanted: bool) -> Outcome {
    let writing = Writing::from_flags(&invocation.flags)?;
    let verb = if wanted { "cordon" } else { "uncordon" };
    for info in infos {
        let mut done = format!("{verb}ed");
        if machinery::value::flag(&info.object, "spec.unschedulable") == wanted {
            done = format!("already {done}");
        } else if writing.dry_run != DryRun::Client {
            let value = if wanted { json!(true) } else { json!(null) };
            let patch = json!({"spec": {"unschedulable": value}});
            let api = invocation.session.api()?;
            if let Err(error) = writing.patch(&api, info, STRATEGIC, &patch).await {
                let name = machinery::status::go_quote(&info.name);
                invocation.streams.error(&format!("error: unable to {verb} node {name}: {}", error.bare()));
                continue;
            }
        }
        Report::new(invocation, writing.dry_run, false)?.say(invocation, &info.object, &done)?;
    }
    Ok(())
}
