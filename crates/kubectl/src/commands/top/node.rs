//! `kubectl top node`.

use std::collections::BTreeMap;

use machinery::value::{list, text};
use serde_json::{Value, json};

use super::usage;
use crate::command::{Command, Invocation};
use crate::discovery::{query, segment};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::tabs::Tabs;

pub static COMMAND: Command = Command {
    name: "node",
    aliases: &["nodes", "no"],
    usage: "[NAME | -l label]",
    short: "Display resource (CPU/memory) usage of nodes",
    flags: &[
        sets::SELECTOR,
        super::COMMON,
        &[Flag::bool("show-capacity", "Compare with all that a node has, not with what pods may use.")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let name = super::name(invocation)?;
    super::validate_order(invocation)?;
    let selector = invocation.flags.text("selector").to_owned();
    if !name.is_empty() && !selector.is_empty() {
        return Err(Failure::message("only one of NAME or --selector can be provided"));
    }
    let group = super::group(invocation).await?;
    let api = invocation.session.api()?;
    let read = async |path: String| -> Outcome<Vec<Value>> {
        if name.is_empty() {
            let found = api.get(&format!("{path}{}", query(&[("labelSelector", &selector)]))).await?;
            return Ok(list(&found, "items").to_vec());
        }
        Ok(vec![api.get(&format!("{path}/{}", segment(&name))).await?])
    };
    let metrics = read(format!("{group}/nodes")).await?;
    if metrics.is_empty() {
        return Err(Failure::message("metrics not available yet"));
    }
    let nodes = read("/api/v1/nodes".to_owned()).await?;
    let flags = &invocation.flags;
    let options = Options {
        capacity: flags.is("show-capacity"),
        swap: flags.is("show-swap"),
        headers: !flags.is("no-headers"),
        order: flags.text("sort-by").to_owned(),
    };
    invocation.print(&table(metrics, &nodes, &options))
}

struct Options {
    capacity: bool,
    swap: bool,
    headers: bool,
    order: String,
}

fn table(mut metrics: Vec<Value>, nodes: &[Value], options: &Options) -> String {
    let of = if options.capacity { "capacity" } else { "allocatable" };
    let mut available: BTreeMap<&str, Value> = BTreeMap::new();
    for node in nodes {
        let mut has = node["status"][of].clone();
        let swap = node["status"]["nodeInfo"]["swap"]["capacity"].as_i64();
        if let (Some(swap), Value::Object(has)) = (swap, &mut has) {
            has.insert(usage::SWAP.to_owned(), json!(swap.to_string()));
        }
        available.insert(text(node, "metadata.name"), has);
    }
    metrics.sort_by(|first, second| {
        let key = |node: &Value| usage::amount(&node["usage"], &options.order);
        let (one, other) = (key(first), key(second));
        usage::order(&options.order, (&one, text(first, "metadata.name")), (&other, text(second, "metadata.name")))
    });
    let measured = usage::measured(options.swap);
    let mut lines = String::new();
    if options.headers {
        lines += "NAME\tCPU(cores)\tCPU(%)\tMEMORY(bytes)\tMEMORY(%)\t";
        lines += if options.swap { "SWAP(bytes)\tSWAP(%)\t\n" } else { "\n" };
    }
    for node in &metrics {
        let name = text(node, "metadata.name");
        let has = available.remove(name).unwrap_or_default();
        lines += &format!("{name}\t");
        for resource in &measured {
            if *resource == usage::SWAP && has.get(usage::SWAP).is_none() {
                lines += "<unknown>\t<unknown>\t";
                continue;
            }
            let used = usage::amount(&node["usage"], resource);
            lines += &format!("{}\t", usage::shown(resource, &used));
            if has.get(resource).is_some() {
                lines += &format!("{}\t", usage::fraction(&used, &usage::amount(&has, resource)));
            }
        }
        lines.push('\n');
    }
    for name in available.keys() {
        lines += &format!("{name}\t{}\n", "<unknown>\t<unknown>\t".repeat(measured.len()));
    }
    Tabs::new().align(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_shown_with_what_they_have() {
        let metrics =
            |name: &str, cpu: &str| json!({"metadata": {"name": name}, "usage": {"cpu": cpu, "memory": "1Gi"}});
        let node = |name: &str| json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi"}, "capacity": {"cpu": "4", "memory": "8Gi"}}});
        let options = |order: &str| Options { capacity: false, swap: false, headers: true, order: order.to_owned() };
        let all = vec![metrics("a", "100m"), metrics("b", "1")];
        let nodes = [node("a"), node("b"), node("c")];
        assert_eq!(
            table(all.clone(), &nodes, &options("cpu")),
            "NAME   CPU(cores)   CPU(%)      MEMORY(bytes)   MEMORY(%)   \n\
             b      1000m        50%         1024Mi          25%         \n\
             a      100m         5%          1024Mi          25%         \n\
             c      <unknown>    <unknown>   <unknown>       <unknown>   \n"
        );
        let swap = Options { swap: true, headers: false, capacity: true, order: String::new() };
        assert_eq!(
            table(vec![metrics("a", "1")], &nodes[..1], &swap),
            "a     1000m   25%   1024Mi   12%   <unknown>   <unknown>   \n"
        );
    }
}
