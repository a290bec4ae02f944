//! `kubectl create service clusterip`, `nodeport`, `loadbalancer` and `externalname`.

use machinery::status::go_quote;
use serde_json::{Value, json};

use super::{GENERATOR, generated, name};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;

pub static COMMAND: Command = Command {
    name: "service",
    aliases: &["svc"],
    usage: "[flags]",
    short: "Create a service using a specified subcommand",
    flags: &[],
    children: &[&CLUSTER_IP, &EXTERNAL_NAME, &LOAD_BALANCER, &NODE_PORT],
    run: None,
};

const TCP: Flag = Flag::slice("tcp", "Ports as port or port:targetPort.");

static CLUSTER_IP: Command = Command {
    name: "clusterip",
    aliases: &[],
    usage: "NAME [--tcp=<port>:<targetPort>] [--dry-run=server|client|none]",
    short: "Create a ClusterIP service",
    flags: &[GENERATOR, &[TCP, Flag::string("clusterip", "", "Address of the service; None is headless.")]],
    children: &[],
    run: Some(|invocation| Box::pin(service(invocation, "ClusterIP"))),
};

static NODE_PORT: Command = Command {
    name: "nodeport",
    aliases: &[],
    usage: "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
    short: "Create a NodePort service",
    flags: &[GENERATOR, &[TCP, Flag::int("node-port", "0", "Port on each node.")]],
    children: &[],
    run: Some(|invocation| Box::pin(service(invocation, "NodePort"))),
};

static LOAD_BALANCER: Command = Command {
    name: "loadbalancer",
    aliases: &[],
    usage: "NAME [--tcp=port:targetPort] [--dry-run=server|client|none]",
    short: "Create a LoadBalancer service",
    flags: &[GENERATOR, &[TCP]],
    children: &[],
    run: Some(|invocation| Box::pin(service(invocation, "LoadBalancer"))),
};

static EXTERNAL_NAME: Command = Command {
    name: "externalname",
    aliases: &[],
    usage: "NAME --external-name external.name [--dry-run=server|client|none]",
    short: "Create an ExternalName service",
    flags: &[GENERATOR, &[TCP, Flag::string("external-name", "", "Name that the service stands for.")]],
    children: &[],
    run: Some(|invocation| Box::pin(service(invocation, "ExternalName"))),
};

async fn service(invocation: &mut Invocation, kind: &str) -> Outcome {
    let name = name(invocation)?;
    let flags = &invocation.flags;
    let tcp = flags.list("tcp");
    let headless = flags.text("clusterip") == "None";
    let external = flags.text("external-name");
    if kind == "ExternalName" && !machinery::names::is_dns1123_subdomain(external).is_empty() {
        return Err(Failure::Message(format!("invalid service external name {external}")));
    }
    if kind != "ExternalName" && !headless && tcp.is_empty() {
        return Err(Failure::message("at least one tcp port specifier must be provided"));
    }
    let mut ports = Vec::new();
    for text in &tcp {
        ports.push(port(text, flags.int("node-port")).map_err(Failure::Message)?);
    }
    let labels = json!({"app": name});
    let mut spec = json!({"type": kind, "selector": labels});
    if !ports.is_empty() {
        spec["ports"] = Value::Array(ports);
    }
    if let Some(address) = flags.given("clusterip") {
        spec["clusterIP"] = address.into();
    }
    if let Some(name) = flags.given("external-name") {
        spec["externalName"] = name.into();
    }
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels}, "spec": spec,
        "status": {"loadBalancer": {}},
    });
    generated(invocation, &format!("{kind} service:"), object).await
}

/// `80`, `80:8080` or `80:http`.
fn port(text: &str, node_port: i64) -> Result<Value, String> {
    let mut parts = text.split(':');
    let (port, target) = (parts.next().unwrap_or_default(), parts.next());
    let odd = |why: &str| format!("strconv.ParseUint: parsing {}: {why}", go_quote(port));
    let value: i64 = port.parse().map_err(|_| odd("invalid syntax"))?;
    if !(0..=65535).contains(&value) {
        return Err(odd("value out of range"));
    }
    let target = match target {
        None => Value::from(value),
        Some(name) => match name.parse::<i64>() {
            Ok(number) if machinery::names::is_valid_port_num(number).is_empty() => number.into(),
            Ok(_) => return Err(machinery::names::is_valid_port_num(0).join(", ")),
            Err(_) => {
                let wrong = machinery::names::is_valid_port_name(name);
                if !wrong.is_empty() {
                    return Err(wrong.join(", "));
                }
                name.into()
            }
        },
    };
    let mut port = json!({"name": text.replace(':', "-"), "port": value, "protocol": "TCP", "targetPort": target});
    if node_port != 0 {
        port["nodePort"] = node_port.into();
    }
    Ok(port)
}
