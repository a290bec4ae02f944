//! `kubectl undo`: makes an object what it was, by a normal update, or makes it again. Says what changes.

use machinery::codec::yaml;
use machinery::value;
use serde_json::Value;

use super::at;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::report::Report;
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{self, Builder, Target, arguments};

pub static COMMAND: Command = Command {
    name: "undo",
    aliases: &[],
    usage: "(TYPE NAME | TYPE/NAME) --to MOMENT",
    short: "Make an object what it was",
    flags: &[
        sets::PRINT,
        sets::DRY_RUN,
        &[
            sets::field_manager("kubectl-undo"),
            Flag::string("to", "", "When it was as it shall be: a revision, a time, or how long ago."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// What of the metadata is the user's; the rest is the server's and stays.
const OWN: [&str; 4] = ["labels", "annotations", "ownerReferences", "finalizers"];
/// What an object that is made again must not bring along.
const SERVER_S: [&str; 8] = [
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
    "managedFields",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

async fn run(invocation: &mut Invocation) -> Outcome {
    let to = invocation.flags.text("to").to_owned();
    if to.is_empty() {
        return Err(invocation.usage("--to is required: a revision, a time, or how long ago"));
    }
    let writing = Writing::from_flags(&invocation.flags)?;
    let builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    for target in arguments::targets(&builder, &invocation.session).await? {
        let Some(name) = target.name.clone() else {
            return Err(invocation.usage("name the object that is to be what it was"));
        };
        undo(invocation, &writing, &target, &name, &to).await?;
    }
    Ok(())
}

async fn undo(invocation: &mut Invocation, writing: &Writing, target: &Target, name: &str, to: &str) -> Outcome {
    let api = invocation.session.api()?;
    let (then, now) = (at(&api, target, name, to).await?, at(&api, target, name, "now").await?);
    let named = format!("{}/{name}", target.mapping.kind_name());
    if then.is_null() {
        return Err(Failure::Message(format!("{named} was not there at {to}: delete it, if that is what is meant")));
    }
    let new = if now.is_null() { anew(&then) } else { restored(&then, &now) };
    let mut report = Report::new(invocation, writing.dry_run, false)?;
    if !now.is_null() && new == now {
        return report.say(invocation, &now, "is as it was");
    }
    if !report.shows_objects() {
        let changed = machinery::diff::unified(&shown(&now), &shown(&new));
        invocation.print(&changed)?;
    }
    let info = resource::info(&target.mapping, new.clone(), "");
    let (answer, done) = match (now.is_null(), writing.dry_run) {
        (true, DryRun::Client) => (new, "created again"),
        (false, DryRun::Client) => (new, "undone"),
        (true, _) => (writing.create(&api, &info).await?, "created again"),
        (false, _) => (writing.replace(&api, &info, &new).await?, "undone"),
    };
    report.say(invocation, &answer, done)
}

/// What is compared: without what every write changes.
fn shown(object: &Value) -> String {
    if object.is_null() {
        return String::new();
    }
    let mut object = object.clone();
    value::remove(&mut object, "metadata.managedFields");
    value::remove(&mut object, "status");
    yaml::encode(&object)
}

/// The object as it was, as a change of what it is.
fn restored(then: &Value, now: &Value) -> Value {
    let mut new = then.clone();
    if let (Some(new), Some(now)) = (new.as_object_mut(), now.as_object()) {
        new.remove("status");
        new.extend(now.get("status").map(|status| ("status".to_owned(), status.clone())));
    }
    let mut metadata = now.get("metadata").cloned().unwrap_or_default();
    if let Some(metadata) = metadata.as_object_mut() {
        for own in OWN {
            match then.get("metadata").and_then(|old| old.get(own)) {
                Some(old) => metadata.insert(own.to_owned(), old.clone()),
                None => metadata.remove(own),
            };
        }
    }
    value::set(&mut new, "metadata", metadata);
    new
}

/// The object as it was, as a new one.
fn anew(then: &Value) -> Value {
    let mut new = then.clone();
    for field in SERVER_S {
        value::remove(&mut new, &format!("metadata.{field}"));
    }
    value::remove(&mut new, "status");
    new
}

#[cfg(test)]
mod tests {
    use machinery::value::text;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_the_user_s_goes_back_and_what_is_the_server_s_stays() {
        let then = json!({"kind": "A", "metadata": {"name": "a", "uid": "1", "resourceVersion": "5", "labels": {"a": "1"}},
            "spec": {"replicas": 1}, "status": {"ready": 1}});
        let now = json!({"kind": "A", "metadata": {"name": "a", "uid": "1", "resourceVersion": "9", "annotations": {"b": "2"}},
            "spec": {"replicas": 3, "paused": true}, "status": {"ready": 3}});
        let new = restored(&then, &now);
        assert_eq!(
            new,
            json!({"kind": "A", "metadata": {"name": "a", "uid": "1", "resourceVersion": "9", "labels": {"a": "1"}},
                "spec": {"replicas": 1}, "status": {"ready": 3}})
        );
        assert_eq!(
            anew(&then),
            json!({"kind": "A", "metadata": {"name": "a", "labels": {"a": "1"}}, "spec": {"replicas": 1}})
        );
        assert_eq!(text(&restored(&now, &now), "metadata.resourceVersion"), "9");
    }
}
