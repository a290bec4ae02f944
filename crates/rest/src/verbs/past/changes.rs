//! `?changes=true`: what changed, newest first, with when, who and which fields.

use http::StatusCode;
use machinery::object::Object;
use machinery::rest::Response;
use machinery::status::ApiError;
use machinery::value;
use serde_json::{Value, json};
use store::{Change, Changes, Revision};
use threads::heavy;

use super::{Api, Call, fields, lost, oldest, shown};
use crate::verbs::author::Noted;
use crate::verbs::value_response;

/// Changes in one answer, and the most that can be asked for.
const PAGE: usize = 50;
const MOST: usize = 500;
/// How many are read at once: few at first, until it is known how large they are.
const FIRST: usize = 10;
const STEP: usize = 50;
/// Bytes of objects after which an answer is long enough.
const ENOUGH: usize = 16 << 20;

impl Api {
    pub(super) async fn changes(&self, call: &Call<'_>) -> Result<Response, ApiError> {
        if let Some(name) = ["labelSelector", "fieldSelector"].into_iter().find(|name| !call.query.get(name).is_empty())
        {
            return Err(ApiError::bad_request(format!("{name} is not supported for changes")));
        }
        let limit = match call.query.int("limit")? {
            None | Some(0) => PAGE,
            Some(limit) => usize::try_from(limit).unwrap_or(PAGE).min(MOST),
        };
        let after = match call.query.get("from") {
            "" => 0,
            from => self.moment(from).await?,
        };
        let mut upto = match call.query.get("to") {
            "" => self.moment("now").await?,
            to => self.moment(to).await?,
        };
        if let Some(next) = Some(call.query.get("continue")).filter(|next| !next.is_empty()) {
            let invalid = || ApiError::bad_request(format!("continue: Invalid value: {next:?}"));
            upto = upto.min(next.parse().map_err(|_| invalid())?);
        }
        let prefix = scope(call);
        let query = Changes { prefix, exact: !call.info.name.is_empty(), after, upto, limit };
        let kept = self.store.kept().await.map_err(|error| lost(error, after))?;
        let (found, more) = self.some_changes(query, after.max(kept.oldest)).await?;
        heavy::weigh(found.iter().map(bytes).sum()).await;
        let last = found.last().filter(|_| more).map(|change| change.revision - 1);
        let next = last.filter(|next| *next > after.max(kept.oldest));
        let mut metadata = json!({"resourceVersion": kept.latest.to_string()});
        if let Some(next) = next {
            metadata["continue"] = next.to_string().into();
        }
        let items: Vec<Value> = found.iter().map(|change| item(call, change)).collect();
        let list = json!({
            "kind": "ChangeList", "apiVersion": "trireme.io/v1",
            "metadata": metadata, "oldest": oldest(&kept), "items": items,
        });
        Ok(value_response(StatusCode::OK, list))
    }

    /// So many changes, or fewer where the objects are large: an answer must not hold hundreds of them at once. Whether there may be more.
    async fn some_changes(&self, query: Changes, floor: Revision) -> Result<(Vec<Change>, bool), ApiError> {
        let (mut found, mut held, mut upto) = (Vec::new(), 0, query.upto);
        while found.len() < query.limit && held < ENOUGH && upto > floor {
            let step = if found.is_empty() { FIRST } else { STEP };
            let limit = step.min(query.limit - found.len());
            let step = Changes { upto, limit, ..query.clone() };
            let some = self.store.changes(step).await.map_err(|error| lost(error, query.after))?;
            let whole = some.len() < limit;
            held += some.iter().map(bytes).sum::<usize>();
            upto = some.last().map_or(upto, |change| change.revision - 1);
            found.extend(some);
            if whole {
                return Ok((found, false));
            }
        }
        Ok((found, upto > floor))
    }
}

fn bytes(change: &Change) -> usize {
    change.value.as_ref().map_or(0, |value| value.len())
        + change.previous.as_ref().map_or(0, |previous| previous.value.len())
}

/// The keys that a request is about.
fn scope(call: &Call<'_>) -> String {
    let prefix = &call.resource.prefix;
    match (&*call.info.namespace, &*call.info.name) {
        (_, name) if !name.is_empty() => format!("{prefix}{}", call.key()),
        (namespace, _) if call.served.facts.namespaced && !namespace.is_empty() => format!("{prefix}{namespace}/"),
        _ => prefix.clone(),
    }
}

fn item(call: &Call<'_>, change: &Change) -> Value {
    let resource = call.resource;
    let tree = |value: &bytes::Bytes, revision: u64| {
        let object = Object::from_stored(value.clone(), revision, resource.cache.fields());
        // What cannot be read has no fields; that it changed is still told.
        object.map_or(Value::Null, |object| object.to_value())
    };
    let new = change.value.as_ref().map(|value| tree(value, change.revision));
    let old = change.previous.as_ref().map(|record| tree(&record.value, record.revision));
    let differing = match (&old, &new) {
        (Some(old), Some(new)) => fields::between(old, new),
        _ => fields::Fields::default(),
    };
    let either = new.as_ref().or(old.as_ref()).unwrap_or(&Value::Null);
    let kind = match (&old, &new) {
        (None, _) => "Added",
        (Some(_), Some(_)) => "Modified",
        (Some(_), None) => "Deleted",
    };
    let place = change.key.strip_prefix(&*resource.prefix).unwrap_or_default();
    let (namespace, name) = place.rsplit_once('/').unwrap_or(("", place));
    let Noted { user, manager, verb, subresource } = Noted::read(&change.note);
    json!({
        "resourceVersion": change.revision.to_string(),
        "time": shown(change.time),
        "type": kind,
        "namespace": namespace,
        "name": name,
        "uid": value::text(either, "metadata.uid"),
        "user": user, "manager": manager, "verb": verb, "subresource": subresource,
        "fields": differing.shown,
        "omitted": differing.omitted,
    })
}
