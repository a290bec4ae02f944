//! What every cluster has from the beginning: namespaces, roles, priority classes, priority levels, the `kubernetes` Service.
//!
//! Made at every start where it is missing, repaired where upstream repairs it, and left alone otherwise. What must be there
//! all the time is looked after while the server runs, too (`keeper`). All of it by requests that pass the gates as everybody's do.

pub(crate) mod flow_control;
pub(crate) mod keeper;
mod mainstays;
mod objects;

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinery::status::{ApiError, Reason};
use machinery::{Value, value};
use rest::Api;
use rest::registry::Resource;

use crate::loopback::Loopback;
pub use mainstays::Place;

/// How a present object is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    /// It is the users' now.
    Never,
    /// Its content is put right, unless it opted out by annotation.
    Rules,
    /// Its content is put right.
    Always,
    /// Its addresses are the servers that are alive.
    Listed,
    /// Its ranges get a second family, if the cluster got one.
    Ranges,
    /// Its spec is put right, unless somebody said by annotation, or by a change, that it is theirs.
    Suggested,
    /// Its spec is put right, except for what users may set of the exempt level.
    Mandatory,
}

/// One object to have.
struct Wanted {
    group: &'static str,
    plural: &'static str,
    object: Value,
    repair: Repair,
}

/// How often a start looks again, where another server of the same cluster was faster.
const ROUNDS: usize = 4;

/// Makes everything that is missing.
pub async fn run(api: &Api, loopback: &Loopback, place: Place, live: &BTreeSet<IpAddr>) -> Result<(), ApiError> {
    let (namespaces, mainstays) = mainstays::wanted(api, place, live);
    together(api, loopback, &namespaces).await?;
    let mut rest = objects::rbac();
    rest.extend(objects::priority_classes());
    rest.extend(flow_control::objects(&api.now()));
    futures::try_join!(in_order(api, loopback, &mainstays), together(api, loopback, &rest))?;
    api.caches.settle().await?;
    Ok(())
}

/// Puts objects right that do not depend on each other. Writes wait for each other's fsync only if they are one after the other;
/// together they share it.
async fn together(api: &Api, loopback: &Loopback, wanted: &[Wanted]) -> Result<(), ApiError> {
    for _ in 0..ROUNDS {
        let steps = wanted.iter().filter_map(|wanted| step(api, wanted));
        let taken: Vec<bool> = futures::future::try_join_all(steps.map(|step| step.attempt(loopback))).await?;
        api.caches.settle().await?;
        if taken.is_empty() || taken.contains(&false) {
            break;
        }
    }
    Ok(())
}

/// Puts objects right one after the other: a Service takes its address before anybody says that it is taken.
async fn in_order(api: &Api, loopback: &Loopback, wanted: &[Wanted]) -> Result<(), ApiError> {
    for step in wanted.iter().filter_map(|wanted| step(api, wanted)) {
        step.attempt(loopback).await?;
    }
    Ok(())
}

/// Puts objects right one after the other. Who was faster wakes the next round of the keeper, so nothing is tried twice here.
async fn mend(api: &Api, loopback: &Loopback, wanted: Vec<Wanted>) -> Result<(), ApiError> {
    for step in wanted.iter().filter_map(|wanted| step(api, wanted)) {
        step.take(loopback).await?;
    }
    Ok(())
}

/// Lists the servers that are alive, now: this one has come or goes.
pub async fn list_servers(
    api: &Api,
    loopback: &Loopback,
    place: Place,
    live: &BTreeSet<IpAddr>,
) -> Result<(), ApiError> {
    api.caches.settle().await?;
    if live.is_empty() {
        return mainstays::nobody(api, loopback, place).await;
    }
    mainstays::mend(api, loopback, place, live).await
}

/// What is to be done about one object.
enum Step<'a> {
    Create(&'a Resource, Value),
    Update(&'a Resource, Value),
    /// It cannot become what it should be.
    Replace(&'a Resource, Value, Value),
}

impl Step<'_> {
    /// Whether it was done. What users have set up may refuse the server's own writes: it starts all the same, so that they can
    /// take it back; what the cluster stands on the keeper tries again. Only a store that is away keeps it from starting.
    async fn attempt(self, loopback: &Loopback) -> Result<bool, ApiError> {
        match self.take(loopback).await {
            Ok(()) => Ok(true),
            Err(error) if error.is(Reason::ServiceUnavailable) || error.is(Reason::Timeout) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "one of the server's own objects was refused");
                Ok(false)
            }
        }
    }

    async fn take(self, loopback: &Loopback) -> Result<(), ApiError> {
        match self {
            Self::Create(resource, object) => loopback.create(resource, object).await,
            Self::Update(resource, object) => loopback.update(resource, object, "").await,
            Self::Replace(resource, old, new) => {
                loopback.delete(resource, &old).await?;
                loopback.create(resource, new).await
            }
        }
    }
}

/// Nothing for an object that is as it should be.
fn step<'a>(api: &'a Api, wanted: &Wanted) -> Option<Step<'a>> {
    let resource = api.registry.stored(wanted.group, wanted.plural)?;
    let text = |path: &str| value::text(&wanted.object, path);
    let key = resource.key(text("metadata.namespace"), text("metadata.name"));
    let Some(old) = resource.cache.get(&key).map(|object| object.to_value()) else {
        return Some(Step::Create(resource, wanted.object.clone()));
    };
    // A slice keeps the family that it was made with.
    if wanted.plural == "endpointslices" && old.get("addressType") != wanted.object.get("addressType") {
        return Some(Step::Replace(resource, old, wanted.object.clone()));
    }
    let new = repaired(resource, &old, wanted).filter(|new| *new != old)?;
    Some(Step::Update(resource, new))
}

/// A present object as it should be; nothing if it may stay as it is.
fn repaired(resource: &Resource, old: &Value, wanted: &Wanted) -> Option<Value> {
    let opted_out = value::at(old, "metadata.annotations")
        .and_then(|annotations| annotations.get(facts::rbac::AUTOUPDATE.0))
        .is_some_and(|auto| auto != "true");
    let mut new = old.clone();
    match wanted.repair {
        Repair::Never => return None,
        Repair::Rules if opted_out => return None,
        Repair::Suggested | Repair::Mandatory => {
            // What is compared has its defaults.
            let mut object = wanted.object.clone();
            resource.strategy.default(&mut object);
            return Some(flow_control_repaired(old, &object, wanted.repair));
        }
        Repair::Listed => return Some(mainstays::listed(old, &wanted.object)),
        Repair::Ranges => {
            let (ranges, known) = (value::list(&wanted.object, "spec.cidrs"), value::list(old, "spec.cidrs"));
            if ranges.len() == known.len() || !ranges.starts_with(known) {
                return None;
            }
            value::set(&mut new, "spec.cidrs", ranges.to_vec());
        }
        Repair::Rules | Repair::Always => {
            for (field, content) in wanted.object.as_object().into_iter().flatten() {
                match field.as_str() {
                    "metadata" | "apiVersion" | "kind" => {}
                    // Users may add to a role or to its subjects; nothing of ours may be missing.
                    "rules" | "subjects" => add_missing(&mut new, field, content),
                    _ => value::set(&mut new, field, content.clone()),
                }
            }
        }
    }
    Some(new)
}

/// A flow schema or priority level as it should be.
fn flow_control_repaired(old: &Value, wanted: &Value, repair: Repair) -> Value {
    let mut new = old.clone();
    let annotation = value::at(old, "metadata.annotations").and_then(|all| all.get(flow_control::AUTOUPDATE));
    let ours = match annotation.and_then(Value::as_str) {
        Some("true") => true,
        Some("false") => false,
        // One that nobody ever changed is still as it was suggested.
        _ => value::int(old, "metadata.generation").unwrap_or(1) == 1,
    } || repair == Repair::Mandatory;
    let mut annotations = value::at(old, "metadata.annotations").cloned().unwrap_or_else(|| serde_json::json!({}));
    annotations[flow_control::AUTOUPDATE] = ours.to_string().into();
    value::set(&mut new, "metadata.annotations", annotations);
    if !ours {
        return new;
    }
    let mut spec = wanted["spec"].clone();
    // Users may give the exempt level shares to lend; everything else of it is fixed.
    if let (Some(theirs), true) = (value::at(old, "spec.exempt"), spec.get("exempt").is_some()) {
        spec["exempt"] = theirs.clone();
    }
    if value::at(old, "spec") != Some(&spec) {
        let generation = value::int(old, "metadata.generation").unwrap_or(1);
        value::set(&mut new, "metadata.generation", generation + 1);
        value::set(&mut new, "spec", spec);
    }
    new
}

fn add_missing(object: &mut Value, field: &str, wanted: &Value) {
    let mut present = value::list(object, field).to_vec();
    for item in wanted.as_array().into_iter().flatten() {
        if !present.contains(item) {
            present.push(item.clone());
        }
    }
    if !present.is_empty() {
        value::set(object, field, present);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What becomes of an object's precedence when 7 is suggested.
    fn check(repair: Repair, metadata: Value, expect: i64) {
        let wanted = json!({"metadata": {"name": "x"}, "spec": {"matchingPrecedence": 7}});
        let old = json!({"metadata": metadata, "spec": {"matchingPrecedence": 9}});
        let new = flow_control_repaired(&old, &wanted, repair);
        assert_eq!(value::int(&new, "spec.matchingPrecedence"), Some(expect), "{old}");
    }

    #[test]
    fn suggestions_give_way_to_users_and_mandatory_objects_do_not() {
        let metadata = |auto: &str| json!({"annotations": {flow_control::AUTOUPDATE: auto}, "generation": 3});
        check(Repair::Suggested, metadata("true"), 7);
        check(Repair::Suggested, metadata("false"), 9);
        check(Repair::Suggested, json!({"generation": 1}), 7);
        check(Repair::Suggested, json!({"generation": 2}), 9);
        check(Repair::Mandatory, metadata("false"), 7);
        // Whose it is, is written down.
        let old = json!({"metadata": {"generation": 2}, "spec": {"x": 1}});
        let new = flow_control_repaired(&old, &json!({"spec": {}}), Repair::Suggested);
        assert_eq!(new["metadata"]["annotations"][flow_control::AUTOUPDATE], "false");
    }
}
