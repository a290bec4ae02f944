//! `kubectl wait`: until conditions, fields or the end of objects.

mod condition;

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::discovery::query;
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::report::Report;
use crate::resource::arguments::ONLY_FILES;
use crate::resource::helper::DryRun;
use crate::resource::{Builder, Found, Info};
use crate::session::Session;
use condition::Condition;

pub static COMMAND: Command = Command {
    name: "wait",
    aliases: &[],
    usage: "([-f FILENAME] | resource.group/resource.name | resource.group [(-l label | --all)]) [--for=create|--for=delete|--for condition=available|--for=jsonpath='{}'[=value]]",
    short: "Wait for a specific condition on one or many resources",
    flags: &[
        sets::PRINT,
        sets::FILES_DEEP,
        sets::SELECTOR,
        sets::FIELD_SELECTOR,
        sets::ALL_NAMESPACES,
        sets::ALL,
        sets::LOCAL,
        &[
            Flag::array(
                "for",
                "What to wait for: create, delete, condition=name[=value] or jsonpath='{path}'[=value].",
            ),
            Flag::duration("timeout", "30s", "How long to wait; 0 looks once, negative waits for a week."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// Forever, as upstream counts it.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

async fn run(invocation: &mut Invocation) -> Outcome {
    let mut report = Report::new(invocation, DryRun::No, false)?;
    let wanted = invocation.flags.list("for");
    if wanted.is_empty() {
        return Err(Failure::message("unrecognized condition: []"));
    }
    let mut conditions = Vec::new();
    for text in &wanted {
        conditions.push(Condition::parse(text).map_err(Failure::Message)?);
    }
    let limit = match invocation.flags.nanos("timeout") {
        nanos if nanos < 0 => WEEK,
        nanos => Duration::from_nanos(nanos.unsigned_abs()),
    };
    let deadline = Instant::now() + limit;
    if invocation.flags.is("local") && invocation.flags.list("filename").is_empty() {
        return Err(Failure::message(ONLY_FILES));
    }
    let builder = Builder { latest: true, ..Builder::from_flags(&invocation.session, &invocation.flags)? };
    let found = find(invocation, &builder, &conditions, deadline).await?;
    if found.infos.is_empty() && found.errors.is_empty() && !conditions.contains(&Condition::Deleted) {
        return Err(Failure::message("no matching resources found"));
    }
    // Those that are there are waited for all the same.
    let mut errors = found.errors;
    for info in found.infos {
        for condition in &conditions {
            match until(&invocation.session, &info, condition, deadline, limit).await {
                Ok(object) => report.say(invocation, &object, "condition met")?,
                Err(error) => {
                    // One that does not come to pass ends the wait for this object.
                    errors.push(error);
                    break;
                }
            }
        }
    }
    Failure::all(errors)
}

/// The objects to wait for. Those that are to be created need not be there yet.
async fn find(
    invocation: &mut Invocation,
    builder: &Builder,
    conditions: &[Condition],
    deadline: Instant,
) -> Outcome<Found> {
    loop {
        let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
        let missing = found.errors.iter().all(Failure::is_not_found);
        if conditions.contains(&Condition::Deleted) && missing {
            return Ok(Found { errors: Vec::new(), ..found });
        }
        let waits =
            conditions.contains(&Condition::Created) && missing && (found.infos.is_empty() || !found.errors.is_empty());
        if waits && Instant::now() >= deadline {
            return Err(Failure::message("timed out waiting for the condition"));
        }
        if !waits {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until a condition holds of an object; the object as it is then.
async fn until(
    session: &Session,
    info: &Info,
    condition: &Condition,
    deadline: Instant,
    limit: Duration,
) -> Outcome<Value> {
    let api = session.api()?;
    let late =
        || Failure::Message(format!("timed out waiting for the condition on {}/{}", info.mapping.resource, info.name));
    let field = format!("metadata.name={}", info.name);
    let collection = info.mapping.path(&info.namespace, "", "");
    if *condition == Condition::Deleted
        && let Some(gone) = already_gone(session, info).await?
    {
        return Ok(gone);
    }
    loop {
        let list = api.get(&format!("{collection}{}", query(&[("fieldSelector", &field)]))).await?;
        let version = machinery::value::text(&list, "metadata.resourceVersion").to_owned();
        let current = list.get("items").and_then(|items| items.get(0));
        let mut object = current.cloned().map(|object| typed(object, info));
        if let Some(known) = condition.holds(object.as_ref(), &info.object).map_err(Failure::Message)? {
            return Ok(known);
        }
        if object.is_none() && *condition != Condition::Created {
            return Err(machinery::ApiError::not_found(
                &machinery::gvk::GroupResource::new(&info.mapping.group, &info.mapping.resource),
                &info.name,
            )
            .into());
        }
        if limit.is_zero() {
            return Err(Failure::Message(format!("condition not met for {}/{}", info.mapping.qualified(), info.name)));
        }
        let pairs = [("fieldSelector", field.as_str()), ("resourceVersion", &version), ("watch", "true")];
        let mut watch = api.watch(&format!("{collection}{}", query(&pairs)), JSON).await?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = match tokio::time::timeout(left, watch.next()).await {
                Err(_) => return Err(late()),
                Ok(Ok(Some(event))) => event,
                // A watch that ended is begun again, from what is there.
                Ok(Ok(None) | Err(_)) => break,
            };
            object = (event.0 != "DELETED").then(|| typed(event.1, info));
            if let Some(known) = condition.holds(object.as_ref(), &info.object).map_err(Failure::Message)? {
                return Ok(known);
            }
        }
        if Instant::now() >= deadline {
            return Err(late());
        }
    }
}

/// Most of what was deleted is gone at once; to see that, one need not be allowed to list.
async fn already_gone(session: &Session, info: &Info) -> Outcome<Option<Value>> {
    let current = match session.api()?.get(&info.path()).await {
        Ok(current) => Some(current),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error),
    };
    Condition::Deleted.holds(current.as_ref(), &info.object).map_err(Failure::Message)
}

/// Items of lists do not say what they are.
fn typed(mut object: Value, info: &Info) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), info.mapping.api_version().into());
        fields.insert("kind".to_owned(), info.mapping.kind.as_str().into());
    }
    object
}

/// Waits until objects that were deleted are gone. One of the same name that came later does not count.
pub async fn until_gone(session: &Session, gone: &[(Info, String)], limit: Duration) -> Outcome {
    let limit = if limit.is_zero() { WEEK } else { limit };
    let deadline = Instant::now() + limit;
    for (info, uid) in gone {
        let mut info = info.clone();
        if info.object.is_null() {
            info.object = serde_json::json!({"apiVersion": info.mapping.api_version(), "kind": info.mapping.kind});
        }
        machinery::value::set(&mut info.object, "metadata.uid", uid.as_str());
        match until(session, &info, &Condition::Deleted, deadline, limit).await {
            Ok(_) => {}
            // Whoever may not look cannot wait.
            Err(Failure::Api(error)) if matches!(error.code, 403 | 405) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
