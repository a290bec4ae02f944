//! What every cluster has from the beginning: namespaces, roles, priority classes, priority levels, the `kubernetes` Service.
//!
//! Made at every start where it is missing, repaired where upstream repairs it, and left alone otherwise. What must be there
//! all the time is looked after while the server runs, too (`keeper`).

pub(crate) mod flow_control;
pub(crate) mod keeper;
mod mainstays;
mod objects;

use std::net::IpAddr;

use machinery::status::ApiError;
use machinery::{Value, value};

use crate::rest::Api;
use crate::rest::storage::Change;
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
    /// This server's address is among its endpoints.
    Present(IpAddr),
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

/// Makes everything that is missing.
pub async fn run(api: &Api, place: Place) -> Result<(), ApiError> {
    // Writes wait for each other's fsync only if they are one after the other; together they share it.
    let (namespaces, mut rest) = mainstays::wanted(api, place);
    all(api, namespaces).await?;
    rest.extend(objects::rbac());
    rest.extend(objects::priority_classes());
    rest.extend(flow_control::objects(&api.now()));
    all(api, rest).await?;
    api.caches.settle().await?;
    Ok(())
}

/// The bootstrap roles and bindings, by plural.
#[cfg(test)]
pub(crate) fn roles_and_bindings() -> Vec<(&'static str, Value)> {
    objects::rbac().into_iter().map(|wanted| (wanted.plural, wanted.object)).collect()
}

async fn all(api: &Api, wanted: Vec<Wanted>) -> Result<(), ApiError> {
    let ensured = wanted.into_iter().map(|wanted| ensure(api, wanted));
    futures::future::try_join_all(ensured).await.map(|_| ())
}

async fn ensure(api: &Api, mut wanted: Wanted) -> Result<(), ApiError> {
    let Some(resource) = api.registry.stored(wanted.group, wanted.plural) else { return Ok(()) };
    let text = |path: &str| value::text(&wanted.object, path).to_owned();
    let key = resource.key(&text("metadata.namespace"), &text("metadata.name"));
    if resource.cache.get(&key).is_none() {
        value::set(&mut wanted.object, "metadata.uid", crate::gates::new_uuid().to_string());
        value::set(&mut wanted.object, "metadata.creationTimestamp", api.now());
        resource.strategy.default(&mut wanted.object);
        if api.insert(resource, &key, &wanted.object, false).await?.is_some() {
            return Ok(());
        }
    }
    if wanted.repair == Repair::Never {
        return Ok(());
    }
    if matches!(wanted.repair, Repair::Suggested | Repair::Mandatory) {
        // What is compared has its defaults.
        resource.strategy.default(&mut wanted.object);
    }
    api.change(resource, &key, false, |old, _| {
        let opted_out = value::at(old, "metadata.annotations")
            .and_then(|annotations| annotations.get(facts::rbac::AUTOUPDATE.0))
            .is_some_and(|auto| auto != "true");
        if wanted.repair == Repair::Rules && opted_out {
            return Ok(Change::Keep);
        }
        if matches!(wanted.repair, Repair::Suggested | Repair::Mandatory) {
            return Ok(Change::Put(flow_control_repaired(old, &wanted)));
        }
        if let Repair::Present(advertise) = wanted.repair {
            return Ok(mainstays::joined(old, &wanted.object, advertise).map_or(Change::Keep, Change::Put));
        }
        let mut new = old.clone();
        if wanted.repair == Repair::Ranges {
            let (ranges, known) = (value::list(&wanted.object, "spec.cidrs"), value::list(old, "spec.cidrs"));
            if ranges.len() == known.len() || !ranges.starts_with(known) {
                return Ok(Change::Keep);
            }
            value::set(&mut new, "spec.cidrs", ranges.to_vec());
            return Ok(Change::Put(new));
        }
        for (field, content) in wanted.object.as_object().into_iter().flatten() {
            match field.as_str() {
                "metadata" | "apiVersion" | "kind" => {}
                // Users may add to a role or to its subjects; nothing of ours may be missing.
                "rules" | "subjects" => add_missing(&mut new, field, content),
                _ => value::set(&mut new, field, content.clone()),
            }
        }
        Ok(Change::Put(new))
    })
    .await?;
    Ok(())
}

/// A flow schema or priority level as it should be.
fn flow_control_repaired(old: &Value, wanted: &Wanted) -> Value {
    let mut new = old.clone();
    let annotation = value::at(old, "metadata.annotations").and_then(|all| all.get(flow_control::AUTOUPDATE));
    let ours = match annotation.and_then(Value::as_str) {
        Some("true") => true,
        Some("false") => false,
        // One that nobody ever changed is still as it was suggested.
        _ => value::int(old, "metadata.generation").unwrap_or(1) == 1,
    } || wanted.repair == Repair::Mandatory;
    let mut annotations = value::at(old, "metadata.annotations").cloned().unwrap_or_else(|| serde_json::json!({}));
    annotations[flow_control::AUTOUPDATE] = ours.to_string().into();
    value::set(&mut new, "metadata.annotations", annotations);
    if !ours {
        return new;
    }
    let mut spec = wanted.object["spec"].clone();
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
        let object = json!({"metadata": {"name": "x"}, "spec": {"matchingPrecedence": 7}});
        let wanted = Wanted { group: "", plural: "", object, repair };
        let old = json!({"metadata": metadata, "spec": {"matchingPrecedence": 9}});
        let new = flow_control_repaired(&old, &wanted);
        assert_eq!(value::int(&new, "spec.matchingPrecedence"), Some(expect), "{old}");
    }

    #[test]
    fn suggestions_give_way_to_users_and_mandatory_objects_do_not() {
        let said = |auto: &str| json!({"annotations": {flow_control::AUTOUPDATE: auto}, "generation": 3});
        check(Repair::Suggested, said("true"), 7);
        check(Repair::Suggested, said("false"), 9);
        check(Repair::Suggested, json!({"generation": 1}), 7);
        check(Repair::Suggested, json!({"generation": 2}), 9);
        check(Repair::Mandatory, said("false"), 7);
        // Whose it is, is written down.
        let wanted = Wanted { group: "", plural: "", object: json!({"spec": {}}), repair: Repair::Suggested };
        let new = flow_control_repaired(&json!({"metadata": {"generation": 2}, "spec": {"x": 1}}), &wanted);
        assert_eq!(new["metadata"]["annotations"][flow_control::AUTOUPDATE], "false");
    }
}
