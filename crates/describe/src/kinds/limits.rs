//! Limit ranges and resource quotas.

use std::collections::BTreeSet;

use machinery::quantity::Quantity;
use machinery::{Value, value};

use crate::Error;
use crate::show::{Scene, at, quantity};
use crate::writer::{Writer, put};

const COLUMNS: [&str; 5] = ["min", "max", "defaultRequest", "default", "maxLimitRequestRatio"];

pub fn limit_range(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    put!(out, 0, "Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n");
    put!(out, 0, "----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n");
    limits(out, scene.object, "");
    Ok(())
}

/// A line for every resource that a limit is about. Upstream's order within a limit changes from run to run; here it is by name.
fn limits(out: &mut Writer, range: &Value, prefix: &str) {
    for limit in value::list(range, "spec.limits") {
        let maps = COLUMNS.iter().filter_map(|column| limit.get(*column)?.as_object());
        let resources: BTreeSet<&String> = maps.flat_map(serde_json::Map::keys).collect();
        for resource in resources {
            let cells = COLUMNS.map(|column| {
                let amount = limit.get(column).and_then(|amounts| amounts.get(resource));
                amount.map_or_else(|| "-".to_owned(), |amount| quantity(Some(amount)).to_string())
            });
            put!(out, 0, "{prefix}{}\t{resource}\t{}\n", value::text(limit, "type"), cells.join("\t"));
        }
    }
}

/// The limit ranges of a namespace in one table.
pub fn all_limit_ranges(out: &mut Writer, ranges: &[Value]) {
    if ranges.is_empty() {
        return put!(out, 0, "No LimitRange resource.\n");
    }
    put!(
        out,
        0,
        "Resource Limits\n Type\tResource\tMin\tMax\tDefault Request\tDefault Limit\tMax Limit/Request Ratio\n"
    );
    put!(out, 0, " ----\t--------\t---\t---\t---------------\t-------------\t-----------------------\n");
    ranges.iter().for_each(|range| limits(out, range, " "));
}

/// The scopes of a quota, and what they mean.
fn scopes(out: &mut Writer, quota: &Value, level: usize, bullet: &str) {
    let mut scopes: Vec<&str> = value::list(quota, "spec.scopes").iter().filter_map(Value::as_str).collect();
    if scopes.is_empty() {
        return;
    }
    scopes.sort_unstable();
    out.field(level, "Scopes", scopes.join(", "));
    for scope in scopes {
        let help = match scope {
            "Terminating" => {
                "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being actively terminated by the system."
            }
            "NotTerminating" => {
                "Matches all pods that do not have an active deadline. These pods usually include long running pods whose container command is not expected to terminate."
            }
            "BestEffort" => {
                "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service."
            }
            "NotBestEffort" => {
                "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed quality of service."
            }
            _ => continue,
        };
        put!(out, level, "{bullet}* {help}\n");
    }
}

/// What a quota has, how much of it is used: sorted by resource.
fn used(quota: &Value) -> Vec<(&String, Quantity, Quantity)> {
    let hard = at(quota, "status.hard").and_then(Value::as_object);
    let used = |resource: &String| at(quota, "status.used").and_then(|used| used.get(resource));
    let mut rows: Vec<_> = hard
        .into_iter()
        .flatten()
        .map(|(resource, hard)| (resource, quantity(used(resource)), quantity(Some(hard))))
        .collect();
    rows.sort_by_key(|(resource, ..)| *resource);
    rows
}

pub fn resource_quota(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    scopes(out, scene.object, 0, " ");
    put!(out, 0, "Resource\tUsed\tHard\n");
    put!(out, 0, "--------\t----\t----\n");
    for (resource, mut used, hard) in used(scene.object) {
        // What is used is written as what there is.
        if used.format() != hard.format() {
            used = Quantity::new(used.value(), hard.format());
        }
        put!(out, 0, "{resource}\t{used}\t{hard}\n");
    }
    Ok(())
}

/// The quotas of a namespace, one below the other.
pub fn all_quotas(out: &mut Writer, quotas: &[Value]) {
    if quotas.is_empty() {
        return put!(out, 0, "No resource quota.\n");
    }
    let mut sorted: Vec<&Value> = quotas.iter().collect();
    sorted.sort_by(|a, b| value::text(a, "metadata.name").cmp(value::text(b, "metadata.name")));
    put!(out, 0, "Resource Quotas\n");
    for quota in sorted {
        out.field(1, "Name", value::text(quota, "metadata.name"));
        scopes(out, quota, 1, "");
        put!(out, 1, "Resource\tUsed\tHard\n");
        put!(out, 1, "--------\t---\t---\n");
        for (resource, used, hard) in used(quota) {
            put!(out, 1, "{resource}\t{used}\t{hard}\n");
        }
    }
}
