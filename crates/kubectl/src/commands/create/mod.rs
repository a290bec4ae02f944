//! `kubectl create`: objects from files, or made from flags by a generator.

mod data;
mod ingress;
mod policy;
mod rbac;
mod rbac_rules;
mod services;
mod token;
mod workloads;

use serde_json::Value;

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::record;
use crate::report::Report;
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{Builder, Info, files, info};

pub static COMMAND: Command = Command {
    name: "create",
    aliases: &[],
    usage: "-f FILENAME",
    short: "Create a resource from a file or from stdin",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::DRY_RUN,
        sets::RECORD,
        sets::SELECTOR,
        sets::VALIDATE,
        sets::SAVE_CONFIG,
        &[
            sets::field_manager("kubectl-create"),
            Flag::bool("edit", "Edit the objects before they are created."),
            Flag::string("raw", "", "Path on the server to post the file to."),
            Flag::bool("windows-line-endings", "Edit with line endings of Windows."),
        ],
    ],
    children: &[
        &rbac::CLUSTER_ROLE,
        &rbac::CLUSTER_ROLE_BINDING,
        &data::CONFIG_MAP,
        &workloads::CRON_JOB,
        &workloads::DEPLOYMENT,
        &ingress::COMMAND,
        &workloads::JOB,
        &policy::NAMESPACE,
        &policy::POD_DISRUPTION_BUDGET,
        &policy::PRIORITY_CLASS,
        &policy::QUOTA,
        &rbac::ROLE,
        &rbac::ROLE_BINDING,
        &data::SECRET,
        &services::COMMAND,
        &policy::SERVICE_ACCOUNT,
        &token::COMMAND,
    ],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// Flags of every generator.
pub(super) static GENERATOR: &[Flag] = &[
    Flag::string("output", "", "Output format.").short('o'),
    Flag::string("template", "", "Template or file for formats that need one."),
    Flag::bool("allow-missing-template-keys", "Fields that are missing are no error.").default("true"),
    Flag::bool("show-managed-fields", "Show metadata.managedFields."),
    Flag::string("dry-run", "none", "none, client or server: what is only shown.").or_bare("unchanged"),
    Flag::string("validate", "strict", "strict, warn or ignore.").or_bare("strict"),
    Flag::bool("save-config", "Remember the configuration in an annotation."),
    sets::field_manager("kubectl-create"),
];

/// What `apply` remembers of an object.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

async fn run(invocation: &mut Invocation) -> Outcome {
    // Flags that cannot be read are told before what is missing.
    let writing = Writing::from_flags(&invocation.flags)?;
    let mut report = Report::new(invocation, writing.dry_run, false)?;
    let flags = &invocation.flags;
    if flags.list("filename").is_empty() && flags.text("kustomize").is_empty() {
        if !flags.arguments.is_empty() {
            return Err(invocation.usage(format_args!("Unexpected args: [{}]", flags.arguments.join(" "))));
        }
        return Err(Failure::message("must specify one of -f and -k"));
    }
    if !flags.arguments.is_empty() {
        return Err(invocation.usage(format_args!("Unexpected args: [{}]", flags.arguments.join(" "))));
    }
    if let Some(path) = super::raw::wanted(flags)? {
        return super::raw::send(invocation, http::Method::POST, &path).await;
    }
    let save = flags.is("save-config");
    let builder = Builder { latest: false, ..Builder::from_flags(&invocation.session, flags)? };
    let selector = builder.label_selector()?;
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    if invocation.flags.is("edit") {
        return super::edit::before_create(invocation, found.all()?).await;
    }
    let mut errors = Vec::new();
    let mut count = 0;
    for mut info in found.infos {
        let labels = machinery::value::at(&info.object, "metadata.labels").unwrap_or(&Value::Null);
        if !builder.selector.is_empty() && !selector.matches_labels(labels) {
            continue;
        }
        if save {
            remember(&mut info.object);
        }
        record::note(invocation, &mut info.object);
        count += 1;
        let source = info.source.clone();
        match create(invocation, &writing, info).await {
            Ok(object) => report.say(invocation, &object, "created")?,
            Err(error) => errors.push(error.about("creating", &source)),
        }
    }
    errors.extend(found.errors);
    if count == 0 && errors.is_empty() {
        return Err(Failure::message("no objects passed to create"));
    }
    Failure::all(errors)
}

/// Creates an object, or gives what would be created.
async fn create(invocation: &mut Invocation, writing: &Writing, info: Info) -> Outcome<Value> {
    if writing.dry_run == DryRun::Client {
        return Ok(info.object);
    }
    let api = invocation.session.api()?;
    writing.create(&api, &info).await
}

/// Puts the object itself into the annotation that `apply` compares with.
pub fn remember(object: &mut Value) {
    machinery::value::as_object_mut(object);
    if let Some(Value::Object(annotations)) = machinery::value::at_mut(object, "metadata.annotations") {
        annotations.remove(LAST_APPLIED);
        // Upstream reads annotations as a map of texts, in which nothing is an empty one.
        annotations.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
        if annotations.is_empty() {
            machinery::value::remove(object, "metadata.annotations");
        }
    }
    // Upstream's encoder writes an empty map of annotations, and a newline at the end.
    let mut plain = object.clone();
    machinery::value::set_default(&mut plain, "metadata.annotations", Value::Object(serde_json::Map::new()));
    let text = machinery::codec::json::html_safe(&plain.to_string()) + "\n";
    let metadata = machinery::value::object_mut(object, "metadata");
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Value::Object(annotations) = annotations {
        annotations.insert(LAST_APPLIED.to_owned(), text.into());
    }
}

/// Remembers an object that was made here, in the order of its kind's fields.
pub fn remember_typed(object: &mut Value) {
    let text = crate::print::json::compact_of_kind(object) + "\n";
    machinery::value::object_mut(&mut object["metadata"], "annotations").insert(LAST_APPLIED.to_owned(), text.into());
}

/// What a generator made is created, or shown.
/// `what` is how failures name it, where upstream names it at all.
pub(super) async fn generated(invocation: &mut Invocation, what: &str, mut object: Value) -> Outcome {
    let writing = Writing::from_flags(&invocation.flags)?;
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mapping = files::local(&text("apiVersion"), &text("kind")).unwrap_or_default();
    let connection = invocation.session.connection();
    let namespace = match &connection {
        Ok(connection) => connection.namespace.clone(),
        Err(_) if writing.dry_run == DryRun::Client => "default".to_owned(),
        Err(_) => return connection.map(|_| ()),
    };
    if mapping.namespaced && connection.is_ok_and(|connection| connection.namespace_given) {
        machinery::value::set(&mut object, "metadata.namespace", namespace.as_str());
    }
    // Upstream's generators of Services have the flag and do nothing by it.
    if invocation.flags.is("save-config") && mapping.kind != "Service" {
        remember_typed(&mut object);
    }
    let mut report = Report::new(invocation, writing.dry_run, true)?;
    let mut made = info(&mapping, object, "");
    if mapping.namespaced {
        made.namespace = namespace;
    }
    let object = create(invocation, &writing, made).await.map_err(|error| match what {
        "" => error,
        what => Failure::Message(format!("failed to create {what} {}", error.bare())),
    })?;
    report.say(invocation, &object, "created")
}

/// The one name that a generator is given.
pub(super) fn name(invocation: &Invocation) -> Outcome<String> {
    match &invocation.flags.arguments[..invocation.flags.dash.unwrap_or(invocation.flags.arguments.len())] {
        [name] => Ok(name.clone()),
        other => {
            let kind = if other.is_empty() { 0 } else { other.len() };
            Err(invocation.usage(format_args!("exactly one NAME is required, got {kind}")))
        }
    }
}

/// Refuses a command line that leaves out flags which must be there.
pub fn required(invocation: &Invocation, flags: &[&str]) -> Outcome {
    let missing: Vec<String> =
        flags.iter().filter(|flag| !invocation.flags.changed(flag)).map(|flag| format!("\"{flag}\"")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Message(format!("required flag(s) {} not set", missing.join(", "))))
}
