//! `kubectl cluster-info dump`: what somebody far away needs to find out what is wrong.

use std::path::Path;

use machinery::value::{list, text};
use serde_json::Value;

use crate::api::{Api, collect};
use crate::command::{Command, Invocation};
use crate::discovery::{query, segment};
use crate::error::{Failure, Outcome, os_error};
use crate::flags::Flag;
use crate::print::{OBJECTS, Printer, Request};

pub static COMMAND: Command = Command {
    name: "dump",
    aliases: &[],
    usage: "[flags]",
    short: "Dump relevant information for debugging and diagnosis",
    flags: &[&[
        Flag::bool("all-namespaces", "Dump every namespace.").short('A'),
        Flag::bool("allow-missing-template-keys", "Fields that are missing are no error.").default("true"),
        Flag::slice("namespaces", "Namespaces to dump."),
        Flag::string("output", "json", "Output format.").short('o'),
        Flag::string("output-directory", "", "Where files are written; empty or - is standard output."),
        Flag::duration("pod-running-timeout", "20s", "How long to wait for a pod that runs."),
        Flag::bool("show-managed-fields", "Show metadata.managedFields."),
        Flag::string("template", "", "Template or file for formats that need one."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// What a namespace has, with the name of its file.
const KINDS: [(&str, &str); 7] = [
    ("/api/v1", "events"),
    ("/api/v1", "replicationcontrollers"),
    ("/api/v1", "services"),
    ("/apis/apps/v1", "daemonsets"),
    ("/apis/apps/v1", "deployments"),
    ("/apis/apps/v1", "replicasets"),
    ("/api/v1", "pods"),
];

async fn run(invocation: &mut Invocation) -> Outcome {
    super::super::patience(invocation)?;
    let api = invocation.session.api()?;
    let extension = match invocation.flags.text("output") {
        "json" => ".json",
        "yaml" => ".yaml",
        _ => ".txt",
    };
    let request = Request { allowed: OBJECTS, typed: true };
    let printer = Printer::from_flags(&invocation.flags, &invocation.session.environment, &request)?;
    // One for everything: what it separates are documents of one dump.
    let Some(mut printer) = printer else { return Ok(()) };
    if invocation.flags.text("output") == "name" {
        return Err(Failure::message("list types are not supported by name printing: *v1.NodeList"));
    }
    let nodes = api.get("/api/v1/nodes").await?;
    print(invocation, &mut printer, &nodes, &format!("nodes{extension}"))?;
    let given = invocation.flags.list("namespaces");
    let namespaces = if invocation.flags.is("all-namespaces") {
        let all = api.get("/api/v1/namespaces").await?;
        list(&all, "items").iter().map(|namespace| text(namespace, "metadata.name").to_owned()).collect()
    } else if given.is_empty() {
        vec!["kube-system".to_owned(), invocation.session.namespace()?]
    } else {
        given
    };
    for namespace in namespaces {
        let mut pods = Value::Null;
        for (group, resource) in KINDS {
            let found = api.get(&format!("{group}/namespaces/{}/{resource}", segment(&namespace))).await?;
            let name = if resource == "replicationcontrollers" { "replication-controllers" } else { resource };
            print(invocation, &mut printer, &found, &format!("{namespace}/{name}{extension}"))?;
            pods = found;
        }
        for pod in list(&pods, "items") {
            let logs = logs(&api, pod).await?;
            let name = format!("{namespace}/{}/logs.txt", text(pod, "metadata.name"));
            write(invocation, &name, &logs)?;
        }
    }
    match directory(invocation) {
        Some(directory) => invocation.say(&format!("Cluster info dumped to {directory}")),
        None => Ok(()),
    }
}

fn directory(invocation: &Invocation) -> Option<String> {
    invocation.flags.given("output-directory").filter(|directory| *directory != "-").map(str::to_owned)
}

fn print(invocation: &mut Invocation, printer: &mut Printer, found: &Value, name: &str) -> Outcome {
    let mut found = found.clone();
    if printer.omits_managed_fields() && !invocation.flags.is("show-managed-fields") {
        crate::print::without_managed_fields(&mut found);
    }
    // As Go writes a list that has nothing in it.
    if list(&found, "items").is_empty() {
        found["items"] = Value::Null;
    }
    let text = printer.print(&found)?;
    write(invocation, name, text.as_bytes())
}

/// Writes to standard output, or to a file that nobody else may read: logs hold secrets.
fn write(invocation: &mut Invocation, name: &str, content: &[u8]) -> Outcome {
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let Some(directory) = directory(invocation) else {
        return Ok(invocation.streams.out.write_all(content)?);
    };
    let path = invocation.session.environment.path(&directory).join(name);
    let shown = path.display().to_string();
    let failed = |error: std::io::Error| Failure::Message(os_error("open", &shown, &error));
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(failed)?;
    Ok(file.write_all(content)?)
}

async fn logs(api: &Api, pod: &Value) -> Outcome<Vec<u8>> {
    let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
    let mut all = Vec::new();
    for container in list(pod, "spec.initContainers").iter().chain(list(pod, "spec.containers")) {
        let container = text(container, "name");
        let of = format!("container {container} of pod {namespace}/{name}");
        all.extend_from_slice(format!("==== START logs for {of} ====\n").as_bytes());
        let pairs = query(&[("container", container)]);
        let path = format!("/api/v1/namespaces/{}/pods/{}/log{pairs}", segment(namespace), segment(name));
        match api.stream(http::Method::GET, &path, None, "*/*").await {
            Ok((_, chunks)) => all.extend_from_slice(&collect(chunks).await?),
            Err(error) => all.extend_from_slice(format!("Request log error: {}\n", error.bare()).as_bytes()),
        }
        all.extend_from_slice(format!("==== END logs for {of} ====\n").as_bytes());
    }
    Ok(all)
}
