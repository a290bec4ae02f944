//! `kubectl rollout status`: how far a change is, until it is done.

use std::io::Write as _;

use machinery::status::go_quote;
use machinery::value::{int, text};
use serde_json::Value;

use super::{find, nothing};
use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::discovery::{Mapping, query};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::resource::Info;

pub static COMMAND: Command = Command {
    name: "status",
    aliases: &[],
    usage: "(TYPE NAME | TYPE/NAME) [flags]",
    short: "Show the status of the rollout",
    flags: &[
        sets::FILENAME,
        sets::SELECTOR,
        &[
            Flag::int("revision", "0", "Follow this revision; 0 is the latest."),
            Flag::duration("timeout", "0s", "How long to wait; 0 is without limit."),
            Flag::bool("watch", "Wait until it is done.").short('w').default("true"),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let revision = invocation.flags.int("revision");
    if revision < 0 {
        return Err(Failure::Message(format!("revision must be a positive integer: {revision}")));
    }
    let found = find(invocation).await?;
    if found.infos.is_empty() && found.errors.is_empty() {
        return nothing(invocation);
    }
    let mut errors = found.errors;
    let limit = invocation.flags.duration("timeout");
    for info in found.infos {
        let followed = async { follow(invocation, &info, revision).await };
        let outcome = if limit.is_zero() {
            followed.await
        } else {
            tokio::time::timeout(limit, followed)
                .await
                .unwrap_or_else(|_| Err(Failure::message("timed out waiting for the condition")))
        };
        errors.extend(outcome.err());
    }
    Failure::all(errors)
}

async fn follow(invocation: &mut Invocation, info: &Info, revision: i64) -> Outcome {
    let api = invocation.session.api()?;
    let field = format!("metadata.name={}", info.name);
    let path = info.mapping.path(&info.namespace, "", "");
    let (mut status_text, done) = status(&info.mapping, &info.object, revision).map_err(Failure::Message)?;
    invocation.print(&status_text)?;
    invocation.streams.out.flush()?;
    if done || !invocation.flags.is("watch") {
        return Ok(());
    }
    let mut version = info.resource_version().to_owned();
    loop {
        let pairs = [("fieldSelector", field.as_str()), ("resourceVersion", &version), ("watch", "true")];
        let mut watch = api.watch(&format!("{path}{}", query(&pairs)), JSON).await?;
        while let Some((event, object)) = watch.next().await? {
            if event == "DELETED" {
                return Err(Failure::message("object has been deleted"));
            }
            text(&object, "metadata.resourceVersion").clone_into(&mut version);
            let (new, done) = status(&info.mapping, &object, revision).map_err(Failure::Message)?;
            // The same news is not told twice, unless it is all the news there is.
            if new != status_text || done {
                invocation.print(&new)?;
                invocation.streams.out.flush()?;
            }
            status_text = new;
            if done {
                return Ok(());
            }
        }
    }
}

/// What is said of a workload, and whether it is done.
fn status(of: &Mapping, object: &Value, revision: i64) -> Result<(String, bool), String> {
    let name = go_quote(text(object, "metadata.name"));
    let number = |path: &str| int(object, path).unwrap_or_default();
    let observed = number("metadata.generation") <= number("status.observedGeneration");
    match of.kind.as_str() {
        "Deployment" => deployment(object, &name, revision, observed),
        "DaemonSet" => {
            if text(object, "spec.updateStrategy.type") != "RollingUpdate" {
                return Err("rollout status is only available for RollingUpdate strategy type".to_owned());
            }
            if !observed {
                return Ok(("Waiting for daemon set spec update to be observed...\n".to_owned(), false));
            }
            let (updated, wanted) = (number("status.updatedNumberScheduled"), number("status.desiredNumberScheduled"));
            let available = number("status.numberAvailable");
            let waiting = format!("Waiting for daemon set {name} rollout to finish:");
            if updated < wanted {
                return Ok((format!("{waiting} {updated} out of {wanted} new pods have been updated...\n"), false));
            }
            if available < wanted {
                return Ok((format!("{waiting} {available} of {wanted} updated pods are available...\n"), false));
            }
            Ok((format!("daemon set {name} successfully rolled out\n"), true))
        }
        "StatefulSet" => stateful_set(object, observed),
        other => {
            let group = &of.group;
            let dot = if group.is_empty() { "" } else { "." };
            Err(format!("no status viewer has been implemented for {other}{dot}{group}"))
        }
    }
}

fn deployment(object: &Value, name: &str, revision: i64, observed: bool) -> Result<(String, bool), String> {
    let number = |path: &str| int(object, path).unwrap_or_default();
    if revision > 0 {
        let annotations = machinery::value::at(object, "metadata.annotations");
        let running = annotations.and_then(|all| all.get("deployment.kubernetes.io/revision")).and_then(Value::as_str);
        let running: i64 = running.and_then(|text| text.parse().ok()).unwrap_or_default();
        if running != revision {
            return Err(format!("desired revision ({revision}) is different from the running revision ({running})"));
        }
    }
    if !observed {
        return Ok(("Waiting for deployment spec update to be observed...\n".to_owned(), false));
    }
    let late = machinery::value::list(object, "status.conditions").iter().any(|condition| {
        text(condition, "type") == "Progressing" && text(condition, "reason") == "ProgressDeadlineExceeded"
    });
    if late {
        return Err(format!("deployment {name} exceeded its progress deadline"));
    }
    let wanted = int(object, "spec.replicas").unwrap_or(1);
    let (all, updated) = (number("status.replicas"), number("status.updatedReplicas"));
    let available = number("status.availableReplicas");
    let waiting = format!("Waiting for deployment {name} rollout to finish:");
    if updated < wanted {
        return Ok((format!("{waiting} {updated} out of {wanted} new replicas have been updated...\n"), false));
    }
    if all > updated {
        return Ok((format!("{waiting} {} old replicas are pending termination...\n", all - updated), false));
    }
    if available < updated {
        return Ok((format!("{waiting} {available} of {updated} updated replicas are available...\n"), false));
    }
    Ok((format!("deployment {name} successfully rolled out\n"), true))
}

fn stateful_set(object: &Value, observed: bool) -> Result<(String, bool), String> {
    let number = |path: &str| int(object, path).unwrap_or_default();
    if text(object, "spec.updateStrategy.type") != "RollingUpdate" {
        return Err("rollout status is only available for RollingUpdate strategy type".to_owned());
    }
    if number("status.observedGeneration") == 0 || !observed {
        return Ok(("Waiting for statefulset spec update to be observed...\n".to_owned(), false));
    }
    let wanted = int(object, "spec.replicas");
    let ready = number("status.readyReplicas");
    if let Some(wanted) = wanted.filter(|wanted| ready < *wanted) {
        return Ok((format!("Waiting for {} pods to be ready...\n", wanted - ready), false));
    }
    let updated = number("status.updatedReplicas");
    if let (Some(wanted), Some(partition)) = (wanted, int(object, "spec.updateStrategy.rollingUpdate.partition"))
        && partition > 0
    {
        if updated < wanted - partition {
            return Ok((
                format!(
                    "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...\n",
                    wanted - partition
                ),
                false,
            ));
        }
        return Ok((format!("partitioned roll out complete: {updated} new pods have been updated...\n"), true));
    }
    let revision = text(object, "status.updateRevision");
    if revision != text(object, "status.currentRevision") {
        return Ok((
            format!("waiting for statefulset rolling update to complete {updated} pods at revision {revision}...\n"),
            false,
        ));
    }
    let (current, revision) = (number("status.currentReplicas"), text(object, "status.currentRevision"));
    Ok((format!("statefulset rolling update complete {current} pods at revision {revision}...\n"), true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::files::local;

    #[test]
    fn others_are_named_with_their_groups() {
        let check = |version: &str, kind: &str, expected: &str| {
            let of = local(version, kind).expect("a mapping");
            let why = super::status(&of, &json!({}), 0).expect_err("refused");
            assert_eq!(why, format!("no status viewer has been implemented for {expected}"));
        };
        check("batch/v1", "Job", "Job.batch");
        check("v1", "Pod", "Pod");
    }

    #[test]
    fn deployments_say_how_far_they_are() {
        let check = |status: Value, expected: &str, done: bool| {
            let object =
                json!({"metadata": {"name": "web", "generation": 2}, "spec": {"replicas": 3}, "status": status});
            let of = local("apps/v1", "Deployment").expect("a mapping");
            let found = super::status(&of, &object, 0).expect("a status");
            assert_eq!(found, (expected.to_owned(), done));
        };
        check(json!({"observedGeneration": 1}), "Waiting for deployment spec update to be observed...\n", false);
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 1}),
            "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated...\n",
            false,
        );
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 4}),
            "Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination...\n",
            false,
        );
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3}),
            "deployment \"web\" successfully rolled out\n",
            true,
        );
    }
}
