//! What the pods of a node ask for, each and together.

use machinery::quantity::Quantity;
use machinery::{Value, value};
use rules::pod_resources::{self, Amounts, Side, charged, held};

use crate::show::Scene;
use crate::writer::{Writer, put};

pub fn text(scene: &Scene<'_>, out: &mut Writer, pods: &[Value]) {
    put!(out, 0, "Non-terminated Pods:\t({} in total)\n", pods.len());
    put!(out, 1, "Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge\n");
    put!(out, 1, "---------\t----\t\t------------\t----------\t---------------\t-------------\t---\n");
    let allocatable = pod_resources::amounts(scene.at("status.allocatable"));
    let allocatable =
        if allocatable.is_empty() { pod_resources::amounts(scene.at("status.capacity")) } else { allocatable };
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    for pod in pods {
        let (asked, most) = (held(pod, Side::Requests), held(pod, Side::Limits));
        let cells = [(&asked, "cpu"), (&most, "cpu"), (&asked, "memory"), (&most, "memory")].map(|(of, resource)| {
            let amount = of_resource(of, resource);
            let share = share(&amount, &of_resource(&allocatable, resource), resource);
            format!("{amount} ({share}%)")
        });
        let (namespace, name) = (value::text(pod, "metadata.namespace"), value::text(pod, "metadata.name"));
        let age = scene.since(pod, "metadata.creationTimestamp");
        put!(out, 1, "{namespace}\t{name}\t\t{}\t{age}\n", cells.join("\t"));
        pod_resources::add(&mut requests, &charged(pod, Side::Requests));
        pod_resources::add(&mut limits, &charged(pod, Side::Limits));
    }
    allocated(out, &allocatable, &requests, &limits);
}

fn of_resource(amounts: &Amounts, resource: &str) -> Quantity {
    amounts.get(resource).cloned().unwrap_or(Quantity::ZERO)
}

/// How many percent of a whole an amount is. A share of nothing is what Go makes of it on most machines.
fn share(amount: &Quantity, whole: &Quantity, resource: &str) -> i64 {
    let number = |quantity: &Quantity| match resource {
        "cpu" => quantity.milli_value() as f64,
        _ => quantity.value() as f64,
    };
    let percent = number(amount) / number(whole) * 100.0;
    if percent.is_finite() { percent as i64 } else { i64::MIN }
}

fn allocated(out: &mut Writer, allocatable: &Amounts, requests: &Amounts, limits: &Amounts) {
    put!(out, 0, "Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)\n");
    put!(out, 1, "Resource\tRequests\tLimits\n");
    put!(out, 1, "--------\t--------\t------\n");
    let standard = ["cpu", "memory", "ephemeral-storage"];
    let is_huge = |name: &&str| name.starts_with("hugepages-");
    let names: Vec<&str> = allocatable.keys().map(String::as_str).collect();
    for resource in standard.into_iter().chain(names.iter().copied().filter(is_huge)) {
        let whole = of_resource(allocatable, resource);
        let [requested, limited] = [requests, limits].map(|amounts| {
            let amount = of_resource(amounts, resource);
            let share = if whole.is_zero() { 0 } else { share(&amount, &whole, resource) };
            format!("{amount} ({share}%)")
        });
        put!(out, 1, "{resource}\t{requested}\t{limited}\n");
    }
    let others = names.into_iter().filter(|name| !is_huge(name) && !standard.contains(name) && *name != "pods");
    for resource in others {
        put!(out, 1, "{resource}\t{}\t{}\n", of_resource(requests, resource), of_resource(limits, resource));
    }
}
