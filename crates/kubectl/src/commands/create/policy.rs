//! `kubectl create namespace`, `serviceaccount`, `quota`, `poddisruptionbudget` and `priorityclass`.

use machinery::status::go_quote;
use serde_json::{Map, Value, json};

use super::{GENERATOR, generated, name};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;

pub static NAMESPACE: Command = Command {
    name: "namespace",
    aliases: &["ns"],
    usage: "NAME [--dry-run=server|client|none]",
    short: "Create a namespace with the specified name",
    flags: &[GENERATOR],
    children: &[],
    run: Some(|invocation| Box::pin(namespace(invocation))),
};

pub static SERVICE_ACCOUNT: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    usage: "NAME [--dry-run=server|client|none]",
    short: "Create a service account with the specified name",
    flags: &[GENERATOR],
    children: &[],
    run: Some(|invocation| Box::pin(service_account(invocation))),
};

pub static QUOTA: Command = Command {
    name: "quota",
    aliases: &["resourcequota"],
    usage: "NAME [--hard=key1=value1,key2=value2] [--scopes=Scope1,Scope2] [--dry-run=server|client|none]",
    short: "Create a quota with the specified name",
    flags: &[
        GENERATOR,
        &[
            Flag::string("hard", "", "Limits as resource=amount, separated by commas."),
            Flag::string("scopes", "", "Scopes, separated by commas."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(quota(invocation))),
};

pub static POD_DISRUPTION_BUDGET: Command = Command {
    name: "poddisruptionbudget",
    aliases: &["pdb"],
    usage: "NAME --selector=SELECTOR --min-available=N [--dry-run=server|client|none]",
    short: "Create a pod disruption budget with the specified name",
    flags: &[
        GENERATOR,
        &[
            Flag::string("max-unavailable", "", "Number or percentage of pods that may be gone."),
            Flag::string("min-available", "", "Number or percentage of pods that must be there."),
            Flag::string("selector", "", "Label query of the pods."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(pod_disruption_budget(invocation))),
};

pub static PRIORITY_CLASS: Command = Command {
    name: "priorityclass",
    aliases: &["pc"],
    usage: "NAME --value=VALUE --global-default=BOOL [--dry-run=server|client|none]",
    short: "Create a priority class with the specified name",
    flags: &[
        GENERATOR,
        &[
            Flag::string("description", "", "What the class is for."),
            Flag::bool("global-default", "Pods without a class have this one."),
            Flag::string("preemption-policy", "PreemptLowerPriority", "Whether others make room."),
            Flag::int32("value", "0", "The priority."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(priority_class(invocation))),
};

async fn namespace(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {}, "status": {}});
    generated(invocation, "", object).await
}

async fn service_account(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    generated(
        invocation,
        "serviceaccount:",
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}),
    )
    .await
}

async fn quota(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let mut spec = Map::new();
    let hard = invocation.flags.text("hard").to_owned();
    if !hard.is_empty() {
        let mut limits = Map::new();
        for pair in hard.split(',') {
            let parts: Vec<&str> = pair.split('=').collect();
            let [resource, amount] = parts[..] else {
                return Err(Failure::Message(format!("Invalid argument syntax {pair}, expected <resource>=<value>")));
            };
            let amount: machinery::quantity::Quantity =
                amount.parse().map_err(|error| Failure::Message(format!("{error}")))?;
            limits.insert(resource.to_owned(), amount.to_string().into());
        }
        spec.insert("hard".to_owned(), Value::Object(limits));
    }
    let scopes = invocation.flags.text("scopes").to_owned();
    if !scopes.is_empty() {
        let scopes: Vec<&str> = scopes.split(',').collect();
        if scopes.iter().any(|scope| scope.is_empty()) {
            return Err(Failure::Message(format!("invalid resource quota scope {}", go_quote(""))));
        }
        spec.insert("scopes".to_owned(), json!(scopes));
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec, "status": {},
    });
    generated(invocation, "quota:", object).await
}

async fn pod_disruption_budget(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let flags = &invocation.flags;
    let (least, most) = (flags.text("min-available").to_owned(), flags.text("max-unavailable").to_owned());
    if flags.text("selector").is_empty() {
        return Err(Failure::message("a selector must be specified"));
    }
    if least.is_empty() && most.is_empty() {
        return Err(Failure::message("one of min-available or max-unavailable must be specified"));
    }
    if !least.is_empty() && !most.is_empty() {
        return Err(Failure::message("min-available and max-unavailable cannot be both specified"));
    }
    for (flag, text) in [("min-available", &least), ("max-unavailable", &most)] {
        let digits = text.strip_suffix('%').unwrap_or(text);
        if !text.is_empty() && (digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(Failure::Message(format!("invalid format specified for {flag}")));
        }
    }
    machinery::selector::LabelSelector::parse(flags.text("selector")).map_err(|why| {
        let text = machinery::status::go_quote(flags.text("selector"));
        Failure::Message(format!("couldn't parse the selector string {text}: {why}"))
    })?;
    let selector = crate::selector::of_query(flags.text("selector")).map_err(Failure::Message)?;
    let mut spec = json!({"selector": selector});
    let number = |text: &str| text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from);
    if !least.is_empty() {
        spec["minAvailable"] = number(&least);
    }
    if !most.is_empty() {
        spec["maxUnavailable"] = number(&most);
    }
    let object = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec,
        "status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0},
    });
    generated(invocation, "poddisruptionbudgets:", object).await
}

async fn priority_class(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let flags = &invocation.flags;
    let mut object = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "value": flags.int("value"), "preemptionPolicy": flags.text("preemption-policy"),
    });
    if flags.is("global-default") {
        object["globalDefault"] = true.into();
    }
    if let Some(description) = flags.given("description") {
        object["description"] = description.into();
    }
    generated(invocation, "priorityclass:", object).await
}
