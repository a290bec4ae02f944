//! The first priority levels and flow schemas, as data: the mandatory ones and those that upstream suggests.

use machinery::Value;
use serde_json::json;

/// The group of both kinds.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Says whether the server keeps an object as it suggests it.
pub const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Whether it must be there, as it is.
pub fn is_mandatory(object: &Value) -> bool {
    matches!(object["metadata"]["name"].as_str(), Some("exempt" | "catch-all"))
}

/// What a FlowSchema says of its level.
pub fn dangling(level: &str, dangles: bool, now: &str) -> Value {
    let (status, reason, ending) =
        if dangles { ("True", "NotFound", "but there is no such object") } else { ("False", "Found", "and it exists") };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {ending}");
    json!({"type": "Dangling", "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
}

/// Whether an object is one of these, by kind and name.
pub fn is_bootstrap(object: &Value) -> bool {
    let same =
        |known: &Value| known["kind"] == object["kind"] && known["metadata"]["name"] == object["metadata"]["name"];
    flow_schemas().iter().chain(&priority_levels()).any(same)
}

/// Adds what counts even while nobody has stored it: without it, nothing would be exempt, or nothing bound.
pub fn add_mandatory(objects: &mut Vec<Value>, bootstrap: Vec<Value>) {
    for object in bootstrap {
        let name = object["metadata"]["name"].as_str();
        let missing = !objects.iter().any(|known| known["metadata"]["name"].as_str() == name);
        if missing && is_mandatory(&object) {
            objects.push(object);
        }
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "generation": 1, "annotations": {AUTOUPDATE: "true"}},
        "spec": spec,
    })
}

pub fn priority_levels() -> Vec<Value> {
    let level = |name: &str, spec: Value| object("PriorityLevelConfiguration", name, spec);
    let queuing = |name: &str, shares: i64, lendable: i64, queues: i64, hand: i64| {
        level(
            name,
            json!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": shares, "lendablePercent": lendable,
                "limitResponse": {"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}},
            }}),
        )
    };
    vec![
        level("exempt", json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})),
        level(
            "catch-all",
            json!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"},
            }}),
        ),
        queuing("system", 30, 33, 64, 6),
        queuing("node-high", 40, 25, 64, 6),
        queuing("leader-election", 10, 0, 16, 4),
        queuing("workload-high", 40, 50, 128, 6),
        queuing("workload-low", 100, 90, 128, 6),
        queuing("global-default", 20, 50, 128, 6),
    ]
}

pub fn flow_schemas() -> Vec<Value> {
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let everybody = || json!([group("system:unauthenticated"), group("system:authenticated")]);
    let account = json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let rule = |verbs: &[&str], api_group: &str, resources: &[&str], cluster: bool| {
        let mut rule = json!({"verbs": verbs, "apiGroups": [api_group], "resources": resources, "namespaces": ["*"]});
        if cluster {
            rule["clusterScope"] = json!(true);
        }
        rule
    };
    let everything = |subjects: Value| {
        json!([{
            "subjects": subjects, "resourceRules": [rule(&["*"], "*", &["*"], true)],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }])
    };
    let schema = |name: &str, level: &str, precedence: i64, by: &str, rules: Value| {
        let mut spec = json!({
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": rules,
        });
        if !by.is_empty() {
            spec["distinguisherMethod"] = json!({"type": by});
        }
        object("FlowSchema", name, spec)
    };
    let (controllers, scheduler) = (user("system:kube-controller-manager"), user("system:kube-scheduler"));
    let leases = |verbs: &[&str]| rule(verbs, "coordination.k8s.io", &["leases"], false);
    vec![
        schema("exempt", "exempt", 1, "", everything(json!([group("system:masters")]))),
        schema("catch-all", "catch-all", 10000, "ByUser", everything(everybody())),
        schema("system-nodes", "system", 500, "ByUser", everything(json!([group("system:nodes")]))),
        schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            json!([{"subjects": [group("system:nodes")], "resourceRules": [
                rule(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"]),
            ]}]),
        ),
        schema(
            "probes",
            "exempt",
            2,
            "",
            json!([{"subjects": everybody(), "nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]},
            ]}]),
        ),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            json!([{"subjects": [controllers, scheduler, account], "resourceRules": [leases(&["get", "create", "update"])]}]),
        ),
        schema("kube-controller-manager", "workload-high", 800, "ByNamespace", everything(json!([controllers]))),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", everything(json!([scheduler]))),
        schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", everything(json!([account]))),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            everything(json!([group("system:serviceaccounts")])),
        ),
        schema("global-default", "global-default", 9900, "ByUser", everything(everybody())),
    ]
}

/// Those that must be there, as they are.
pub fn mandatory(mut objects: Vec<Value>) -> Vec<Value> {
    objects.retain(is_mandatory);
    objects
}
