//! The answer of `why`, from a pod and what is known about it. Pure.

use machinery::value::{at, flag, list, text};
use serde_json::Value;

use crate::commands::pods::{condition, holds, is_ready};

/// What was found out.
pub struct Found<'a> {
    pub pod: &'a Value,
    pub events: &'a [Value],
    pub node: Option<&'a Value>,
    pub logs: &'a [Log],
}

/// The end of a container's log.
pub struct Log {
    pub container: String,
    /// Of the life before this one.
    pub previous: bool,
    pub lines: Vec<String>,
}

/// One step on the way of a pod.
struct Step {
    hop: u8,
    name: &'static str,
    /// Whether it is done; nothing if it was not its turn yet.
    done: Option<bool>,
    what: String,
    advice: Option<String>,
}

/// A container's status with the container's own part of the spec.
struct Container<'a> {
    name: &'a str,
    status: Option<&'a Value>,
    init: bool,
}

fn containers(pod: &Value) -> Vec<Container<'_>> {
    let of = |spec: &str, status: &str, init: bool| -> Vec<Container<'_>> {
        list(pod, spec)
            .iter()
            .map(|container| {
                let name = text(container, "name");
                let status = list(pod, status).iter().find(|status| text(status, "name") == name);
                Container { name, status, init }
            })
            .collect()
    };
    let mut all = of("spec.initContainers", "status.initContainerStatuses", true);
    all.extend(of("spec.containers", "status.containerStatuses", false));
    all
}

/// Containers whose logs may say why, and whether it is the life before this one that matters.
pub fn worth_reading(pod: &Value) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for container in containers(pod) {
        let Some(status) = container.status else { continue };
        let failed = at(status, "state.terminated.exitCode").and_then(Value::as_i64).is_some_and(|code| code != 0);
        let before = at(status, "lastState.terminated").is_some();
        let runs = at(status, "state.running").is_some();
        if failed || (runs && !flag(status, "ready")) {
            found.push((container.name.to_owned(), false));
        } else if before && !runs {
            found.push((container.name.to_owned(), true));
        }
    }
    found
}

fn owner(pod: &Value) -> Step {
    let what = match list(pod, "metadata.ownerReferences").first() {
        Some(owner) => format!("made by {} {}", text(owner, "kind"), text(owner, "name")),
        None => "made by nobody but its creator: nothing brings it back when it goes".to_owned(),
    };
    Step { hop: 9, name: "Controllers", done: Some(true), what, advice: None }
}

fn scheduled(found: &Found<'_>) -> Step {
    let step = |done, what: String, advice| Step { hop: 10, name: "Scheduler", done, what, advice };
    let node = text(found.pod, "spec.nodeName");
    let gates = list(found.pod, "spec.schedulingGates");
    if !node.is_empty() {
        return step(Some(true), format!("on node {node}"), None);
    }
    if let Some(gate) = gates.first() {
        let name = text(gate, "name");
        return step(
            Some(false),
            format!("held back by scheduling gate {name}"),
            Some(format!("whoever owns the gate {name} must take it away")),
        );
    }
    let message = condition(found.pod, "PodScheduled").map(|condition| text(condition, "message")).unwrap_or_default();
    let message = if message.is_empty() { last_event(found, &["FailedScheduling"]) } else { message.to_owned() };
    let advice = advice_for_scheduling(&message);
    let what = if message.is_empty() { "no node yet, and no reason given".to_owned() } else { message };
    step(Some(false), what, Some(advice))
}

fn advice_for_scheduling(message: &str) -> String {
    let advice = [
        (
            "Insufficient",
            "ask for less in spec.containers[].resources.requests, or add a node with room (kubectl describe nodes)",
        ),
        ("untolerated taint", "add a toleration, or take the taint away (kubectl taint nodes NODE KEY-)"),
        (
            "node affinity/selector",
            "label a node as spec.nodeSelector or the affinity wants it (kubectl label nodes NODE KEY=VALUE)",
        ),
        ("unbound immediate PersistentVolumeClaims", "bind the claim: kubectl describe pvc says what it waits for"),
        ("anti-affinity", "add nodes, or loosen the pod's anti-affinity"),
        ("topology spread", "add nodes in the missing domains, or loosen topologySpreadConstraints"),
        ("unschedulable", "let nodes take pods again (kubectl uncordon NODE)"),
    ];
    let found = advice.iter().find(|(word, _)| message.contains(word));
    found
        .map_or("see whether a scheduler runs, and whether there are nodes (kubectl get nodes)", |(_, advice)| advice)
        .to_owned()
}

/// The message of the last event with one of these reasons.
fn last_event(found: &Found<'_>, reasons: &[&str]) -> String {
    let mut events: Vec<&Value> =
        found.events.iter().filter(|event| reasons.contains(&text(event, "reason"))).collect();
    let time = |event: &Value| {
        let times = ["lastTimestamp", "eventTime", "firstTimestamp"].map(|field| text(event, field).to_owned());
        times.into_iter().find(|time| !time.is_empty()).unwrap_or_default()
    };
    events.sort_by_key(|event| time(event));
    events.last().map(|event| text(event, "message").to_owned()).unwrap_or_default()
}

fn node(found: &Found<'_>) -> Option<Step> {
    let node = found.node?;
    if holds(node, "Ready") {
        return None;
    }
    let name = text(node, "metadata.name");
    let message = condition(node, "Ready").map(|condition| text(condition, "message")).unwrap_or_default();
    Some(Step {
        hop: 11,
        name: "Kubelet",
        done: Some(false),
        what: format!("node {name} is not Ready: {message}"),
        advice: Some(format!("see to the node: kubectl describe node {name}")),
    })
}

/// What a container waits for or died of.
fn started(found: &Found<'_>, container: &Container<'_>) -> Option<Step> {
    let name = container.name;
    let kind = if container.init { "init container" } else { "container" };
    let step = |what: String, advice: String| {
        Some(Step { hop: 11, name: "Kubelet", done: Some(false), what, advice: Some(advice) })
    };
    let status = container.status?;
    if let Some(waiting) = at(status, "state.waiting") {
        let (reason, message) = (text(waiting, "reason"), text(waiting, "message"));
        let message = match message {
            "" => last_event(found, &["Failed", "FailedMount", "FailedCreatePodSandBox", "FailedAttachVolume"]),
            message => message.to_owned(),
        };
        let died = at(status, "lastState.terminated").map(death).unwrap_or_default();
        let what = format!("{kind} {name}: {reason}{}{died}", prefixed(&message));
        return match reason {
            "ImagePullBackOff" | "ErrImagePull" | "InvalidImageName" | "ErrImageNeverPull" => {
                step(what, "see that the image's name is right and the node may pull it (imagePullSecrets)".to_owned())
            }
            "CrashLoopBackOff" => step(
                what,
                format!(
                    "its last words are below; all of them: kubectl logs {} -c {name} --previous",
                    text(found.pod, "metadata.name")
                ),
            ),
            "CreateContainerConfigError" => {
                step(what, "make the ConfigMap, Secret or key that the pod names".to_owned())
            }
            "PodInitializing" | "ContainerCreating" if message.is_empty() => None,
            _ => step(what, "the message says what is missing; kubectl describe pod has all events".to_owned()),
        };
    }
    let ended = at(status, "state.terminated")?;
    let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    if code == 0 {
        return None;
    }
    step(
        format!("{kind} {name} ended{}", death(ended)),
        format!("its last words are below: kubectl logs {} -c {name}", text(found.pod, "metadata.name")),
    )
}

fn prefixed(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {}", message.trim()) }
}

/// How a container ended, in a few words.
fn death(ended: &Value) -> String {
    let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
    let reason = text(ended, "reason");
    let more = match (reason, code) {
        ("OOMKilled", _) => "; it needs more memory than its limit",
        (_, 137) => "; it was killed",
        (_, 126 | 127) => "; its command cannot be run",
        _ => "",
    };
    format!(" (exit code {code}, {reason}{more})")
}

fn served(found: &Found<'_>) -> Vec<Step> {
    let step = |done, what: String, advice| Step { hop: 12, name: "Ready", done, what, advice };
    let mut steps = Vec::new();
    for container in containers(found.pod).iter().filter(|container| !container.init) {
        let Some(status) = container.status else { continue };
        if at(status, "state.running").is_some() && !flag(status, "ready") {
            let event = last_event(found, &["Unhealthy"]);
            let startup = status.get("started").and_then(Value::as_bool) == Some(false);
            let probe = if startup { "startup" } else { "readiness" };
            steps.push(step(
                Some(false),
                format!(
                    "container {} runs and its {probe} probe has not succeeded{}",
                    container.name,
                    prefixed(&event)
                ),
                Some(format!(
                    "see what the {probe} probe asks (kubectl get pod {} -o yaml) and what the log says",
                    text(found.pod, "metadata.name")
                )),
            ));
        }
    }
    for gate in list(found.pod, "spec.readinessGates") {
        let kind = text(gate, "conditionType");
        if !holds(found.pod, kind) {
            steps.push(step(
                Some(false),
                format!("readiness gate {kind} does not hold"),
                Some(format!("whoever sets the condition {kind} has not done so")),
            ));
        }
    }
    if steps.is_empty() {
        let done = is_ready(found.pod).then_some(true);
        let what = if done.is_some() { "it is Ready".to_owned() } else { "waits for the steps before".to_owned() };
        steps.push(step(done, what, None));
    }
    steps
}

fn steps(found: &Found<'_>) -> Vec<Step> {
    let mut steps = vec![owner(found.pod), scheduled(found)];
    let bound = !text(found.pod, "spec.nodeName").is_empty();
    if bound {
        let trouble: Vec<Step> = node(found)
            .into_iter()
            .chain(containers(found.pod).iter().filter_map(|container| started(found, container)))
            .collect();
        if trouble.is_empty() {
            let known = !list(found.pod, "status.containerStatuses").is_empty();
            let event = last_event(found, &["FailedMount", "FailedCreatePodSandBox", "FailedAttachVolume"]);
            let (done, what) = match (known, event.is_empty()) {
                (_, false) if !is_ready(found.pod) => (Some(false), event),
                (true, _) => (Some(true), "its containers were started".to_owned()),
                (false, _) => (Some(false), "the kubelet has said nothing of it yet".to_owned()),
            };
            steps.push(Step { hop: 11, name: "Kubelet", done, what, advice: None });
        }
        steps.extend(trouble);
    }
    steps.extend(served(found));
    steps
}

pub fn tell(found: &Found<'_>) -> String {
    let (namespace, name) = (text(found.pod, "metadata.namespace"), text(found.pod, "metadata.name"));
    let phase = text(found.pod, "status.phase");
    let mut answer = if is_ready(found.pod) {
        format!("Pod {namespace}/{name} is Ready.\n")
    } else if phase == "Succeeded" {
        format!("Pod {namespace}/{name} is done: all its containers ended well.\n")
    } else {
        format!("Pod {namespace}/{name} is not Ready ({phase}).\n")
    };
    if !text(found.pod, "metadata.deletionTimestamp").is_empty() {
        answer += "It is being deleted.\n";
        let held = list(found.pod, "metadata.finalizers");
        if !held.is_empty() {
            let names: Vec<&str> = held.iter().filter_map(Value::as_str).collect();
            answer += &format!("Finalizers hold it: {}.\n", names.join(", "));
        }
    }
    answer.push('\n');
    let steps = steps(found);
    for step in &steps {
        let mark = match step.done {
            Some(true) => "ok",
            Some(false) => "NO",
            None => "..",
        };
        answer += &format!("{:>4}  {:<12} {mark}  {}\n", step.hop, step.name, step.what);
    }
    for log in found.logs.iter().filter(|log| !log.lines.is_empty()) {
        let when = if log.previous { " before it was restarted" } else { "" };
        answer += &format!("\nLast lines of {}{when}:\n", log.container);
        for line in &log.lines {
            answer += &format!("    {line}\n");
        }
    }
    if let Some(advice) = steps.iter().filter(|step| step.done == Some(false)).find_map(|step| step.advice.as_ref()) {
        answer += &format!("\nNext: {advice}.\n");
    }
    answer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer_about(pod: &Value, events: &[Value]) -> String {
        tell(&Found { pod, events, node: None, logs: &[] })
    }

    #[test]
    fn a_pod_without_a_node_is_explained_by_the_scheduler() {
        let pod = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}]}});
        let answer = answer_about(&pod, &[]);
        assert!(answer.starts_with("Pod n/p is not Ready (Pending).\n"), "{answer}");
        assert!(answer.contains("  10  Scheduler    NO  0/1 nodes are available: 1 Insufficient cpu.\n"), "{answer}");
        assert!(answer.contains("\nNext: ask for less in spec.containers[].resources.requests"), "{answer}");
    }

    #[test]
    fn a_container_that_dies_again_and_again_is_named_with_how() {
        let pod = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"nodeName": "x", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": false,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}});
        assert_eq!(worth_reading(&pod), [("c".to_owned(), true)]);
        let logs = [Log { container: "c".to_owned(), previous: true, lines: vec!["last".to_owned()] }];
        let answer = tell(&Found { pod: &pod, events: &[], node: None, logs: &logs });
        assert!(answer.contains("  11  Kubelet      NO  container c: CrashLoopBackOff: back-off (exit code 137, OOMKilled; it needs more memory than its limit)\n"), "{answer}");
        assert!(answer.contains("Last lines of c before it was restarted:\n    last\n"), "{answer}");
    }

    #[test]
    fn a_probe_that_fails_is_the_last_step() {
        let pod = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"nodeName": "x", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": false, "started": true, "state": {"running": {}}}]}});
        let event = json!({"reason": "Unhealthy", "message": "Readiness probe failed: no", "lastTimestamp": "2030-01-01T00:00:00Z"});
        let answer = answer_about(&pod, &[event]);
        assert!(answer.contains("  12  Ready        NO  container c runs and its readiness probe has not succeeded: Readiness probe failed: no\n"), "{answer}");
        let ready = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"nodeName": "x"}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert!(answer_about(&ready, &[]).starts_with("Pod n/p is Ready.\n"));
    }
}
