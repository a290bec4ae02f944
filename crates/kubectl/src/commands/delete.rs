//! `kubectl delete`: asks for the end of objects, and waits for it.

use machinery::status::go_quote;
use serde_json::{Value, json};

use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, Given, sets};
use crate::resource::helper::DryRun;
use crate::resource::{Builder, Info, arguments};

pub static COMMAND: Command = Command {
    name: "delete",
    aliases: &[],
    usage: "([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)])",
    short: "Delete resources by file names, stdin, resources and names, or by resources and label selector",
    flags: &[
        sets::FILENAME,
        sets::SELECTOR,
        sets::FIELD_SELECTOR,
        sets::ALL_NAMESPACES,
        sets::ALL,
        sets::DRY_RUN,
        &[
            Flag::string("cascade", "background", "What becomes of dependents: background, orphan or foreground.")
                .or_bare("background"),
            Flag::bool("force", "Do not wait for the end of containers."),
            Flag::int("grace-period", "-1", "Seconds that a pod gets to end; negative is the pod's own."),
            Flag::bool("ignore-not-found", "An object that is not there is no error."),
            Flag::bool("interactive", "Ask before anything is deleted.").short('i'),
            Flag::bool("now", "Short for --grace-period=1."),
            Flag::string("output", "", "Output format: name.").short('o'),
            Flag::string("raw", "", "Path on the server to delete."),
            Flag::duration("timeout", "0s", "How long to wait; 0 is decided by the size of the object."),
            Flag::bool("wait", "Return when the objects are gone.").default("true"),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

struct Options {
    dry_run: DryRun,
    grace: i64,
    cascade: &'static str,
    wait: bool,
    ignore_not_found: bool,
    names_only: bool,
}

/// `--cascade`, in the words of the API.
pub fn cascade(flags: &Given) -> Outcome<&'static str> {
    Ok(match flags.text("cascade") {
        "background" | "true" => "Background",
        "orphan" | "false" => "Orphan",
        "foreground" => "Foreground",
        other => {
            return Err(Failure::Message(format!(
                "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
            )));
        }
    })
}

fn options(invocation: &mut Invocation) -> Outcome<Options> {
    let flags = &invocation.flags;
    let cascade = cascade(flags)?;
    let names_only = match flags.text("output") {
        "" => false,
        "name" => true,
        _ if flags.arguments.is_empty() && flags.list("filename").is_empty() && flags.text("kustomize").is_empty() => {
            return Err(Failure::message(crate::resource::arguments::MISSING));
        }
        other => {
            return Err(Failure::Message(format!("unexpected -o output mode: {other}. We only support '-o name'")));
        }
    };
    if flags.is("all") && !(flags.text("selector").is_empty() && flags.text("field-selector").is_empty()) {
        return Err(Failure::message("setting 'all' parameter but found a non empty selector. "));
    }
    if let "true" | "false" = flags.text("cascade") {
        let (old, new) = (flags.text("cascade"), if cascade == "Orphan" { "orphan" } else { "background" });
        let text =
            format!("warning: --cascade={old} is deprecated (boolean value) and can be replaced with --cascade={new}.");
        invocation.streams.error(&text);
    }
    let flags = &invocation.flags;
    let mut grace = flags.int("grace-period");
    let (force, now) = (flags.is("force"), flags.is("now"));
    if now && grace != -1 {
        return Err(Failure::message("--now and --grace-period cannot be specified together"));
    }
    grace = if now { 1 } else { grace };
    if force && grace > 0 {
        return Err(Failure::message("--force and --grace-period greater than 0 cannot be specified together"));
    }
    let mut wait = flags.is("wait");
    if grace == 0 && !force {
        // Only --force gives up on containers. Waiting is turned on, for old scripts.
        grace = 1;
        wait = true;
    }
    if force && grace < 0 {
        grace = 0;
        wait = wait && flags.changed("wait");
    }
    let dry_run = DryRun::from_flags(flags)?;
    let ignore_not_found = flags.is("ignore-not-found") || (!flags.changed("ignore-not-found") && flags.is("all"));
    if force && grace == 0 && dry_run == DryRun::No {
        invocation.streams.error("Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. The resource may continue to run on the cluster indefinitely.");
    }
    Ok(Options { dry_run, grace, cascade, wait, ignore_not_found, names_only })
}

/// Whether single objects are meant, not types alone.
fn names_objects(arguments: &[String]) -> bool {
    arguments.len() > 1 || arguments.iter().any(|word| word.contains('/'))
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let mut options = options(invocation)?;
    if let Some(path) = super::raw::wanted(&invocation.flags)? {
        if invocation.flags.is("interactive") {
            return Err(Failure::message("--interactive can not be used with --raw"));
        }
        return super::raw::send(invocation, http::Method::DELETE, &path).await;
    }
    let builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    if !builder.selector.is_empty() || !builder.field_selector.is_empty() || builder.all_namespaces {
        options.ignore_not_found |= !invocation.flags.changed("ignore-not-found");
    }
    if builder.all && builder.has_no_files() && names_objects(&builder.arguments) {
        return Err(Failure::message("name cannot be provided when a selector is specified"));
    }
    let (infos, mut errors) = find(invocation, &builder).await?;
    if invocation.flags.is("interactive") && !confirmed(invocation, &infos)? {
        return Ok(());
    }
    let mut gone = Vec::new();
    let mut warn = invocation.session.namespace_given()?;
    let mut found = 0;
    for info in infos {
        if warn && !info.mapping.namespaced {
            invocation
                .streams
                .error("Warning: deleting cluster-scoped resources, not scoped to the provided namespace");
            warn = false;
        }
        found += 1;
        match delete(invocation, &info, &options).await {
            Ok(uid) => gone.push((info, uid)),
            Err(error) if error.is_not_found() && options.ignore_not_found => {}
            Err(error) => errors.push(error),
        }
    }
    Failure::all(errors)?;
    if found == 0 {
        return invocation.say("No resources found");
    }
    if options.wait && options.dry_run == DryRun::No {
        let limit = invocation.flags.duration("timeout");
        super::wait::until_gone(&invocation.session, &gone, limit).await?;
    }
    Ok(())
}

/// What is to be deleted. Objects that are named are not read first.
async fn find(invocation: &mut Invocation, builder: &Builder) -> Outcome<(Vec<Info>, Vec<Failure>)> {
    if builder.has_no_files() && !builder.arguments.is_empty() {
        let targets = arguments::targets(builder, &invocation.session).await?;
        if targets.iter().all(|target| target.name.is_some()) {
            let info = |target: arguments::Target| Info {
                mapping: target.mapping,
                namespace: target.namespace,
                name: target.name.unwrap_or_default(),
                source: String::new(),
                object: Value::Null,
            };
            return Ok((targets.into_iter().map(info).collect(), Vec::new()));
        }
    }
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    Ok((found.infos, found.errors))
}

fn confirmed(invocation: &mut Invocation, infos: &[Info]) -> Outcome<bool> {
    if infos.is_empty() {
        invocation.say("No resources found")?;
        return Ok(false);
    }
    invocation.say(&format!("You are about to delete the following {} resource(s):", infos.len()))?;
    for info in infos {
        invocation.say(&info.named())?;
    }
    invocation.print("Do you want to continue? (y/N): ")?;
    std::io::Write::flush(&mut invocation.streams.out)?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while std::io::Read::read(&mut invocation.streams.input, &mut byte)? == 1 && byte[0] != b'\n' {
        answer.push(byte[0]);
    }
    let yes = answer.eq_ignore_ascii_case(b"y");
    if !yes {
        invocation.say("deletion is cancelled")?;
    }
    Ok(yes)
}

/// Deletes one object and says so; its uid, where the server gave it.
async fn delete(invocation: &mut Invocation, info: &Info, options: &Options) -> Outcome<String> {
    let mut uid = String::new();
    if options.dry_run != DryRun::Client {
        let mut body = json!({"propagationPolicy": options.cascade});
        if options.grace >= 0 {
            body["gracePeriodSeconds"] = options.grace.into();
        }
        if options.dry_run == DryRun::Server {
            body["dryRun"] = json!(["All"]);
        }
        let api = invocation.session.api()?;
        let answer = api.send(http::Method::DELETE, &info.path(), JSON, &body).await;
        let answer = answer.map_err(|error| error.about("deleting", &info.source))?;
        let text = |path: &str| machinery::value::text(&answer, path).to_owned();
        uid = if text("kind") == "Status" { text("details.uid") } else { text("metadata.uid") };
    }
    invocation.warn();
    let mut done = if options.grace == 0 { "force deleted".to_owned() } else { "deleted".to_owned() };
    if info.mapping.namespaced {
        done += &format!(" from {} namespace", info.namespace);
    }
    let line = if options.names_only {
        info.named()
    } else {
        format!("{} {} {done}{}", info.mapping.kind_name(), go_quote(&info.name), options.dry_run.suffix())
    };
    invocation.say(&line)?;
    Ok(uid)
}
