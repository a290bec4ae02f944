//! Which probes run: one task for each probe of each running container, and none for any other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use informer::EventType;
use k8s_openapi::api::core::v1::Probe;
use rules::owners::controller_uid;
use threads::prompt::{self, Lane};
use tokio::task::JoinHandle;

use super::Worker;
use crate::pod::spec::{self, Kind as ListKind};
use crate::pod::state::{Life, time};
use crate::probes::prober::{self, Outcome};
use crate::probes::task::{self, Ask};
use crate::probes::{Kind, Verdict, Verdicts};

/// The running tasks, by container id and kind.
#[derive(Debug, Default)]
pub(super) struct Probes(HashMap<(String, Kind), Task>);

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Probes {
    /// Stops those that would have a container restarted. Whether it is ready is still asked: until it has ended, traffic may be
    /// on its way to it.
    pub(super) fn stop_for_termination(&mut self) {
        self.0.retain(|(_, kind), _| *kind == Kind::Readiness);
    }

    pub(super) fn stop(&mut self) {
        self.0.clear();
    }
}

impl Worker {
    /// Starts probes of containers that run, stops those of containers that do not.
    pub(super) fn note_probes(&mut self) {
        let pod = self.pod.clone();
        let mut wanted = Vec::new();
        for member in spec::members(&pod) {
            if member.kind == ListKind::Ephemeral || (member.kind == ListKind::Init && !member.is_sidecar()) {
                continue;
            }
            let Some(running) = self.state.active(&member.container.name).filter(|c| c.life == Life::Running) else {
                continue;
            };
            let specs = [
                (Kind::Startup, &member.container.startup_probe),
                (Kind::Liveness, &member.container.liveness_probe),
                (Kind::Readiness, &member.container.readiness_probe),
            ];
            for (kind, probe) in specs {
                if let Some(probe) = probe {
                    wanted.push((running.id.clone(), kind, probe.clone(), member.clone(), running.started_at));
                }
            }
        }
        let ids: Vec<(String, Kind)> = wanted.iter().map(|(id, kind, ..)| (id.clone(), *kind)).collect();
        self.probes.0.retain(|key, _| ids.contains(key));
        let known = |id: &str| self.state.containers.iter().any(|c| c.id == id);
        self.verdicts.send_if_modified(|verdicts| {
            verdicts.retain(known);
            false
        });
        for (id, kind, probe, member, started_at) in wanted {
            let key = (id.clone(), kind);
            if self.probes.0.contains_key(&key) {
                continue;
            }
            let age = informer::clock::since(self.now(), time(started_at));
            let task = self.probe(id, kind, probe, member, age);
            self.probes.0.insert(key, task);
        }
    }

    fn probe(&self, id: String, kind: Kind, probe: Probe, member: spec::Member<'_>, age: Duration) -> Task {
        let (shared, pod, ip) = (self.shared.clone(), self.pod.clone(), self.ip());
        let container = Arc::new(member.container.into_owned());
        let list = member.kind;
        let ask = {
            let (shared, id, container, probe) = (shared.clone(), id.clone(), container.clone(), probe.clone());
            let pod = pod.clone();
            move || {
                let (shared, id, container, ip, probe, pod) =
                    (shared.clone(), id.clone(), container.clone(), ip.clone(), probe.clone(), pod.clone());
                async move {
                    let asked = shared.clock.monotonic();
                    let outcome = prober::probe(&*shared.runtime, &id, &container, &ip, &probe).await;
                    let result = match outcome {
                        Outcome::Success | Outcome::Warning(_) => "successful",
                        Outcome::Failure(_) => "failed",
                        Outcome::Error(_) => "unknown",
                    };
                    let took = shared.clock.monotonic() - asked;
                    shared.figures.probed(&pod, &container.name, kind, result, took);
                    outcome
                }
                .boxed()
            }
        };
        let started = {
            let (mut verdicts, id, needed) = (self.verdicts.subscribe(), id.clone(), container.startup_probe.is_some());
            async move {
                if needed {
                    let passed = |all: &Verdicts| all.get(&id, Kind::Startup) == Some(Verdict::Success);
                    // Nobody is left to say so when the worker is gone, which ends this task too.
                    let _ = verdicts.wait_for(passed).await;
                }
            }
        };
        let on_verdict = {
            let (verdicts, news) = (self.verdicts.clone(), self.news.clone());
            // By this clock alone: a container's start is told in whole seconds, and by another process.
            let (pod, label, begun) = (pod.clone(), hops::label(&container.name), Instant::now());
            let was_ready = AtomicBool::new(kind != Kind::Readiness);
            move |verdict| {
                if verdict == Verdict::Success && !was_ready.swap(true, Ordering::Relaxed) {
                    let hop = hops::stage(hops::Stage::Probe, "ensure").by(label).since(begun.elapsed());
                    hop.end(spec::uid(&pod), controller_uid(&pod.metadata).unwrap_or_default(), 0);
                }
                if verdicts.send_if_modified(|all| all.set(&id, kind, verdict)) {
                    news.notify();
                }
            }
        };
        let on_bad_outcome = {
            let shared = shared.clone();
            move |outcome: &Outcome| {
                let word = kind.as_str();
                let (reason, message) = match outcome {
                    Outcome::Success => return,
                    Outcome::Warning(output) => ("ProbeWarning", format!("{word} probe warning: {output}")),
                    Outcome::Failure(output) => ("Unhealthy", format!("{word} probe failed: {output}")),
                    Outcome::Error(why) => {
                        ("Unhealthy", format!("{word} probe errored and resulted in unknown state: {why}"))
                    }
                };
                shared.container_event(&pod, list, &container.name, EventType::Warning, reason, &message);
            }
        };
        let ask = Ask {
            ask: Box::new(ask),
            started: started.boxed(),
            on_verdict: Box::new(on_verdict),
            on_bad_outcome: Box::new(on_bad_outcome),
        };
        Task(prompt::spawn(Lane::Promises, task::run(kind, probe, age, shared.clock.clone(), ask)))
    }
}
