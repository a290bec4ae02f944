//! ResourceQuota: an object is made only if every quota that counts it has room, and the room is taken before the object is.
//!
//! Taking room is a compare-and-swap on the quota's status, so the sum is exact however many servers and clients there
//! are. Within one server the writers of a namespace take turns, or they would spend their time losing races.

use std::hash::{BuildHasher as _, BuildHasherDefault};

use machinery::quantity::Quantity;
use machinery::status::ApiError;
use machinery::{Value, value};
use rules::pod_resources::{Amounts, amounts};
use rules::quota::{Counted, is_terminating};
use rustc_hash::FxHasher;
use serde_json::json;
use storage::cache::Filter;
use tokio::sync::Mutex;

use super::{Operation, Request};
use crate::registry::Resource;
use crate::verbs::Api;
use crate::verbs::author::Target;
use crate::verbs::commit::Change;

/// How many namespaces can take room at once without waiting for each other.
const TURNS: usize = 64;
/// Kinds that no quota counts.
const IGNORED: [(&str, &str); 3] = [("", "bindings"), ("", "events"), ("events.k8s.io", "events")];

pub struct Quotas {
    turns: [Mutex<()>; TURNS],
}

impl Default for Quotas {
    fn default() -> Self {
        Self { turns: std::array::from_fn(|_| Mutex::default()) }
    }
}

/// What a request uses beyond what was used before it.
#[derive(Debug, PartialEq)]
struct Charge {
    /// The amounts, where the quota counted the old object too.
    more: Amounts,
    /// The amounts, where it did not.
    all: Amounts,
}

impl Quotas {
    /// Takes room for what the request makes, or refuses it.
    pub async fn validate(
        &self,
        api: &Api,
        request: &Request<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let name = &request.resource.name;
        let Some(new) = new.filter(|_| request.resource.storage.namespaced) else { return Ok(()) };
        if IGNORED.contains(&(name.group.as_str(), name.resource.as_str())) {
            return Ok(());
        }
        let counted = Counted::of(&name.group, &name.resource);
        let Some(quotas) = api.registry.stored("", "resourcequotas") else { return Ok(()) };
        if !handles(counted, request, new, old) {
            return Ok(());
        }
        let filter = Filter::namespace(&request.info.namespace);
        // Most namespaces have none.
        if quotas.cache.list(&filter, None, 1).0.is_empty() {
            return Ok(());
        }
        let now = (api.clock)();
        let charge = charge(counted, new, old, now);
        let turn = BuildHasherDefault::<FxHasher>::default().hash_one(&request.info.namespace) as usize % TURNS;
        let _turn = self.turns[turn].lock().await;
        api.caches.settle().await?;
        let mut taken: Vec<(String, Amounts)> = Vec::new();
        for quota in quotas.cache.list(&filter, None, 0).0 {
            let key = quotas.key(&quota.meta().namespace, &quota.meta().name);
            match take(api, quotas, &key, request, counted, new, old, &charge).await {
                Ok(Some(amounts)) => taken.push((key, amounts)),
                Ok(None) => {}
                Err(error) => {
                    for (key, amounts) in taken {
                        give_back(api, quotas, &key, &amounts).await;
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Whether a request can use more of anything.
fn handles(counted: Counted<'_>, request: &Request<'_>, new: &Value, old: Option<&Value>) -> bool {
    let subresource = request.info.subresource.as_str();
    match (counted, subresource, request.operation) {
        (_, "", Operation::Create) => true,
        (Counted::Pods, "", Operation::Update) => old.is_some_and(|old| is_terminating(old) != is_terminating(new)),
        (Counted::Pods, "resize", Operation::Update) => true,
        (Counted::Services | Counted::Claims | Counted::DeviceClaims, "", Operation::Update) => true,
        // A resizer allocates, and a modifier gives classes, in the status.
        (Counted::Claims, "status", Operation::Update) => true,
        _ => false,
    }
}

fn charge(counted: Counted<'_>, new: &Value, old: Option<&Value>, now: jiff::Timestamp) -> Charge {
    let all = counted.usage(new, now);
    let mut more = all.clone();
    if let Some(old) = old {
        for (name, before) in counted.usage(old, now) {
            if let Some(amount) = more.get_mut(&name) {
                amount.sub(&before);
            }
        }
    }
    more.retain(|_, amount| amount.signum() > 0);
    Charge { more, all }
}

/// Takes room in one quota. `None` if the quota has nothing to do with it.
#[allow(clippy::too_many_arguments, reason = "they are one question")]
async fn take(
    api: &Api,
    quotas: &Resource,
    key: &str,
    request: &Request<'_>,
    counted: Counted<'_>,
    new: &Value,
    old: Option<&Value>,
    charge: &Charge,
) -> Result<Option<Amounts>, ApiError> {
    let mut taken = None;
    api.change(Target::own(quotas, key), request.dry_run, |quota, _| {
        taken = None;
        let ruling = rule(quota, counted, new, old, charge).map_err(|why| request.forbid(new, &why))?;
        let Some((amounts, used)) = ruling else { return Ok(Change::Keep) };
        let mut changed = quota.clone();
        value::set(&mut changed, "status.used", used);
        taken = Some(amounts);
        Ok(Change::Put(changed))
    })
    .await?;
    Ok(taken.filter(|_| !request.dry_run))
}

/// What a request takes of a quota and what is used then; nothing, or why there is no room.
fn rule(
    quota: &Value,
    counted: Counted<'_>,
    new: &Value,
    old: Option<&Value>,
    charge: &Charge,
) -> Result<Option<(Amounts, Value)>, String> {
    let name = value::text(quota, "metadata.name");
    let hard = amounts(value::at(quota, "status.hard"));
    let limited: Vec<String> = hard.keys().filter(|name| counted.is_limited_by(name)).cloned().collect();
    if limited.is_empty() || !counted.is_in_scope(quota, new) {
        return Ok(None);
    }
    if let Some(why) = counted.missing(new, &limited) {
        return Err(format!("failed quota: {name}: {why}"));
    }
    let used = amounts(value::at(quota, "status.used"));
    if limited.iter().any(|resource| !used.contains_key(resource)) {
        return Err(format!("status unknown for quota: {name}, resources: {}", limited.join(",")));
    }
    let counted_before = old.is_some_and(|old| counted.is_in_scope(quota, old));
    let asked = if counted_before { &charge.more } else { &charge.all };
    let asked: Amounts = asked
        .iter()
        .filter(|(name, amount)| hard.contains_key(*name) && amount.signum() > 0)
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect();
    if asked.is_empty() {
        return Ok(None);
    }
    let mut after = used.clone();
    for (resource, amount) in &asked {
        after.entry(resource.clone()).and_modify(|sum| sum.add(amount)).or_insert_with(|| amount.clone());
    }
    let exceeded: Vec<&String> = asked.keys().filter(|resource| after[*resource] > hard[*resource]).collect();
    if !exceeded.is_empty() {
        let list = |of: &Amounts| {
            let messages: Vec<String> = exceeded
                .iter()
                .map(|resource| format!("{resource}={}", of.get(*resource).cloned().unwrap_or(Quantity::ZERO)))
                .collect();
            messages.join(",")
        };
        return Err(format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            list(&asked),
            list(&used),
            list(&hard)
        ));
    }
    let written: serde_json::Map<String, Value> =
        after.iter().map(|(resource, amount)| (resource.clone(), json!(amount.to_string()))).collect();
    Ok(Some((asked, Value::Object(written))))
}

/// Returns room that was taken for nothing: another quota had none.
async fn give_back(api: &Api, quotas: &Resource, key: &str, taken: &Amounts) {
    let returned = api.change(Target::own(quotas, key), false, |quota, _| {
        let mut used = amounts(value::at(quota, "status.used"));
        for (name, amount) in taken {
            if let Some(sum) = used.get_mut(name) {
                sum.sub(amount);
            }
        }
        let mut changed = quota.clone();
        let written: serde_json::Map<String, Value> =
            used.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect();
        value::set(&mut changed, "status.used", Value::Object(written));
        Ok(Change::Put(changed))
    });
    if let Err(error) = returned.await {
        // The quota's controller counts anew before long.
        tracing::warn!(key, %error, "room in a quota could not be given back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    fn check(quota: Value, new: Value, old: Option<Value>) -> Result<Option<String>, String> {
        let now = "2026-01-01T00:00:00Z".parse().expect("a time");
        let charge = charge(Counted::Pods, &new, old.as_ref(), now);
        let ruling = rule(&quota, Counted::Pods, &new, old.as_ref(), &charge)?;
        Ok(ruling.map(|(_, used)| used.to_string()))
    }

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    #[test]
    fn room_is_taken_and_refused_in_upstreams_words() {
        let roomy = quota(json!({"pods": "2", "requests.cpu": "1"}), json!({"pods": "1", "requests.cpu": "500m"}));
        assert_eq!(check(roomy.clone(), pod("500m"), None), Ok(Some(r#"{"pods":"2","requests.cpu":"1"}"#.to_owned())));
        assert_eq!(
            check(roomy.clone(), pod("600m"), None),
            Err("exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"
                .to_owned())
        );
        let new = quota(json!({"pods": "2"}), json!({}));
        assert_eq!(check(new, pod("1"), None), Err("status unknown for quota: q, resources: pods".to_owned()));
        let missing = json!({"spec": {"containers": [{"name": "c"}]}});
        assert_eq!(check(roomy, missing, None), Err("failed quota: q: must specify requests.cpu for: c".to_owned()));
    }

    #[test]
    fn a_change_takes_only_what_it_adds() {
        let full = quota(json!({"requests.cpu": "1"}), json!({"requests.cpu": "1"}));
        assert_eq!(check(full.clone(), pod("500m"), Some(pod("500m"))), Ok(None));
        assert_eq!(check(full.clone(), pod("200m"), Some(pod("500m"))), Ok(None));
        assert!(check(full, pod("600m"), Some(pod("500m"))).is_err());
        let other = quota(json!({"secrets": "0"}), json!({"secrets": "0"}));
        assert_eq!(check(other, pod("1"), None), Ok(None));
    }
}
