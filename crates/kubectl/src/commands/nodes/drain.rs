//! `kubectl drain`: no new pods, and the end of those that are there.

use std::time::{Duration, Instant};

use machinery::selector::LabelSelector;
use machinery::status::go_quote;
use machinery::value::{list, text};
use serde_json::{Value, json};

use super::filters::{Allowed, Fate, grouped, is_given_up, judge};
use super::{find, set_unschedulable};
use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::discovery::segment;
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print;
use crate::resource::helper::DryRun;
use crate::resource::{self, Builder, Info, Target};

pub static COMMAND: Command = Command {
    name: "drain",
    aliases: &[],
    usage: "NODE",
    short: "Drain node in preparation for maintenance",
    flags: &[
        sets::DRY_RUN,
        sets::SELECTOR,
        sets::CHUNK_SIZE,
        &[
            Flag::bool("delete-emptydir-data", "Go on though data of emptyDir volumes will be lost."),
            Flag::bool("disable-eviction", "Delete pods whatever their budgets say."),
            Flag::bool("force", "Go on though pods without a controller will not come back."),
            Flag::int("grace-period", "-1", "Seconds that a pod gets to end; negative is the pod's own."),
            Flag::bool("ignore-daemonsets", "Leave pods of DaemonSets where they are."),
            Flag::string("pod-selector", "", "Label query of the pods."),
            Flag::int(
                "skip-wait-for-delete-timeout",
                "0",
                "Do not wait for pods that have been ending for this many seconds.",
            ),
            Flag::duration("timeout", "0s", "How long it may take; 0 is without limit."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// How often to look whether a pod has been ending for too long.
const LOOK: Duration = Duration::from_secs(1);
/// How long to wait before an eviction that a budget forbids is tried again.
const RETRY: Duration = Duration::from_secs(5);

async fn run(invocation: &mut Invocation) -> Outcome {
    if LabelSelector::parse(invocation.flags.text("pod-selector")).is_err() {
        return Err(Failure::message("--pod-selector=<pod_selector> must be a valid label selector"));
    }
    let nodes = find(invocation, "drain NODE").await?;
    set_unschedulable(invocation, &nodes, true).await?;
    let mut failed = Vec::new();
    let mut pending = Vec::new();
    for node in &nodes {
        match drain(invocation, node).await {
            Ok(()) => {
                let dry = DryRun::from_flags(&invocation.flags)?;
                let line = format!("{} drained{}", print::name(&node.object), dry.suffix());
                invocation.say(&line)?;
            }
            Err(error) => {
                let why = match &error {
                    Failure::Many(many) if many.len() > 1 => {
                        format!("[{}]", many.iter().map(Failure::bare).collect::<Vec<_>>().join(", "))
                    }
                    Failure::Many(one) => one.iter().map(Failure::bare).collect(),
                    other => other.bare(),
                };
                invocation.streams.error(&format!(
                    "error: unable to drain node {} due to error: {why}, continuing command...",
                    go_quote(&node.name)
                ));
                pending.push(node.name.clone());
                // Several of one node are told as one.
                failed.push(if matches!(error, Failure::Many(_)) { Failure::Message(why) } else { error });
            }
        }
    }
    if !pending.is_empty() {
        invocation.streams.error("There are pending nodes to be drained:");
        for name in pending {
            invocation.streams.error(&format!(" {name}"));
        }
    }
    Failure::each(failed)
}

async fn drain(invocation: &mut Invocation, node: &Info) -> Outcome {
    let pods = pods(invocation, node).await?;
    let flags = &invocation.flags;
    let allowed = Allowed {
        force: flags.is("force"),
        ignore_daemon_sets: flags.is("ignore-daemonsets"),
        delete_empty_dirs: flags.is("delete-emptydir-data"),
        skip_after: flags.int("skip-wait-for-delete-timeout"),
    };
    let (mut going, mut warnings, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for pod in pods {
        let shown = format!("{}/{}", text(&pod, "metadata.namespace"), text(&pod, "metadata.name"));
        let daemon_set = daemon_set(invocation, &pod).await?;
        match judge(&pod, daemon_set, allowed, jiff::Timestamp::now()) {
            Fate::Evict => going.push(pod),
            Fate::EvictWarning(why) => {
                warnings.push((why, shown));
                going.push(pod);
            }
            Fate::Stay => {}
            Fate::StayWarning(why) => warnings.push((why, shown)),
            Fate::Refuse(why) => refusals.push((why, shown)),
        }
    }
    let refused: Vec<String> =
        grouped(&refusals).iter().map(|(why, pods)| format!("cannot delete {why}: {pods}")).collect();
    match &refused[..] {
        [] => {}
        many => return Err(Failure::Many(many.iter().map(Failure::message).collect())),
    }
    if !warnings.is_empty() {
        let all: Vec<String> = grouped(&warnings).iter().map(|(why, pods)| format!("{why}: {pods}")).collect();
        invocation.streams.error(&format!("Warning: {}", all.join("; ")));
    }
    let limit = invocation.flags.duration("timeout");
    let deadline = Instant::now() + if limit.is_zero() { Duration::from_secs(7 * 24 * 3600) } else { limit };
    for pod in &going {
        evict(invocation, pod, deadline).await?;
    }
    if DryRun::from_flags(&invocation.flags)? != DryRun::No {
        return Ok(());
    }
    let done = if invocation.flags.is("disable-eviction") { "deleted" } else { "evicted" };
    let mut gone = Vec::new();
    for pod in going {
        let name = text(&pod, "metadata.name");
        gone.push(match until_gone(invocation, &pod, deadline, allowed.skip_after).await? {
            true => format!("pod/{name} {done}"),
            false => format!(
                "pod {} has DeletionTimestamp older than {} seconds, skipping",
                go_quote(name),
                allowed.skip_after
            ),
        });
    }
    for line in gone {
        invocation.say(&line)?;
    }
    Ok(())
}

async fn pods(invocation: &Invocation, node: &Info) -> Outcome<Vec<Value>> {
    let field = format!("spec.nodeName={}", node.name);
    let labels = invocation.flags.text("pod-selector");
    let target = Target { mapping: invocation.session.mapping("pods").await?, namespace: String::new(), name: None };
    let chunk = invocation.flags.int("chunk-size");
    let builder = Builder { selector: labels.to_owned(), field_selector: field, chunk, ..Builder::default() };
    resource::list(&invocation.session, &target, &builder, "").await
}

/// Whether the DaemonSet of a pod is there; nothing where the pod has none.
async fn daemon_set(invocation: &Invocation, pod: &Value) -> Outcome<Option<bool>> {
    let Some(owner) = list(pod, "metadata.ownerReferences").iter().find(|owner| text(owner, "kind") == "DaemonSet")
    else {
        return Ok(None);
    };
    let namespace = text(pod, "metadata.namespace");
    let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{}", segment(text(owner, "name")));
    match invocation.session.api()?.get(&path).await {
        Ok(_) => Ok(Some(true)),
        Err(error) if error.is_not_found() => Ok(Some(false)),
        Err(error) => Err(error),
    }
}

/// Asks for the end of a pod, again and again while a budget forbids it.
async fn evict(invocation: &mut Invocation, pod: &Value, deadline: Instant) -> Outcome {
    let (namespace, name) = (text(pod, "metadata.namespace").to_owned(), text(pod, "metadata.name").to_owned());
    let dry = DryRun::from_flags(&invocation.flags)?;
    let mut options = json!({});
    let grace = invocation.flags.int("grace-period");
    if grace >= 0 {
        options["gracePeriodSeconds"] = grace.into();
    }
    if dry == DryRun::Server {
        options["dryRun"] = json!(["All"]);
    }
    // Who only looks is told of evictions, whatever would be sent.
    let deletes = invocation.flags.is("disable-eviction") && dry != DryRun::Client;
    let verb = if deletes { "deleting" } else { "evicting" };
    loop {
        invocation.say(&format!("{verb} pod {namespace}/{name}{}", dry.suffix()))?;
        if dry == DryRun::Client {
            return Ok(());
        }
        let api = invocation.session.api()?;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{}", segment(&name));
        let answer = if invocation.flags.is("disable-eviction") {
            api.send(http::Method::DELETE, &path, JSON, &options).await
        } else {
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": options,
            });
            api.send(http::Method::POST, &format!("{path}/eviction"), JSON, &eviction).await
        };
        let error = match answer {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => error,
        };
        let what = format!("error when evicting pods/{} -n {}", go_quote(&name), go_quote(&namespace));
        if !matches!(&error, Failure::Api(api) if api.code == 429) {
            return Err(Failure::Message(format!("{what}: {}", error.bare())));
        }
        if Instant::now() + RETRY > deadline {
            let limit = machinery::duration::format(invocation.flags.duration("timeout"));
            return Err(Failure::Message(format!("{what}: global timeout reached: {limit}")));
        }
        invocation.streams.error(&format!("{what} (will retry after 5s): {}", error.bare()));
        tokio::time::sleep(RETRY).await;
    }
}

/// Waits until a pod is gone; whether it is, and has not been given up.
async fn until_gone(invocation: &Invocation, pod: &Value, deadline: Instant, skip_after: i64) -> Outcome<bool> {
    let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
    let mapping = invocation.session.mapping("pods").await?;
    let info = crate::resource::info(&mapping, pod.clone(), "");
    let uid = text(pod, "metadata.uid").to_owned();
    let failed = |error: Failure| {
        let (name, namespace) = (go_quote(name), go_quote(namespace));
        Failure::Message(format!(
            "error when waiting for pod {name} in namespace {namespace} to terminate: {}",
            error.bare()
        ))
    };
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let turn = if skip_after > 0 { left.min(LOOK) } else { left };
        let error = match crate::commands::wait::until_gone(invocation, &[(info.clone(), uid.clone())], turn).await {
            Ok(()) => return Ok(true),
            Err(error) if turn == left => return Err(failed(error)),
            Err(error) => error,
        };
        // It is there still, or nobody can tell.
        match invocation.session.api()?.get(&info.path()).await {
            Ok(current) if is_given_up(&current, skip_after, jiff::Timestamp::now()) => return Ok(false),
            Ok(_) => {}
            Err(missing) if missing.is_not_found() => return Ok(true),
            Err(_) => return Err(failed(error)),
        }
    }
}
