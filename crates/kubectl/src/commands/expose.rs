//! `kubectl expose`: a Service for what runs already.

use machinery::value::{at, list, text};
use serde_json::{Map, Value, json};

use super::create::remember;
use super::overrides;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::record;
use crate::report::Report;
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{Builder, Info, files, info};

pub static COMMAND: Command = Command {
    name: "expose",
    aliases: &[],
    usage: "(-f FILENAME | TYPE NAME) [--port=port] [--protocol=TCP|UDP|SCTP] [--target-port=number-or-name] [--name=name] [--external-ip=external-ip-of-service] [--type=type]",
    short: "Take a replication controller, service, deployment or pod and expose it as a new Kubernetes service",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::DRY_RUN,
        sets::RECORD,
        sets::SAVE_CONFIG,
        &[
            sets::field_manager("kubectl-expose"),
            Flag::string("cluster-ip", "", "Address of the service; None is headless."),
            Flag::string("external-ip", "", "Further address of the service."),
            Flag::string("labels", "", "Labels of the service.").short('l'),
            Flag::string("load-balancer-ip", "", "Address of the load balancer."),
            Flag::string("name", "", "Name of the service."),
            Flag::string("override-type", "merge", "Kind of --overrides: json, merge or strategic."),
            Flag::string("overrides", "", "JSON that changes the service before it is made."),
            Flag::string("port", "", "Ports of the service."),
            Flag::string("protocol", "", "Protocol of the ports."),
            Flag::string("selector", "", "Labels of the pods."),
            Flag::string("session-affinity", "", "None or ClientIP."),
            Flag::string("target-port", "", "Port of the containers, by name or number."),
            Flag::string("type", "", "Type of the service."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// `a=b,c=d`.
pub fn labels(text: &str) -> Result<Map<String, Value>, String> {
    let mut all = Map::new();
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("unexpected label spec: {pair}"))?;
        if key.is_empty() {
            return Err("unexpected empty label key".to_owned());
        }
        all.insert(key.to_owned(), value.into());
    }
    Ok(all)
}

/// The labels by which an object finds its pods.
fn selector(object: &Value) -> Result<Map<String, Value>, String> {
    let kind = text(object, "kind");
    let path = match kind {
        "Pod" => "metadata.labels",
        "Service" | "ReplicationController" => "spec.selector",
        "Deployment" | "ReplicaSet" => "spec.selector.matchLabels",
        _ => return Err(format!("cannot expose a {kind}")),
    };
    let labels = at(object, path).and_then(Value::as_object).filter(|labels| !labels.is_empty());
    let Some(labels) = labels else {
        return Err(match kind {
            "Pod" => "the pod has no labels and cannot be exposed".to_owned(),
            "Service" => "the service has no pod selector set".to_owned(),
            "ReplicaSet" => "invalid replicaSet: no selectors, therefore cannot be exposed".to_owned(),
            _ => format!("invalid {}: no selectors, therefore cannot be exposed", kind.to_lowercase()),
        });
    };
    let expressions = list(object, "spec.selector.matchExpressions");
    if !expressions.is_empty() {
        let shown: Vec<String> = expressions.iter().map(shown).collect();
        return Err(format!("couldn't convert expressions - \"[{}]\" to map-based selector format", shown.join(" ")));
    }
    Ok(labels.clone())
}

/// An expression of a selector as Go shows it.
fn shown(expression: &Value) -> String {
    let values: Vec<&str> = list(expression, "values").iter().filter_map(Value::as_str).collect();
    let (key, operator) = (text(expression, "key"), text(expression, "operator"));
    format!("{{Key:{key} Operator:{operator} Values:[{}]}}", values.join(" "))
}

/// Ports that an object's containers, or a service, have: each with its protocol.
fn ports(object: &Value) -> Vec<(String, String)> {
    let protocol = |port: &Value| match text(port, "protocol") {
        "" => "TCP".to_owned(),
        other => other.to_owned(),
    };
    if text(object, "kind") == "Service" {
        let ports = list(object, "spec.ports").iter();
        return ports.filter_map(|port| Some((port.get("port")?.to_string(), protocol(port)))).collect();
    }
    let containers = if text(object, "kind") == "Pod" { "spec.containers" } else { "spec.template.spec.containers" };
    list(object, containers)
        .iter()
        .flat_map(|container| list(container, "ports"))
        .filter_map(|port| Some((port.get("containerPort")?.to_string(), protocol(port))))
        .collect()
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let builder = Builder { selector: String::new(), ..Builder::from_flags(&invocation.session, &invocation.flags)? };
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let writing = Writing::from_flags(&invocation.flags)?;
    let mut errors = found.errors;
    let mut report = Report::new(invocation, writing.dry_run, true)?;
    for one in found.infos {
        if let Err(error) = expose(invocation, &writing, &one, &mut report).await {
            errors.push(error);
        }
    }
    Failure::all(errors)
}

/// Makes a service for an object.
async fn expose(invocation: &mut Invocation, writing: &Writing, one: &Info, report: &mut Report) -> Outcome {
    if !matches!(one.mapping.kind.as_str(), "Pod" | "Service" | "ReplicationController" | "Deployment" | "ReplicaSet") {
        let mapping = &one.mapping;
        let shown =
            if mapping.group.is_empty() { mapping.kind.clone() } else { format!("{}.{}", mapping.kind, mapping.group) };
        return Err(Failure::Message(format!("cannot expose a {shown}")));
    }
    let mut object = service(invocation, one)?;
    overrides::apply(invocation, &mut object)?;
    record::note(invocation, &mut object);
    // What is only shown is not remembered.
    if invocation.flags.is("save-config") && writing.dry_run != DryRun::Client {
        remember(&mut object);
    }
    let mapping = files::local("v1", "Service").unwrap_or_default();
    let mut made = info(&mapping, object, "");
    made.namespace.clone_from(&one.namespace);
    let object = if writing.dry_run == DryRun::Client {
        made.object
    } else {
        writing.create(&*invocation.session.api()?, &made).await?
    };
    report.say(invocation, &object, "exposed")
}

fn service(invocation: &Invocation, of: &Info) -> Outcome<Value> {
    let flags = &invocation.flags;
    let selects = match flags.given("selector") {
        Some(given) => labels(given).map_err(Failure::Message)?,
        None => selector(&of.object).map_err(|why| {
            Failure::Message(format!("couldn't retrieve selectors via --selector flag or introspection: {why}"))
        })?,
    };
    let name = match flags.text("name") {
        "" => of.name.chars().take(63).collect(),
        name => name.to_owned(),
    };
    let known = ports(&of.object);
    let headless = flags.text("cluster-ip") == "None";
    let given: Vec<String> = match flags.text("port") {
        "" => known.iter().map(|(port, _)| port.clone()).collect(),
        list => list.split(',').map(str::to_owned).collect(),
    };
    if given.is_empty() && !headless {
        return Err(Failure::message("couldn't find port via --port flag or introspection"));
    }
    let mut service_ports = Vec::new();
    for (at, port) in given.iter().enumerate() {
        let number: i64 = port.parse().map_err(|_| {
            Failure::Message(format!("strconv.Atoi: parsing {}: invalid syntax", machinery::status::go_quote(port)))
        })?;
        let of_port = known.iter().find(|(known, _)| known == port).map(|(_, protocol)| protocol.clone());
        let protocol = flags.given("protocol").map(str::to_owned).or(of_port).unwrap_or_else(|| "TCP".to_owned());
        let target = match flags.text("target-port") {
            "" => Value::from(number),
            target => target.parse::<i64>().map_or_else(|_| Value::from(target), Value::from),
        };
        let mut entry = json!({"port": number, "protocol": protocol, "targetPort": target});
        if given.len() > 1 {
            entry["name"] = format!("port-{}", at + 1).into();
        }
        service_ports.push(entry);
    }
    let mut spec = json!({"selector": selects});
    if !service_ports.is_empty() {
        spec["ports"] = Value::Array(service_ports);
    }
    if let Some(other) = flags.given("session-affinity").filter(|given| !matches!(*given, "None" | "ClientIP")) {
        return Err(Failure::Message(format!("unknown session affinity: {other}")));
    }
    for (flag, field) in [
        ("cluster-ip", "clusterIP"),
        ("type", "type"),
        ("load-balancer-ip", "loadBalancerIP"),
        ("session-affinity", "sessionAffinity"),
    ] {
        // An address of a load balancer is nothing to other services.
        let meant = flag != "load-balancer-ip" || flags.text("type") == "LoadBalancer";
        if let Some(value) = flags.given(flag).filter(|_| meant) {
            spec[field] = value.into();
        }
    }
    if let Some(address) = flags.given("external-ip") {
        spec["externalIPs"] = json!([address]);
    }
    let mut metadata = json!({"name": name});
    if invocation.session.namespace_given()? {
        metadata["namespace"] = of.namespace.as_str().into();
    }
    let own = match flags.given("labels") {
        Some(given) => labels(given).map_err(Failure::Message)?,
        None => at(&of.object, "metadata.labels").and_then(Value::as_object).cloned().unwrap_or_default(),
    };
    if !own.is_empty() {
        metadata["labels"] = Value::Object(own);
    }
    Ok(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_selector_is_refused_in_upstreams_words() {
        for (object, expected) in [
            (json!({"kind": "Pod"}), "the pod has no labels and cannot be exposed"),
            (json!({"kind": "Service"}), "the service has no pod selector set"),
            (json!({"kind": "ReplicaSet"}), "invalid replicaSet: no selectors, therefore cannot be exposed"),
            (json!({"kind": "Deployment"}), "invalid deployment: no selectors, therefore cannot be exposed"),
            (json!({"kind": "Job"}), "cannot expose a Job"),
            (
                json!({"kind": "Deployment", "spec": {"selector": {
                    "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v", "w"]}],
                }}}),
                "couldn't convert expressions - \"[{Key:k Operator:In Values:[v w]}]\" to map-based selector format",
            ),
        ] {
            assert_eq!(selector(&object), Err(expected.to_owned()), "{object}");
        }
    }

    #[test]
    fn labels_are_pairs() {
        for (text, expected) in [
            ("a", "unexpected label spec: a"),
            ("=b", "unexpected empty label key"),
            ("a=b,c", "unexpected label spec: c"),
        ] {
            assert_eq!(labels(text), Err(expected.to_owned()), "{text}");
        }
        assert_eq!(labels("a=b=c").map(Value::Object), Ok(json!({"a": "b=c"})));
    }
}
