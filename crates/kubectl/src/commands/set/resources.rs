//! `kubectl set resources`.

use machinery::quantity::Quantity;
use serde_json::{Map, Value};

use super::{COMMON, apply, containers, pod_spec};
use crate::command::{Command, Invocation};
use crate::error::Outcome;
use crate::flags::{Flag, sets};

pub static COMMAND: Command = Command {
    name: "resources",
    aliases: &[],
    usage: "(-f FILENAME | TYPE NAME)  ([--limits=LIMITS & --requests=REQUESTS]",
    short: "Update resource requests/limits on objects with pod templates",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::SELECTOR,
        sets::DRY_RUN,
        sets::RECORD,
        COMMON,
        &[
            Flag::string("containers", "*", "Containers to change; may have a *.").short('c'),
            Flag::string("limits", "", "Limits as resource=amount, separated by commas."),
            Flag::string("requests", "", "Requests as resource=amount, separated by commas."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

fn amounts(text: &str) -> Result<Map<String, Value>, String> {
    let mut all = Map::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (name, amount) = pair
            .split_once('=')
            .ok_or_else(|| format!("invalid argument syntax {pair}, expected <resource>=<value>"))?;
        let amount: Quantity = amount.parse().map_err(|error| format!("{error}"))?;
        all.insert(name.to_owned(), amount.to_string().into());
    }
    Ok(all)
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    let (limits, requests) = (amounts(flags.text("limits")), amounts(flags.text("requests")));
    let wrong = if flags.is("all") && !flags.text("selector").is_empty() {
        Some("cannot set --all and --selector at the same time".to_owned())
    } else if flags.text("limits").is_empty() && flags.text("requests").is_empty() {
        Some("you must specify an update to requests or limits (in the form of --requests/--limits)".to_owned())
    } else {
        limits.as_ref().err().or(requests.as_ref().err()).cloned()
    };
    let (limits, requests) = (limits.unwrap_or_default(), requests.unwrap_or_default());
    let pattern = flags.text("containers").to_owned();
    let arguments = invocation.arguments();
    apply(
        invocation,
        arguments,
        wrong,
        ("resource requirements updated", "failed to patch resources update to pod template"),
        |info| {
            let spec = pod_spec(info).map_err(|why| vec![format!("error: {why}\n")])?;
            let found = containers(spec, &pattern, true);
            if found.is_empty() {
                return Err(vec![format!("error: unable to find container named {pattern}")]);
            }
            for container in found {
                let resources = machinery::value::object_mut(container, "resources");
                for (name, wanted) in [("limits", &limits), ("requests", &requests)] {
                    if wanted.is_empty() {
                        continue;
                    }
                    let known = resources.entry(name).or_insert_with(|| Value::Object(Map::new()));
                    machinery::value::as_object_mut(known).extend(wanted.clone());
                }
            }
            Ok(())
        },
    )
    .await
}
