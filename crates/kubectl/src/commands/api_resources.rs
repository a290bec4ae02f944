//! `kubectl api-resources`.

use machinery::status::go_quote;
use serde_json::{Value, json};

use crate::command::{Command, Invocation};
use crate::discovery::{Discovery, Mapping};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::print::tabs::Tabs;
use crate::print::{Printer, Request};

pub static COMMAND: Command = Command {
    name: "api-resources",
    aliases: &[],
    usage: "[flags]",
    short: "Print the supported API resources on the server",
    flags: &[&[
        Flag::string("api-group", "", "Show only this group."),
        Flag::bool("cached", "Use what is remembered."),
        Flag::slice("categories", "Show only these categories."),
        Flag::bool("namespaced", "Show namespaced resources, or others.").default("true"),
        Flag::bool("no-headers", "Print no headers."),
        Flag::string("output", "", "Output format: wide, name, json, yaml, kyaml.").short('o'),
        Flag::bool("show-managed-fields", "Show metadata.managedFields."),
        Flag::string("sort-by", "", "name or kind."),
        Flag::slice("verbs", "Show only resources with these verbs."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    if !invocation.flags.arguments.is_empty() {
        return Err(invocation.usage(format_args!("unexpected arguments: [{}]", invocation.flags.arguments.join(" "))));
    }
    let sort = invocation.flags.text("sort-by").to_owned();
    if !matches!(sort.as_str(), "" | "name" | "kind") {
        return Err(Failure::message("--sort-by accepts only name or kind"));
    }
    let output = invocation.flags.text("output").to_owned();
    if !["", "wide", "name", "json", "yaml", "kyaml"].contains(&output.as_str()) {
        return Err(Failure::Message(format!(
            "unable to match a printer suitable for the output format {}, allowed formats are: json,kyaml,name,wide,yaml",
            go_quote(&output)
        )));
    }
    let discovery = if invocation.flags.is("cached") {
        invocation.session.discovery().await?
    } else {
        invocation.session.rediscover().await?
    };
    let mut resources = select(&discovery, invocation);
    match sort.as_str() {
        "name" => resources.sort_by(|left, right| left.resource.cmp(&right.resource)),
        "kind" => resources.sort_by(|left, right| left.kind.cmp(&right.kind)),
        _ => resources.sort_by(|left, right| (&left.group, &left.resource).cmp(&(&right.group, &right.resource))),
    }
    let text = match output.as_str() {
        "name" => resources.iter().map(|mapping| mapping.qualified() + "\n").collect(),
        "" | "wide" => table(&resources, output == "wide", invocation.flags.is("no-headers")),
        _ => structured(invocation, &resources)?,
    };
    invocation.print(&text)?;
    let failed = discovery.failed.iter().map(|(version, why)| format!("{version}: {why}")).collect::<Vec<_>>();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Message(format!("unable to retrieve the complete list of server APIs: {}", failed.join(", "))))
}

/// Resources in their preferred version, of the groups, scopes, verbs and categories that were asked for.
fn select<'a>(discovery: &'a Discovery, invocation: &Invocation) -> Vec<&'a Mapping> {
    let flags = &invocation.flags;
    let (verbs, categories) = (flags.list("verbs"), flags.list("categories"));
    let mut found: Vec<&Mapping> = Vec::new();
    for mapping in discovery.ordered() {
        let wanted = (!flags.changed("api-group") || mapping.group == flags.text("api-group"))
            && (!flags.changed("namespaced") || mapping.namespaced == flags.is("namespaced"))
            && !mapping.verbs.is_empty()
            && verbs.iter().all(|verb| mapping.has_verb(verb))
            && categories.iter().all(|category| mapping.categories.contains(category));
        let known = found.iter().any(|other| other.group == mapping.group && other.resource == mapping.resource);
        if wanted && !known {
            found.push(mapping);
        }
    }
    found
}

fn table(resources: &[&Mapping], wide: bool, no_headers: bool) -> String {
    let mut text = String::new();
    if !no_headers {
        text += "NAME\tSHORTNAMES\tAPIVERSION\tNAMESPACED\tKIND";
        text += if wide { "\tVERBS\tCATEGORIES\n" } else { "\n" };
    }
    for mapping in resources {
        let short = mapping.short_names.join(",");
        text += &format!(
            "{}\t{short}\t{}\t{}\t{}",
            mapping.resource,
            mapping.api_version(),
            mapping.namespaced,
            mapping.kind
        );
        if wide {
            text += &format!("\t{}\t{}", mapping.verbs.join(","), mapping.categories.join(","));
        }
        text.push('\n');
    }
    Tabs::new().align(&text)
}

fn structured(invocation: &Invocation, resources: &[&Mapping]) -> Outcome<String> {
    let entry = |mapping: &&Mapping| {
        let mut entry = json!({
            "name": mapping.resource, "singularName": mapping.singular, "namespaced": mapping.namespaced,
            "version": mapping.version, "kind": mapping.kind, "verbs": mapping.verbs,
        });
        for (name, list) in [("shortNames", &mapping.short_names), ("categories", &mapping.categories)] {
            if !list.is_empty() {
                entry[name] = json!(list);
            }
        }
        if !mapping.group.is_empty() {
            entry["group"] = mapping.group.as_str().into();
        }
        entry
    };
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "",
        "resources": resources.iter().map(entry).collect::<Vec<Value>>(),
    });
    let request = Request { allowed: "json,kyaml,name,wide,yaml", typed: true };
    match Printer::from_flags(&invocation.flags, &invocation.session.environment, &request)? {
        Some(mut printer) => printer.print(&list),
        None => Ok(String::new()),
    }
}
