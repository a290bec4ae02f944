//! `kubectl explain`: what a kind and its fields are for, as the server's schema says.

mod openapiv2;
mod text;

use machinery::status::go_quote;
use machinery::value;
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
    path_of_fields(&word, !wanted.is_empty())?;
    let (first, _) = word.split_once('.').unwrap_or((&word, ""));
    let mapping = invocation.session.mapping(first).await.map_err(Failure::without_prefix)?;
    // A group may follow the resource, where that is written as the server names it.
    let with_group = format!("{}.{}", mapping.resource, mapping.group);
    let rest = word.strip_prefix(&with_group).filter(|_| !mapping.group.is_empty() && wanted.is_empty());
    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('.')).or_else(|| word.strip_prefix(first));
    let fields: Vec<String> =
        rest.unwrap_or_default().split('.').filter(|field| !field.is_empty()).map(str::to_owned).collect();
    let mapping = if wanted.is_empty() {
        mapping
    } else {
        let discovery = invocation.session.discovery().await?;
        let of_version = |one: &&Mapping| one.api_version() == wanted;
        let found = discovery.resources.iter().filter(of_version).find(|one| one.resource == mapping.resource);
        let served = discovery.resources.iter().any(|one| of_version(&one));
        found.cloned().ok_or_else(|| unknown(&wanted, &mapping.resource, served))?
    };
    if invocation.flags.text("output") == "plaintext-openapiv2" {
        let document = invocation.session.kept("/openapi/v2").await?;
        let depth = usize::try_from(depth).unwrap_or_default();
        let text = openapiv2::explain(&document, &mapping, &fields, recursive, depth).map_err(Failure::Message)?;
        return invocation.print(&text);
    }
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

/// Why a resource cannot be explained in this version, which the server may serve all the same.
/// Whether a schema of an OpenAPI document says that it is that of the kind.
fn is_of(schema: &Value, mapping: &Mapping) -> bool {
    value::list(schema, "x-kubernetes-group-version-kind").iter().any(|kind| {
        value::text(kind, "group") == mapping.group
            && value::text(kind, "version") == mapping.version
            && value::text(kind, "kind") == mapping.kind
    })
}

fn unknown(version: &str, resource: &str, served: bool) -> Failure {
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    let what = format!("{version}, Resource={resource}");
    Failure::Message(if served {
        format!("GVR ({what}) not found in OpenAPI schema")
    } else {
        format!("couldn't find resource for {}", go_quote(&what))
    })
}

/// Refuses what is no path of names; upstream reads it as a JSONPath.
fn path_of_fields(word: &str, of_version: bool) -> Outcome {
    const FIRST: &str = "first node must be field node";
    let odd = |why: &str| Err(Failure::Message(format!("invalid jsonpath syntax, {why}")));
    match word {
        "" => Err(Failure::message("a resource must be present, got: /, Resource=")),
        _ if word.starts_with(['.', '[']) => odd(FIRST),
        _ if word.contains('[') && of_version => odd("all nodes must be field nodes"),
        _ if word.contains('[') => odd(FIRST),
        _ => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_path_of_fields_is_refused() {
        for (word, of_version, expected) in [
            ("pods.spec", false, ""),
            ("", false, "a resource must be present, got: /, Resource="),
            (".pods", true, "invalid jsonpath syntax, first node must be field node"),
            ("pods.spec.containers[0]", false, "invalid jsonpath syntax, first node must be field node"),
            ("pods.spec.containers[0]", true, "invalid jsonpath syntax, all nodes must be field nodes"),
        ] {
            let why = path_of_fields(word, of_version).err().map(|failure| failure.bare()).unwrap_or_default();
            assert_eq!(why, expected, "{word}");
        }
    }

    #[test]
    fn a_version_without_the_resource_is_another_mistake_than_none() {
        let said = |served| unknown("v1", "deployments", served).bare();
        assert_eq!(said(true), "GVR (/v1, Resource=deployments) not found in OpenAPI schema");
        assert_eq!(said(false), "couldn't find resource for \"/v1, Resource=deployments\"");
    }
}
