//! `kubectl explain`: what a kind and its fields are for, as the server's schema says.

mod text;

use machinery::status::go_quote;
use serde_json::Value;

use crate::command::{Command, Invocation};
use crate::discovery::Mapping;
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::session::Session;

pub static COMMAND: Command = Command {
    name: "explain",
    aliases: &[],
    usage: "TYPE [--recursive=FALSE|TRUE] [--api-version=api-version-group] [-o|--output=plaintext|plaintext-openapiv2]",
    short: "Get documentation for a resource",
    flags: &[&[
        Flag::string("api-version", "", "Version of the group, as group/version."),
        Flag::int("max-depth", "0", "How deep --recursive goes; 0 is to the end."),
        Flag::string("output", "plaintext", "Output format.").short('o'),
        Flag::bool("recursive", "Show the fields of fields.").short('R'),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    let word = match &flags.arguments[..] {
        [word] => word.clone(),
        [] => {
            return Err(Failure::message(
                "You must specify the type of resource to explain. Use \"kubectl api-resources\" for a complete list of supported resources.\n",
            ));
        }
        _ => return Err(Failure::message("We accept only this format: explain RESOURCE\n")),
    };
    let (recursive, depth) = (flags.is("recursive"), flags.int("max-depth"));
    if depth != 0 && !recursive {
        return Err(Failure::message("--max-depth requires --recursive"));
    }
    if depth < 0 {
        return Err(Failure::message("--max-depth must be non-negative"));
    }
    let format = flags.text("output");
    if !matches!(format, "plaintext" | "plaintext-openapiv2") {
        return Err(Failure::Message(format!("unrecognized format: {format}")));
    }
    let wanted = flags.text("api-version").to_owned();
    let (first, _) = word.split_once('.').unwrap_or((&word, ""));
    let mapping = invocation.session.mapping(first).await.map_err(Failure::without_prefix)?;
    // A group may follow the resource.
    let rest = word.strip_prefix(&format!("{first}.{}", mapping.group)).filter(|_| !mapping.group.is_empty());
    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('.')).or_else(|| word.strip_prefix(first));
    let fields: Vec<String> =
        rest.unwrap_or_default().split('.').filter(|field| !field.is_empty()).map(str::to_owned).collect();
    let mapping = if wanted.is_empty() {
        mapping
    } else {
        let discovery = invocation.session.discovery().await?;
        let found =
            discovery.resources.iter().find(|one| one.api_version() == wanted && one.resource == mapping.resource);
        found.cloned().ok_or_else(|| {
            let wanted = if wanted.contains('/') { wanted.clone() } else { format!("/{wanted}") };
            let what = format!("{wanted}, Resource={}", mapping.resource);
            Failure::Message(format!("couldn't find resource for {}", go_quote(&what)))
        })?
    };
    let place = if mapping.group.is_empty() {
        format!("api/{}", mapping.version)
    } else {
        format!("apis/{}", mapping.api_version())
    };
    let document = document(&invocation.session, &place, &mapping).await?;
    let explained = text::explain(&document, &mapping, &fields, recursive, usize::try_from(depth).unwrap_or_default());
    match explained {
        Ok(text) => invocation.print(&text),
        Err((head, why)) => {
            invocation.print(&head)?;
            Err(Failure::Message(why))
        }
    }
}

/// The schema of a version of a group. The server says where it is; that address is another one when the schema changes.
async fn document(session: &Session, place: &str, mapping: &Mapping) -> Outcome<Value> {
    let unread = |what: &str, failure: Failure| Failure::Message(format!("failed to fetch {what}: {}", failure.bare()));
    let index = session.kept("/openapi/v3").await.map_err(|failure| unread("list of groupVersions", failure))?;
    let Some(address) = index["paths"][place]["serverRelativeURL"].as_str() else {
        let what = format!("{}/{}, Resource={}", mapping.group, mapping.version, mapping.resource);
        return Err(Failure::Message(format!("couldn't find resource for {}", go_quote(&what))));
    };
    session.kept(address).await.map_err(|failure| unread(&format!("openapi schema for {place}"), failure))
}
