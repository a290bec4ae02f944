//! `kubectl set image`.

use machinery::status::go_quote;

use super::{COMMON, apply, containers, pod_spec};
use crate::command::{Command, Invocation};
use crate::error::Outcome;
use crate::flags::sets;

pub static COMMAND: Command = Command {
    name: "image",
    aliases: &[],
    usage: "(-f FILENAME | TYPE NAME) CONTAINER_NAME_1=CONTAINER_IMAGE_1 ... CONTAINER_NAME_N=CONTAINER_IMAGE_N",
    short: "Update the image of a pod template",
    flags: &[sets::PRINT, sets::FILENAME, sets::SELECTOR, sets::DRY_RUN, sets::RECORD, COMMON],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let (pairs, resources): (Vec<String>, Vec<String>) =
        invocation.arguments().into_iter().partition(|word| word.contains('=') && !word.starts_with('='));
    let flags = &invocation.flags;
    let wrong = if flags.is("all") && !flags.text("selector").is_empty() {
        Some("cannot set --all and --selector at the same time")
    } else if pairs.is_empty() {
        Some("at least one image update is required")
    } else if pairs.len() > 1 && pairs.iter().any(|pair| pair.starts_with("*=")) {
        Some("all containers are already specified by *, but saw more than one container_name=container_image pairs")
    } else {
        None
    };
    let images: Vec<(String, String)> = pairs
        .iter()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, image)| (name.to_owned(), image.to_owned()))
        .collect();
    let words = ("image updated", "failed to patch image update to pod template:");
    apply(invocation, resources, wrong.map(str::to_owned), words, |info| {
        let spec = pod_spec(info).map_err(|why| vec![format!("error: {why}\n")])?;
        let mut missing = Vec::new();
        for (name, image) in &images {
            let found = containers(spec, name, true);
            if found.is_empty() {
                missing.push(format!("error: unable to find container named {}", go_quote(name)));
            }
            for container in found {
                if image.is_empty() {
                    machinery::value::remove(container, "image");
                } else {
                    container["image"] = image.as_str().into();
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    })
    .await
}
