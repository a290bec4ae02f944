//! `kubectl get`: objects as tables or in a format of the user's choice, once or as they change.

mod contexts;
mod human;
mod watch;

use serde_json::{Value, json};

use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::sort::{self, Unsorted};
use crate::print::{self, Printer, Request};
use crate::resource::{Builder, Found, Info};

pub static COMMAND: Command = Command {
    name: "get",
    aliases: &[],
    usage: "[(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file|custom-columns|custom-columns-file|wide] (TYPE[.VERSION][.GROUP] [NAME | -l label] | TYPE[.VERSION][.GROUP]/NAME ...) [flags]",
    short: "Display one or many resources",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::SELECTOR,
        sets::FIELD_SELECTOR,
        sets::ALL_NAMESPACES,
        sets::CHUNK_SIZE,
        &[
            Flag::string("at", "", "Show how it was: a revision, a time, or how long ago."),
            Flag::slice("contexts", "Contexts of the kubeconfig to ask, all at once."),
            Flag::bool("ignore-not-found", "An object that is not there is no error."),
            Flag::slice("label-columns", "Labels to be shown as columns.").short('L'),
            Flag::bool("no-headers", "Print no headers."),
            Flag::bool("output-watch-events", "Say what happened to each object of a watch."),
            Flag::string("raw", "", "Path on the server to read as it is."),
            Flag::bool("server-print", "Let the server make the table.").default("true"),
            Flag::bool("show-kind", "Show the kind before each name."),
            Flag::bool("show-labels", "Show all labels as the last column."),
            Flag::string("sort-by", "", "Path of the field to sort by."),
            Flag::string("subresource", "", "Part of the object to read."),
            Flag::bool("watch", "Show changes after the list.").short('w'),
            Flag::bool("watch-only", "Show only changes."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    validate(invocation)?;
    let contexts = invocation.flags.list("contexts");
    if !contexts.is_empty() {
        return contexts::run(invocation, &contexts).await;
    }
    if let Some(given) = invocation.flags.given("raw") {
        let path = super::raw::checked(given)?;
        return raw(invocation, &path).await;
    }
    let request = Request { allowed: print::ALL, typed: false };
    let wide = invocation.flags.text("output") == "wide";
    let printer = Printer::from_flags(&invocation.flags, &invocation.session.environment, &request);
    let printer = if wide { Ok(None) } else { printer };
    let mut builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    builder.types_mean_all = true;
    // Objects of any namespace may be looked at, wherever their file says they are.
    builder.enforce_namespace = false;
    if builder.has_no_files() && builder.arguments.is_empty() {
        return Err(Failure::Plain(
            "You must specify the type of resource to get. Use \"kubectl api-resources\" for a complete list of supported resources.\n\nerror: Required resource not specified.\nUse \"kubectl explain <resource>\" for a detailed description of that resource (e.g. kubectl explain pods).\nSee 'kubectl get -h' for help and examples".to_owned(),
        ));
    }
    if !builder.subresource.is_empty() && builder.has_no_files() && names_no_object(&builder.arguments) {
        return Err(Failure::message("subresource cannot be used when bulk resources are specified"));
    }
    if invocation.flags.is("watch") || invocation.flags.is("watch-only") {
        return watch::run(invocation, &builder, printer?, wide).await;
    }
    if !invocation.flags.text("sort-by").is_empty() {
        builder.chunk = 0;
    }
    match printer {
        Ok(None) => human::run(invocation, &builder, wide).await,
        Ok(Some(printer)) => generic(invocation, builder, Ok(printer)).await,
        Err(refused) => generic(invocation, builder, Err(refused)).await,
    }
}

/// Whether the arguments are types alone.
fn names_no_object(arguments: &[String]) -> bool {
    matches!(arguments, [types] if !types.contains('/'))
}

fn validate(invocation: &Invocation) -> Outcome {
    let flags = &invocation.flags;
    if flags.given("raw").is_some() {
        if flags.is("watch") || flags.is("watch-only") || !flags.text("selector").is_empty() {
            return Err(Failure::message(
                "--raw may not be specified with other flags that filter the server request or alter the output",
            ));
        }
        if !flags.text("output").is_empty() {
            return Err(Failure::message("--raw and --output are mutually exclusive"));
        }
        if !flags.arguments.is_empty() {
            return Err(Failure::message("arguments may not be passed when --raw is specified"));
        }
        super::raw::checked(flags.text("raw")).map(drop)?;
    }
    if !flags.text("at").is_empty() && (flags.is("watch") || flags.is("watch-only")) {
        return Err(Failure::message("--at cannot be used with --watch: the past does not change"));
    }
    if flags.is("show-labels") {
        let output = flags.text("output");
        if !matches!(output, "" | "wide") {
            return Err(Failure::Message(format!("--show-labels option cannot be used with {output} printer")));
        }
    }
    if flags.is("output-watch-events") && !(flags.is("watch") || flags.is("watch-only")) {
        return Err(Failure::message("--output-watch-events option can only be used with --watch or --watch-only"));
    }
    Ok(())
}

async fn raw(invocation: &mut Invocation, path: &str) -> Outcome {
    use futures::StreamExt as _;
    let (_, mut chunks) = invocation.session.api()?.stream(http::Method::GET, path, None, JSON).await?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Failure::Message(error.to_string()))?;
        invocation.streams.out.write_all(&chunk)?;
    }
    Ok(())
}

/// Everything that was found, as one object or one list. What is not found is told before a format that there is not.
async fn generic(invocation: &mut Invocation, builder: Builder, printer: Outcome<Printer>) -> Outcome {
    let mut builder = builder;
    builder.latest = true;
    let Found { mut infos, mut errors, singular } = builder.infos(&invocation.session, &mut invocation.streams).await?;
    if invocation.flags.is("ignore-not-found") {
        errors.retain(|error| !error.is_not_found());
        if infos.is_empty() && errors.is_empty() {
            return Ok(());
        }
    }
    if infos.is_empty() && !errors.is_empty() {
        return Failure::all(errors);
    }
    let mut printer = printer?;
    let sort_by = invocation.flags.text("sort-by").to_owned();
    if !sort_by.is_empty() && !singular {
        sort::sort(&mut infos, &sort_by, |info: &Info| &info.object).map_err(Unsorted::into_failure)?;
    }
    let mut object = match infos.len() {
        1 if singular => infos.remove(0).object,
        _ => json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""},
            "items": infos.into_iter().map(|info| info.object).collect::<Vec<Value>>(),
        }),
    };
    if printer.omits_managed_fields() && !invocation.flags.is("show-managed-fields") {
        print::without_managed_fields(&mut object);
    }
    let text = printer.print(&object)?;
    invocation.print(&text)?;
    Failure::all(errors)
}

use std::io::Write as _;
