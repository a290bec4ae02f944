//! `kubectl auth reconcile`: roles and bindings that have at least what files say, whoever else wrote to them.

use machinery::ApiError;
use machinery::status::Reason;
use machinery::value::{at, list, remove, set, text};
use rules::rbac::{Rule, uncovered};
use serde_json::{Map, Value, json};

use crate::api::{Api, JSON};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::report::Report;
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{Builder, Info, settle};

pub static COMMAND: Command = Command {
    name: "reconcile",
    aliases: &[],
    usage: "-f FILENAME",
    short: "Reconciles rules for RBAC role, role binding, cluster role, and cluster role binding objects",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::DRY_RUN,
        &[
            Flag::bool("remove-extra-permissions", "Take away what roles allow beyond the files."),
            Flag::bool("remove-extra-subjects", "Take away whom bindings name beyond the files."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// How often a change that others interfere with is tried.
const MOST: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    None,
    Create,
    Update,
    Recreate,
}

/// What has to be done, and why.
#[derive(Debug)]
struct Plan {
    operation: Operation,
    object: Value,
    /// The object asked to be left alone.
    protected: bool,
    missing: Vec<String>,
    extra: Vec<String>,
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    if flags.list("filename").is_empty() && flags.text("kustomize").is_empty() {
        return Err(Failure::message("must specify one of -f and -k"));
    }
    if !flags.arguments.is_empty() {
        return Err(Failure::message("no arguments are allowed"));
    }
    let dry = match DryRun::from_flags(flags)? {
        DryRun::Server => {
            return Err(Failure::message("--dry-run=server for command reconcile is not supported yet"));
        }
        other => other,
    };
    // Versions that the server no longer has are told by their names.
    let builder = Builder { local: true, ..Builder::from_flags(&invocation.session, flags)? };
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let mut errors = found.errors;
    for mut info in found.infos {
        if info.mapping.group != "rbac.authorization.k8s.io" {
            continue;
        }
        if info.mapping.version != "v1" {
            errors.push(Failure::Message(format!(
                "only rbac.authorization.k8s.io/v1 is supported: not *{}.{}",
                info.mapping.version, info.mapping.kind
            )));
            continue;
        }
        settle(&mut info, &builder.namespace, builder.enforce_namespace)?;
        match one(invocation, &info, dry).await {
            Ok(plan) => tell(invocation, &info, &plan, dry)?,
            Err(error) => errors.push(error),
        }
    }
    Failure::all(errors)
}

async fn one(invocation: &Invocation, info: &Info, dry: DryRun) -> Outcome<Plan> {
    let api = invocation.session.api()?;
    let binding = info.mapping.kind.ends_with("Binding");
    let flag = if binding { "remove-extra-subjects" } else { "remove-extra-permissions" };
    let remove_extra = invocation.flags.is(flag);
    let mut tries = 0;
    loop {
        tries += 1;
        let plan = match api.get(&info.path()).await {
            Ok(existing) if binding => plan_binding(&existing, &info.object, remove_extra),
            Ok(existing) => plan_role(&existing, &info.object, remove_extra),
            Err(error) if error.is_not_found() => new(&info.object, binding),
            Err(error) => return Err(error),
        };
        if plan.protected || dry == DryRun::Client {
            return Ok(plan);
        }
        match carry_out(&api, info, &plan).await {
            Ok(None) => return Ok(plan),
            Ok(Some(object)) => return Ok(Plan { object, ..plan }),
            Err(error) if tries < MOST && is_race(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Somebody else created, changed or deleted it meanwhile.
fn is_race(error: &Failure) -> bool {
    error.is(Reason::AlreadyExists) || error.is(Reason::Conflict) || error.is_not_found()
}

async fn carry_out(api: &Api, info: &Info, plan: &Plan) -> Outcome<Option<Value>> {
    let writing = Writing::default();
    let wanted = Info { object: plan.object.clone(), ..info.clone() };
    match plan.operation {
        Operation::None => return Ok(None),
        Operation::Update => return writing.replace(api, info, &plan.object).await.map(Some),
        Operation::Recreate => {
            let options = json!({});
            match api.send(http::Method::DELETE, &info.path(), JSON, &options).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Operation::Create => {}
    }
    if info.mapping.namespaced {
        namespace(api, &info.namespace).await?;
    }
    writing.create(api, &wanted).await.map(Some)
}

/// The namespace is made where it is missing.
async fn namespace(api: &Api, name: &str) -> Outcome {
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    match api.send(http::Method::POST, "/api/v1/namespaces", JSON, &made).await {
        Ok(_) => Ok(()),
        Err(Failure::Api(ApiError { code: 403 | 409, .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

fn new(expected: &Value, binding: bool) -> Plan {
    let missing = if binding {
        list(expected, "subjects").iter().map(subject).collect()
    } else {
        rules_of(expected).iter().map(rule).collect()
    };
    Plan { operation: Operation::Create, object: expected.clone(), protected: false, missing, extra: Vec::new() }
}

fn rules_of(role: &Value) -> Vec<Rule> {
    list(role, "rules").iter().map(Rule::of).collect()
}

fn is_protected(object: &Value) -> bool {
    let all = at(object, "metadata.annotations");
    all.and_then(|all| all.get("rbac.authorization.kubernetes.io/autoupdate")).is_some_and(|value| value == "false")
}

/// The existing object with the labels and annotations of the files; what it has itself stays.
fn merged(existing: &Value, expected: &Value) -> (Value, Operation) {
    let mut object = existing.clone();
    let mut operation = Operation::None;
    for field in ["metadata.annotations", "metadata.labels"] {
        let of = |tree: &Value| at(tree, field).and_then(Value::as_object).cloned().unwrap_or_default();
        let (own, wanted) = (of(existing), of(expected));
        let all: Map<String, Value> = wanted.into_iter().chain(own.clone()).collect();
        if all != own {
            set(&mut object, field, Value::Object(all));
            operation = Operation::Update;
        }
    }
    (object, operation)
}

fn plan_role(existing: &Value, expected: &Value, remove_extra: bool) -> Plan {
    let (mut object, mut operation) = merged(existing, expected);
    let (held, wanted) = (rules_of(existing), rules_of(expected));
    let missing = uncovered(held.iter(), &wanted);
    let aggregated = |role: &Value| role.get("aggregationRule").is_some_and(Value::is_object);
    let both = aggregated(existing) && aggregated(expected);
    let extra = if both { Vec::new() } else { uncovered(wanted.iter(), &held) };
    if !remove_extra && !missing.is_empty() {
        let all = list(existing, "rules").iter().cloned().chain(missing.iter().map(Rule::to_value));
        set(&mut object, "rules", all.collect::<Vec<_>>());
        operation = Operation::Update;
    } else if remove_extra && (!missing.is_empty() || !extra.is_empty()) {
        set(&mut object, "rules", list(expected, "rules").to_vec());
        operation = Operation::Update;
    }
    let selectors = |role: &Value| list(role, "aggregationRule.clusterRoleSelectors").to_vec();
    let (own, asked) = (selectors(existing), selectors(expected));
    let lacks: Vec<Value> = asked.iter().filter(|selector| !own.contains(selector)).cloned().collect();
    let more = own.iter().any(|selector| !asked.contains(selector));
    if aggregated(existing) && !aggregated(expected) {
        remove(&mut object, "aggregationRule");
        operation = Operation::Update;
    } else if !remove_extra && !lacks.is_empty() {
        set(&mut object, "aggregationRule.clusterRoleSelectors", [own, lacks].concat());
        operation = Operation::Update;
    } else if remove_extra && (!lacks.is_empty() || more) {
        set(&mut object, "aggregationRule", expected["aggregationRule"].clone());
        operation = Operation::Update;
    }
    let written = |rules: &[Rule]| rules.iter().map(rule).collect();
    let extra = if remove_extra { written(&extra) } else { Vec::new() };
    Plan { operation, object, protected: is_protected(existing), missing: written(&missing), extra }
}

fn plan_binding(existing: &Value, expected: &Value, remove_extra: bool) -> Plan {
    let protected = is_protected(existing);
    if existing.get("roleRef") != expected.get("roleRef") {
        let object = expected.clone();
        return Plan { operation: Operation::Recreate, object, protected, missing: Vec::new(), extra: Vec::new() };
    }
    let (mut object, mut operation) = merged(existing, expected);
    let only = |one: &Value, other: &Value| {
        let mut found: Vec<Value> = Vec::new();
        for item in list(one, "subjects") {
            if !list(other, "subjects").iter().any(|known| same(known, item)) && !found.contains(item) {
                found.push(item.clone());
            }
        }
        found
    };
    let (missing, extra) = (only(expected, existing), only(existing, expected));
    if !remove_extra && !missing.is_empty() {
        set(&mut object, "subjects", [list(existing, "subjects"), &missing].concat());
        operation = Operation::Update;
    } else if remove_extra && (!missing.is_empty() || !extra.is_empty()) {
        set(&mut object, "subjects", list(expected, "subjects").to_vec());
        operation = Operation::Update;
    }
    let written = |subjects: &[Value]| subjects.iter().map(subject).collect();
    let extra = if remove_extra { written(&extra) } else { Vec::new() };
    Plan { operation, object, protected, missing: written(&missing), extra }
}

fn same(one: &Value, other: &Value) -> bool {
    subject(one) == subject(other)
}

/// As Go writes a `Subject`; the server fills in the group of those that name none.
fn subject(value: &Value) -> String {
    let group = match (text(value, "apiGroup"), text(value, "kind")) {
        ("", "User" | "Group") => "rbac.authorization.k8s.io",
        (group, _) => group,
    };
    let (kind, name, namespace) = (text(value, "kind"), text(value, "name"), text(value, "namespace"));
    format!("{{Kind:{kind} APIGroup:{group} Name:{name} Namespace:{namespace}}}")
}

/// As Go writes a `PolicyRule`.
fn rule(rule: &Rule) -> String {
    let list = |words: &[String]| format!("[{}]", words.join(" "));
    format!(
        "{{Verbs:{} APIGroups:{} Resources:{} ResourceNames:{} NonResourceURLs:{}}}",
        list(&rule.verbs),
        list(&rule.groups),
        list(&rule.resources),
        list(&rule.names),
        list(&rule.urls)
    )
}

fn tell(invocation: &mut Invocation, info: &Info, plan: &Plan, dry: DryRun) -> Outcome {
    Report::new(invocation, dry, false)?.say(invocation, &plan.object, "reconciled")?;
    let caveat =
        if plan.protected { ", but object opted out (rbac.authorization.kubernetes.io/autoupdate: false)" } else { "" };
    let operation = match plan.operation {
        Operation::None => return Ok(()),
        Operation::Create => "create",
        Operation::Update => "update",
        Operation::Recreate => "recreate",
    };
    let what = if info.mapping.kind.ends_with("Binding") { "subjects" } else { "rules" };
    let mut lines = vec![format!("\treconciliation required {operation}{caveat}")];
    for (list, done) in [(&plan.missing, "missing"), (&plan.extra, "extra")] {
        if !list.is_empty() {
            let verb = if done == "missing" { "added" } else { "removed" };
            lines.push(format!("\t{done} {what} {verb}:"));
            lines.extend(list.iter().map(|item| format!("\t\t{item}")));
        }
    }
    for line in lines {
        invocation.streams.error(&line);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_get_what_they_lack_and_lose_what_they_must() {
        let role = |verbs: &[&str]| json!({"rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]});
        let plan = plan_role(&role(&["get", "list"]), &role(&["get", "watch"]), false);
        assert_eq!(plan.operation, Operation::Update);
        assert_eq!(plan.missing, ["{Verbs:[watch] APIGroups:[] Resources:[pods] ResourceNames:[] NonResourceURLs:[]}"]);
        assert_eq!(list(&plan.object, "rules").len(), 2);
        let plan = plan_role(&role(&["get", "list"]), &role(&["get"]), true);
        assert_eq!((plan.operation, plan.extra.len(), &plan.object), (Operation::Update, 1, &role(&["get"])));
        assert_eq!(plan_role(&role(&["*"]), &role(&["get"]), false).operation, Operation::None);
    }

    #[test]
    fn bindings_to_another_role_are_made_anew() {
        let binding = |role: &str, names: &[&str]| {
            let subjects: Vec<Value> = names.iter().map(|name| json!({"kind": "User", "name": name})).collect();
            json!({"roleRef": {"name": role}, "subjects": subjects})
        };
        assert_eq!(plan_binding(&binding("a", &[]), &binding("b", &[]), false).operation, Operation::Recreate);
        let plan = plan_binding(&binding("a", &["x"]), &binding("a", &["y"]), false);
        assert_eq!((plan.missing.len(), list(&plan.object, "subjects").len()), (1, 2));
        let plan = plan_binding(&binding("a", &["x"]), &binding("a", &["y"]), true);
        assert_eq!((plan.extra.len(), list(&plan.object, "subjects").len()), (1, 1));
    }
}
