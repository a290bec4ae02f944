//! What every cluster has from the beginning: namespaces, roles, priority classes, the `kubernetes` Service.
//!
//! Made at every start where it is missing, repaired where upstream repairs it, and left alone otherwise.

mod objects;

use std::net::IpAddr;

use machinery::status::ApiError;
use machinery::{Value, value};

use crate::rest::Api;
use crate::rest::storage::Change;

/// How a present object is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    /// It is the users' now.
    Never,
    /// Its content is put right, unless it opted out by annotation.
    Rules,
    /// Its content is put right.
    Always,
}

/// One object to have.
struct Wanted {
    group: &'static str,
    plural: &'static str,
    object: Value,
    repair: Repair,
}

/// Makes everything that is missing.
pub async fn run(api: &Api, advertise: IpAddr, port: u16) -> Result<(), ApiError> {
    // Writes wait for each other's fsync only if they are one after the other; together they share it.
    let namespaces = objects::namespaces();
    all(api, namespaces).await?;
    let mut rest = objects::rbac();
    rest.extend(objects::priority_classes());
    rest.extend(objects::service_cidr(&api.allocator.service_range.to_string()));
    rest.extend(objects::kubernetes_service(&api.allocator.service_range.at(1).to_string(), advertise, port));
    all(api, rest).await?;
    api.caches.settle().await?;
    Ok(())
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
        value::set(&mut wanted.object, "metadata.uid", uuid::Uuid::new_v4().to_string());
        value::set(&mut wanted.object, "metadata.creationTimestamp", api.now());
        resource.strategy.default(&mut wanted.object);
        if api.insert(resource, &key, &wanted.object, false).await?.is_some() {
            return Ok(());
        }
    }
    if wanted.repair == Repair::Never {
        return Ok(());
    }
    api.change(resource, &key, false, |old, _| {
        let opted_out = value::at(old, "metadata.annotations")
            .and_then(|annotations| annotations.get(facts::rbac::AUTOUPDATE.0))
            .is_some_and(|auto| auto != "true");
        if wanted.repair == Repair::Rules && opted_out {
            return Ok(Change::Keep);
        }
        let mut new = old.clone();
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
