//! `kubectl apply`: makes objects what files say, and remembers what they said.

mod ahead;
mod last_applied;
mod migrate;
mod prune;
mod set;
mod trace;

pub use prune::{prunable, warn as warn_of_pruning};

use machinery::status::{Reason, go_quote};
use serde_json::{Value, json};

use super::create::{LAST_APPLIED, remember};
use crate::api::{Api, JSON};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::patch;
use crate::record;
use crate::report::Report;
use crate::resource::helper::{DryRun, JSON_PATCH, MERGE, STRATEGIC, Writing};
use crate::resource::{Builder, Info};

/// How often a migration is planned anew, where somebody else was faster.
const MIGRATIONS: u32 = 5;

pub static COMMAND: Command = Command {
    name: "apply",
    aliases: &[],
    usage: "(-f FILENAME | -k DIRECTORY)",
    short: "Apply a configuration to a resource by file name or stdin",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::DRY_RUN,
        sets::RECORD,
        sets::SELECTOR,
        sets::VALIDATE,
        sets::ALL,
        &[
            sets::field_manager("kubectl-client-side-apply"),
            Flag::string("applyset", "", "Object that keeps what belongs together.").hidden(),
            Flag::string("cascade", "background", "What becomes of dependents of objects that are replaced.")
                .or_bare("background"),
            Flag::bool("force", "Delete and create objects that cannot be changed."),
            Flag::bool("force-conflicts", "Take fields that others own."),
            Flag::int("grace-period", "-1", "Seconds that a pod gets to end; negative is the pod's own."),
            Flag::bool("openapi-patch", "Use the server's schema for patches.").default("true"),
            Flag::bool("overwrite", "Changes of others give way.").default("true"),
            Flag::bool("prune", "Delete what was applied before and is no longer there."),
            Flag::array("prune-allowlist", "Kinds to prune, as group/version/kind."),
            Flag::bool("server-side", "Let the server merge."),
            Flag::string("subresource", "", "Part of the object to apply."),
            Flag::duration("timeout", "0s", "How long to wait for an end."),
            Flag::bool("trace", "Show the hops of this apply as they happen."),
            Flag::bool("wait", "Wait until what is deleted is gone."),
        ],
    ],
    children: &[&super::edit::LAST, &last_applied::SET, &last_applied::VIEW],
    run: Some(|invocation| Box::pin(run(invocation))),
};

fn validate(invocation: &Invocation) -> Outcome<Writing> {
    let flags = &invocation.flags;
    if !flags.arguments.is_empty() {
        return Err(invocation.usage(format_args!("Unexpected args: [{}]", flags.arguments.join(" "))));
    }
    if flags.changed("applyset") && invocation.session.environment.variable("KUBECTL_APPLYSET") != Some("true") {
        return Err(Failure::Message("unknown flag: --applyset\nSee 'kubectl apply --help' for usage.".to_owned()));
    }
    let mut writing = Writing::from_flags(flags)?;
    let server = flags.is("server-side");
    if server && !flags.changed("field-manager") {
        "kubectl".clone_into(&mut writing.manager);
    }
    let dry = writing.dry_run;
    let wrong = if flags.is("force-conflicts") && !server {
        "--force-conflicts only works with --server-side"
    } else if dry == DryRun::Client && server {
        "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)"
    } else if flags.is("force") && server {
        "--force cannot be used with --server-side"
    } else if dry == DryRun::Server && flags.is("force") {
        "--dry-run=server cannot be used with --force"
    } else if flags.is("all") && !flags.text("selector").is_empty() {
        "cannot set --all and --selector at the same time"
    } else if flags.changed("applyset") && !flags.is("prune") {
        "--applyset requires --prune"
    } else if flags.changed("applyset") && flags.is("all") {
        "--all is incompatible with --applyset"
    } else if flags.changed("applyset") && !flags.text("selector").is_empty() {
        "--selector is incompatible with --applyset"
    } else if flags.changed("applyset") && !flags.list("prune-allowlist").is_empty() {
        "--prune-allowlist is incompatible with --applyset"
    } else if flags.is("force") && flags.is("prune") {
        "--force cannot be used with --prune"
    } else if flags.is("prune") && !flags.is("all") && flags.text("selector").is_empty() && !flags.changed("applyset") {
        "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all flag. If you did not mean to prune all resources, specify a label selector"
    } else if flags.is("prune") && server && !flags.changed("applyset") {
        "--prune is in alpha and doesn't currently work on objects created by server-side apply"
    } else if flags.changed("subresource") && !server {
        "--subresource can only be specified for --server-side"
    } else if flags.list("filename").is_empty() && flags.text("kustomize").is_empty() {
        "must specify one of -f and -k"
    } else {
        return Ok(writing);
    };
    Err(Failure::message(wrong))
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let begun = jiff::Timestamp::now();
    super::delete::cascade(&invocation.flags)?;
    let writing = validate(invocation)?;
    prune::check(invocation)?;
    let mut set = match invocation.flags.given("applyset").map(str::to_owned) {
        Some(reference) => Some(set::Set::named(invocation, &reference).await?),
        None => None,
    };
    let builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    let selector = builder.label_selector()?;
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let mut errors = found.errors;
    let mut report = Report::new(invocation, writing.dry_run, false)?;
    let mut applied: Vec<Info> = Vec::new();
    let mut shown: Vec<Value> = Vec::new();
    let fits = |info: &Info| {
        let labels = machinery::value::at(&info.object, "metadata.labels").unwrap_or(&Value::Null);
        builder.selector.is_empty() || selector.matches_labels(labels)
    };
    let mut infos: Vec<Info> = found.infos.into_iter().filter(fits).collect();
    if let Some(set) = &mut set {
        set.label(&mut infos)?;
        set.begin(invocation, &writing, &infos).await?;
    }
    // The log of a verbose command tells requests in the order of the objects.
    let together = infos.len() > 1 && invocation.flags.int("v") == 0;
    let early = together && !invocation.flags.is("server-side");
    let mut ahead = early.then(|| invocation.session.api().map(|api| ahead::read(api, &infos))).transpose()?;
    let most = if together && !invocation.flags.is("force") { ahead::MOST } else { 1 };
    let mut batches = ahead::batches(infos, most).into_iter().peekable();
    let mut live = ahead::take(&mut ahead, batches.peek().map_or(0, Vec::len)).await;
    while let Some(batch) = batches.next() {
        let (shared, writing) = (&*invocation, &writing);
        let writes = batch.into_iter().zip(live).map(|(mut info, live)| async move {
            let mut said = Vec::new();
            let done = one(shared, writing, &mut info, live, &mut said).await;
            (info, done, said)
        });
        let further = ahead::take(&mut ahead, batches.peek().map_or(0, Vec::len));
        let (outcomes, next) = futures::join!(futures::future::join_all(writes), further);
        live = next;
        for (info, done, said) in outcomes {
            said.iter().for_each(|text| invocation.streams.error(text));
            match done {
                Ok(done) => {
                    if report.shows_objects() {
                        shown.push(info.object.clone());
                    } else {
                        report.say(invocation, &info.object, done)?;
                    }
                    applied.push(info);
                }
                Err(error) => errors.push(error),
            }
        }
    }
    if applied.is_empty() && errors.is_empty() {
        return Err(Failure::message("no objects passed to apply"));
    }
    // Formats show everything at once.
    if shown.len() == 1 {
        report.say(invocation, &shown[0], "")?;
    } else if !shown.is_empty() {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": shown});
        report.say(invocation, &list, "")?;
    }
    if invocation.flags.is("trace") {
        trace::follow(invocation, begun, &applied).await?;
    }
    Failure::all(errors)?;
    if let Some(set) = set {
        return set.prune(invocation, &writing, &applied).await;
    }
    if invocation.flags.is("prune") {
        prune::run(invocation, &writing, &builder, &applied).await?;
    }
    Ok(())
}

/// Applies one object; what became of it. `said` is what the user should hear besides.
async fn one(
    invocation: &Invocation,
    writing: &Writing,
    info: &mut Info,
    live: Option<Outcome<Value>>,
    said: &mut Vec<String>,
) -> Outcome<&'static str> {
    if info.name.is_empty() {
        let generated = machinery::value::text(&info.object, "metadata.generateName");
        if !generated.is_empty() {
            return Err(Failure::Message(format!("from {generated}: cannot use generate name with apply")));
        }
    }
    record::note(invocation, &mut info.object);
    if invocation.flags.is("server-side") {
        return server_side(invocation, writing, info, said).await;
    }
    let api = invocation.session.api()?;
    remember(&mut info.object);
    let live = match live {
        Some(live) => live,
        None => current(&api, info).await,
    };
    let current = match live {
        Ok(current) => current,
        Err(error) if error.is_not_found() => {
            prune_nulls(&mut info.object);
            if writing.dry_run != DryRun::Client {
                let made = writing.create(&api, info).await;
                let made = made.map_err(|error| error.about("creating", &info.source))?;
                info.refresh(made);
            }
            return Ok("created");
        }
        Err(error) => {
            let what = format!("retrieving current configuration of:\n{}\nfrom server for:", described(info));
            return Err(error.about(&what, &info.source));
        }
    };
    let original = machinery::value::at(&current, "metadata.annotations").and_then(|all| all.get(LAST_APPLIED));
    if original.is_none() {
        let named = format!("{}/{}", info.mapping.resource, info.name);
        said.push(format!("Warning: resource {named} is missing the {LAST_APPLIED} annotation which is required by kubectl apply. kubectl apply should only be used on resources created declaratively by either kubectl create --save-config or kubectl apply. The missing annotation will be patched automatically."));
    }
    let original: Value =
        original.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let modified = std::mem::take(&mut info.object);
    let (content_type, patch) = plan(info, &original, &modified, &current);
    let unchanged = patch.as_object().is_some_and(serde_json::Map::is_empty);
    if unchanged {
        info.refresh(current);
    } else if writing.dry_run == DryRun::Client {
        info.object = locally(info, current, content_type, patch);
    } else {
        match writing.patch(&api, info, content_type, &patch).await {
            Ok(object) => info.refresh(object),
            Err(error) if invocation.flags.is("force") => {
                recreate(invocation, writing, info, (&modified, current), error).await?;
            }
            Err(error) => {
                info.object = modified;
                let what = format!("applying patch:\n{patch}\nto:\n{}\nfor:", described(info));
                return Err(error.about(&what, &info.source));
            }
        }
    }
    if !machinery::value::text(&info.object, "metadata.deletionTimestamp").is_empty() {
        let name = info.name.clone();
        said.push(format!("Warning: Detected changes to resource {name} which is currently being deleted."));
    }
    Ok(if unchanged { "unchanged" } else { "configured" })
}

/// What the server has of an object, which must have a name to be asked for.
async fn current(api: &Api, info: &Info) -> Outcome<Value> {
    if info.name.is_empty() {
        return Err(Failure::message("resource name may not be empty"));
    }
    crate::resource::named(api, &info.namespace, &info.path(), JSON).await
}

/// Built-in kinds are patched strategically, others by a merge of JSON.
pub fn plan(info: &Info, original: &Value, modified: &Value, current: &Value) -> (&'static str, Value) {
    match facts::type_of(&info.mapping.group, &info.mapping.version, &info.mapping.kind) {
        Some(of) => (STRATEGIC, patch::strategic(original, modified, current, of.def())),
        None => (MERGE, patch::merge(original, modified, current)),
    }
}

/// What the server would make of a patch, as far as that can be known here.
pub fn locally(info: &Info, mut current: Value, content_type: &str, patch: Value) -> Value {
    let of = facts::type_of(&info.mapping.group, &info.mapping.version, &info.mapping.kind);
    match of.filter(|_| content_type == STRATEGIC) {
        Some(of) => {
            if machinery::patch::strategic::apply(&mut current, patch, of.def()).is_err() {
                return current;
            }
        }
        None => machinery::patch::merge::apply(&mut current, patch),
    }
    current
}

/// `--force`: what cannot be changed is deleted and made anew.
async fn recreate(
    invocation: &Invocation,
    writing: &Writing,
    info: &mut Info,
    (modified, before): (&Value, Value),
    error: Failure,
) -> Outcome {
    let refused = matches!(&error, Failure::Api(error) if matches!(error.code, 409 | 422));
    if !refused {
        return Err(error);
    }
    let api = invocation.session.api()?;
    let mut options = json!({"propagationPolicy": "Background"});
    let grace = invocation.flags.int("grace-period");
    options["gracePeriodSeconds"] = grace.max(0).into();
    let answer = writing.delete(&api, info, &options).await?;
    let uid = machinery::value::text(&answer, "metadata.uid").to_owned();
    super::wait::until_gone(&invocation.session, &[(info.clone(), uid)], invocation.flags.duration("timeout")).await?;
    info.object = modified.clone();
    let made = match writing.create(&api, info).await {
        Ok(made) => made,
        Err(refused) => {
            // Whoever cannot have the new one keeps the old one.
            info.object = before;
            machinery::value::remove(&mut info.object, "metadata.resourceVersion");
            return match writing.create(&api, info).await {
                Ok(_) => Err(refused),
                Err(lost) => Err(Failure::Message(format!(
                    "An error occurred force-replacing the existing object with the newly provided one:\n\n{}.\n\nAdditionally, an error occurred attempting to restore the original object:\n\n{}",
                    refused.bare(),
                    lost.bare()
                ))),
            };
        }
    };
    info.refresh(made);
    Ok(())
}

async fn server_side(
    invocation: &Invocation,
    writing: &Writing,
    info: &mut Info,
    said: &mut Vec<String>,
) -> Outcome<&'static str> {
    let api = invocation.session.api()?;
    let force = invocation.flags.is("force-conflicts");
    let answer = writing.apply(&api, info, &info.object, force).await;
    let object = answer.map_err(|error| match error {
        Failure::Api(error) if error.is(Reason::Conflict) => Failure::Message(format!("{}\n{CONFLICT}", error.message)),
        other => other,
    })?;
    let applied = std::mem::replace(&mut info.object, object);
    if writing.dry_run == DryRun::No && writing.subresource.is_empty() {
        said.extend(migrate(invocation, writing, info, &applied, force).await);
    }
    Ok("serverside-applied")
}

/// Takes over what client-side apply owned. The object is applied by now: what goes wrong here is tried again next time.
async fn migrate(
    invocation: &Invocation,
    writing: &Writing,
    info: &mut Info,
    applied: &Value,
    force: bool,
) -> Option<String> {
    let warning = migrated(invocation, writing, info, applied, force).await.err()?.bare();
    Some(format!(
        "Warning: failed to migrate kubectl's managed fields to Server-Side Apply: {warning}. This is non-fatal and will be retried next time you apply."
    ))
}

async fn migrated(
    invocation: &Invocation,
    writing: &Writing,
    info: &mut Info,
    applied: &Value,
    force: bool,
) -> Outcome {
    let api = invocation.session.api()?;
    if writing.manager == "kubectl"
        && let Some(annotation) = migrate::annotation(&info.object)
    {
        let keeper = Writing { manager: migrate::ANNOTATION_MANAGER.to_owned(), ..writing.clone() };
        info.object = keeper.apply_unforced(&api, info, &annotation).await?;
    }
    for attempt in 1.. {
        let Some(patch) = migrate::managed_fields(&info.object, &writing.manager) else { return Ok(()) };
        match writing.patch(&api, info, JSON_PATCH, &patch).await {
            Ok(_) => break,
            Err(error) if error.is(Reason::Conflict) && attempt < MIGRATIONS => {
                info.object = api.get(&info.path()).await?;
            }
            Err(error) => return Err(error),
        }
    }
    // Applied once more, so that what left the files leaves the object.
    info.object = writing.apply(&api, info, applied, force).await?;
    Ok(())
}

const CONFLICT: &str = "Please review the fields above--they currently have other managers. Here\nare the ways you can resolve this warning:\n* If you intend to manage all of these fields, please re-run the apply\n  command with the `--force-conflicts` flag.\n* If you do not intend to manage all of the fields, please edit your\n  manifest to remove references to the fields that should keep their\n  current managers.\n* You may co-own fields by updating your manifest to match the existing\n  value; in this case, you'll become the manager if the other manager(s)\n  stop managing the field (remove it from their configuration).\nSee https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts";

/// An object as messages about patches name it.
fn described(info: &Info) -> String {
    let mapping = &info.mapping;
    let version = format!("{}/{}", mapping.group, mapping.version);
    format!(
        "Resource: {}, GroupVersionKind: {}\nName: {}, Namespace: {}",
        go_quote(&format!("{version}, Resource={}", mapping.resource)),
        go_quote(&format!("{version}, Kind={}", mapping.kind)),
        go_quote(&info.name),
        go_quote(&info.namespace)
    )
}

/// A field that is null is one that is not there.
fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}
