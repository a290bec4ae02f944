//! `kubectl drain`: no new pods, and the end of those that are there.

use std::cell::RefCell;
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
use crate::flags::{Flag, Given, sets};
use crate::print;
use crate::resource::helper::DryRun;
use crate::resource::{self, Builder, Info, Target};
use crate::session::Session;
use crate::streams::Streams;

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
    let eviction = Eviction {
        session: &invocation.session,
        flags: &invocation.flags,
        streams: RefCell::new(&mut invocation.streams),
        dry: DryRun::from_flags(&invocation.flags)?,
        deadline: Instant::now() + if limit.is_zero() { Duration::from_secs(7 * 24 * 3600) } else { limit },
        skip_after: allowed.skip_after,
    };
    // All at once: one that a budget protects must not keep the others.
    let outcomes = futures::future::join_all(going.iter().map(|pod| eviction.of(pod))).await;
    Failure::each(outcomes.into_iter().filter_map(Result::err).collect())
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

/// How the pods of a node are made to go.
struct Eviction<'a> {
    session: &'a Session,
    flags: &'a Given,
    streams: RefCell<&'a mut Streams>,
    dry: DryRun,
    deadline: Instant,
    skip_after: i64,
}

impl Eviction<'_> {
    fn say(&self, line: &str) -> Outcome {
        Ok(self.streams.borrow_mut().line(line)?)
    }

    /// Makes one pod go, and waits until it is gone.
    async fn of(&self, pod: &Value) -> Outcome {
        self.ask(pod).await?;
        if self.dry != DryRun::No {
            return Ok(());
        }
        let (name, deletes) = (text(pod, "metadata.name"), self.flags.is("disable-eviction"));
        match self.is_gone(pod).await? {
            true => self.say(&format!("pod/{name} {}", if deletes { "deleted" } else { "evicted" })),
            false => {
                let (name, seconds) = (go_quote(name), self.skip_after);
                self.say(&format!("pod {name} has DeletionTimestamp older than {seconds} seconds, skipping"))
            }
        }
    }

    /// Asks for the end of a pod, again and again while a budget forbids it.
    async fn ask(&self, pod: &Value) -> Outcome {
        let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
        let mut options = json!({});
        let grace = self.flags.int("grace-period");
        if grace >= 0 {
            options["gracePeriodSeconds"] = grace.into();
        }
        if self.dry == DryRun::Server {
            options["dryRun"] = json!(["All"]);
        }
        // Who only looks is told of evictions, whatever would be sent.
        let deletes = self.flags.is("disable-eviction");
        let verb = if deletes && self.dry != DryRun::Client { "deleting" } else { "evicting" };
        loop {
            self.say(&format!("{verb} pod {namespace}/{name}{}", self.dry.suffix()))?;
            if self.dry == DryRun::Client {
                return Ok(());
            }
            let api = self.session.api()?;
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}", segment(name));
            let answer = if deletes {
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
            let what = format!("error when evicting pods/{} -n {}", go_quote(name), go_quote(namespace));
            if !matches!(&error, Failure::Api(api) if api.code == 429) {
                return Err(Failure::Message(format!("{what}: {}", error.bare())));
            }
            if Instant::now() + RETRY > self.deadline {
                let limit = machinery::duration::format(self.flags.duration("timeout"));
                return Err(Failure::Message(format!("{what}: global timeout reached: {limit}")));
            }
            self.streams.borrow_mut().error(&format!("{what} (will retry after 5s): {}", error.bare()));
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Waits until a pod is gone; whether it is, and has not been given up.
    async fn is_gone(&self, pod: &Value) -> Outcome<bool> {
        let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
        let mapping = self.session.mapping("pods").await?;
        let info = crate::resource::info(&mapping, pod.clone(), "");
        let gone = [(info.clone(), text(pod, "metadata.uid").to_owned())];
        let failed = |error: Failure| {
            let (name, namespace) = (go_quote(name), go_quote(namespace));
            Failure::Message(format!(
                "error when waiting for pod {name} in namespace {namespace} to terminate: {}",
                error.bare()
            ))
        };
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let turn = if self.skip_after > 0 { left.min(LOOK) } else { left };
            let error = match crate::commands::wait::until_gone(self.session, &gone, turn).await {
                Ok(()) => return Ok(true),
                Err(error) if turn == left => return Err(failed(error)),
                Err(error) => error,
            };
            // It is there still, or nobody can tell.
            match self.session.api()?.get(&info.path()).await {
                Ok(current) if is_given_up(&current, self.skip_after, jiff::Timestamp::now()) => return Ok(false),
                Ok(_) => {}
                Err(missing) if missing.is_not_found() => return Ok(true),
                Err(_) => return Err(failed(error)),
            }
        }
    }
}
