//! List: selectors, pages, and what `resourceVersion` and `resourceVersionMatch` promise.

use std::sync::Arc;

use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use base64::{DecodeError, Engine as _};
use http::StatusCode;
use machinery::codec;
use machinery::object::Object;
use machinery::rest::{List, Payload, Response};
use machinery::selector::field::FieldSelector;
use machinery::selector::label::LabelSelector;
use machinery::status::{ApiError, FieldError};
use serde::{Deserialize, Serialize};
use storage::cache::{Filter, Scope};
use store::Range;
use threads::heavy;

use super::read::parse_version;
use super::{Api, Call, response};

/// The version of the continue tokens.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";
/// So many seconds pages show the state of the first one, whatever the store still remembers: with upstream's it is the time between two
/// compactions, and a client that needs longer shall not learn that from a cluster that is busier than its author's.
const CONSISTENT: i64 = 300;

/// How much of the work on a byte that is read it is to look at an object of a list.
const PER_OBJECT: usize = 64;

/// Where a list goes on: after a key, at a revision. The form is upstream's, but for the time.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Token {
    v: String,
    rv: i64,
    start: String,
    /// When the first page was read, in seconds. Tokens of others do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
}

impl Token {
    fn encode(revision: i64, after: &str, since: Option<i64>) -> String {
        // Upstream names the first key of the next page: the last one of this page and a NUL.
        let token = Token { v: TOKEN_VERSION.to_owned(), rv: revision, start: format!("{after}\0"), since };
        BASE64.encode(serde_json::to_vec(&token).expect("plain fields always encode"))
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let bad =
            |why: &str| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = BASE64.decode(text).map_err(|error| bad(&illegal(&error, text)))?;
        let tree = codec::json::decode(&bytes, codec::Limits::default()).map_err(|error| bad(&error.message))?;
        let token: Token = serde_json::from_value(tree.value).map_err(|error| bad(&error.to_string()))?;
        if token.v != TOKEN_VERSION {
            return Err(bad(&format!("server does not recognize this encoded version \"{}\"", token.v)));
        }
        if token.start.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        Ok(token)
    }

    /// The last key of the page before.
    fn after(&self) -> &str {
        self.start.trim_end_matches('\0')
    }
}

/// Go's words for text that is not base64.
fn illegal(error: &DecodeError, text: &str) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.find('=').unwrap_or(text.len() / 4 * 4),
    };
    format!("illegal base64 data at input byte {at}")
}

/// What `resourceVersion` and `resourceVersionMatch` of a list ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The latest, whatever was written anywhere.
    Latest,
    /// Whatever is at hand.
    Any,
    NotOlderThan(u64),
    Exact(u64),
}

impl Api {
    /// A collection, or a page of it.
    pub(super) async fn list(&self, call: &Call<'_>) -> Result<Response, ApiError> {
        if let Some(changes) = self.list_past(call).await? {
            return Ok(changes);
        }
        let mut list = self.list_items(call).await?;
        let items = std::mem::take(&mut list.items);
        list.items = items.into_iter().map(|item| self.convert(call, item)).collect::<Result<_, _>>()?;
        Ok(response(StatusCode::OK, Payload::List(list)))
    }

    /// The page's objects in storage form.
    pub(super) async fn list_items(&self, call: &Call<'_>) -> Result<List, ApiError> {
        let filter = self.filter(call)?;
        let limit = call.query.int("limit")?.unwrap_or(0);
        let limit = usize::try_from(limit.max(0)).unwrap_or(usize::MAX);
        let token = call.query.get("continue");
        let wanted = match self.list_revision(call).await? {
            Some(revision) => Wanted::Exact(revision),
            None => wanted(call, !token.is_empty(), limit)?,
        };

        let now = (self.clock)().as_second();
        let (mut after, mut wanted, mut since) = (None, wanted, now);
        if !token.is_empty() {
            let token = Token::decode(token)?;
            // A token that lost its snapshot goes on at the latest state.
            wanted = match u64::try_from(token.rv) {
                Ok(revision) if revision > 0 => Wanted::Exact(revision),
                _ => Wanted::Latest,
            };
            since = token.since.filter(|_| wanted != Wanted::Latest).unwrap_or(now);
            if now.saturating_sub(since) > CONSISTENT {
                return Err(inconsistent(token.after()));
            }
            after = Some(token.after().to_owned());
        }
        let (items, remaining, revision) = match wanted {
            Wanted::Exact(revision) => self.list_at(call, &filter, after.as_deref(), limit, revision).await?,
            other => {
                let reached = match other {
                    Wanted::NotOlderThan(revision) => self.caches.reach(revision).await?,
                    Wanted::Any => self.caches.revision(),
                    _ => self.caches.settle().await?,
                };
                let looked_at = if limit > 0 && !filter.selects() { limit } else { call.resource.cache.len() };
                heavy::weigh(looked_at.saturating_mul(PER_OBJECT)).await;
                let (items, remaining) = self.list_now(call, &filter, after.as_deref(), limit).await?;
                (items, remaining, reached)
            }
        };
        let next = (remaining > 0)
            .then(|| items.last().map(|last| call.resource.key(&last.meta().namespace, &last.meta().name)))
            .flatten()
            .map(|key| Token::encode(i64::try_from(revision).unwrap_or(i64::MAX), &key, Some(since)));
        let facts = &call.served.facts;
        Ok(List {
            api_version: facts.api_version(),
            kind: facts.list_kind.to_string(),
            revision,
            // How many items follow is known only when nothing but the scope decides.
            remaining: (next.is_some() && !filter.selects()).then_some(remaining),
            next,
            items,
        })
    }

    /// A page of the present, as the version shows it. Fields that a definition makes selectable are those of the version, so what is stored
    /// does not tell which objects they select.
    async fn list_now(
        &self,
        call: &Call<'_>,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Arc<Object>>, u64), ApiError> {
        let Some(stored) = stored_filter(call, filter) else {
            let (items, remaining) = call.resource.cache.list(filter, after, limit);
            return Ok((self.show_all(call.resource, items).await?, remaining));
        };
        let (items, _) = call.resource.cache.list(&stored, after, 0);
        let mut items = self.show_all(call.resource, items).await?;
        items.retain(|item| filter.matches(item));
        let more = limit > 0 && items.len() > limit;
        items.truncate(if limit > 0 { limit } else { usize::MAX });
        Ok((items, u64::from(more)))
    }

    /// A page of the past. The cache serves it when nothing of the resource changed since; otherwise the store does.
    async fn list_at(
        &self,
        call: &Call<'_>,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
        revision: u64,
    ) -> Result<(Vec<Arc<Object>>, u64, u64), ApiError> {
        self.caches.reach(revision).await?;
        let resource = call.resource;
        let by_version = stored_filter(call, filter).is_some();
        let unchanged = || resource.cache.list_unchanged_since(filter, after, limit, revision);
        if let Some((items, remaining)) = (!by_version).then(unchanged).flatten() {
            return Ok((self.show_all(resource, items).await?, remaining, revision));
        }
        let scope = match filter.scope() {
            Scope::All => String::new(),
            Scope::Namespace(namespace) => format!("{namespace}/"),
            Scope::Key(key) => key.to_string(),
        };
        let mut items = Vec::new();
        let mut start = after.map(|key| format!("{}{key}", resource.prefix));
        loop {
            let page = Range {
                prefix: format!("{}{scope}", resource.prefix),
                after: start.take(),
                limit: if filter.selects() { limit.max(500) } else { limit },
                at: Some(revision),
            };
            let page = self.store.range(page).await.map_err(|error| gone(error, call, after))?;
            start = page.records.last().map(|record| record.key.to_string());
            heavy::weigh(page.records.iter().map(|record| record.value.len()).sum()).await;
            for record in page.records {
                let object = Object::from_stored(record.value, record.revision, resource.cache.fields());
                let object = self.show(resource, Arc::new(object.map_err(ApiError::internal)?)).await?;
                if !filter.matches(&object) {
                    continue;
                }
                if limit > 0 && items.len() == limit {
                    return Ok((items, 1, revision));
                }
                items.push(object);
            }
            let full = limit > 0 && items.len() == limit;
            if page.remaining == 0 || (full && !filter.selects()) {
                return Ok((items, page.remaining, revision));
            }
        }
    }

    /// Scope and selectors of a list, watch or deletion of a collection.
    pub(super) fn filter(&self, call: &Call<'_>) -> Result<Filter, ApiError> {
        let labels = LabelSelector::parse(call.query.get("labelSelector")).map_err(ApiError::bad_request)?;
        let fields = FieldSelector::parse(call.query.get("fieldSelector")).map_err(ApiError::bad_request)?;
        // A kind with fields of its own says less about those that it has not.
        let own = call.resource.form.is_some() || !call.resource.strategy.fields().is_empty();
        let unknown = |field: String| {
            ApiError::bad_request(match own {
                true => format!("field label not supported: {field}"),
                false => {
                    format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                }
            })
        };
        let fields = match call.resource.strategy.field_names(&call.served.facts.group) {
            Some(names) => fields.renamed(names).map_err(unknown)?,
            None => fields,
        };
        let kind = call.resource.form.as_ref().map_or_else(|| call.resource.cache.fields(), |form| &form.fields);
        let fields = fields.of_kind(kind).map_err(unknown)?;
        let unscoped = own && !call.served.facts.namespaced;
        if unscoped && let Some(odd) = fields.requirements().iter().find(|one| one.field == "metadata.namespace") {
            return Err(unknown(odd.field.clone()));
        }
        let scope = match (&*call.info.namespace, &*call.info.name) {
            (_, name) if !name.is_empty() && call.info.watch_prefix => Scope::Key(call.key().into()),
            (namespace, _) if call.served.facts.namespaced && !namespace.is_empty() => {
                Scope::Namespace(namespace.into())
            }
            _ => Scope::All,
        };
        Ok(Filter::new(scope, labels, fields))
    }
}

/// What of a filter can be asked of stored objects, where the rest can be asked only of what a version makes of them.
pub(super) fn stored_filter(call: &Call<'_>, filter: &Filter) -> Option<Filter> {
    let form = call.resource.form.as_ref()?;
    let stored = filter.only(|field| form.fields.get(field).is_none());
    (stored.selected_fields() != filter.selected_fields()).then_some(stored)
}

/// Reads `resourceVersion` and `resourceVersionMatch`, with upstream's rules for their combinations.
fn wanted(call: &Call<'_>, continued: bool, limit: usize) -> Result<Wanted, ApiError> {
    let version = call.query.get("resourceVersion");
    let matching = call.query.get("resourceVersionMatch");
    call.query.int("timeoutSeconds")?;
    let errors = refusals(version, matching, continued, call.query.has("sendInitialEvents"));
    if !errors.is_empty() {
        return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
    }
    if continued && !version.is_empty() && version != "0" {
        return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
    }
    let number = |version: &str| {
        parse_version(version).map_err(|mut error| {
            error.message.insert_str(0, "invalid resource version: ");
            error
        })
    };
    Ok(match (version, matching) {
        ("", _) => Wanted::Latest,
        ("0", _) => Wanted::Any,
        (version, "Exact") => Wanted::Exact(number(version)?),
        // Without a match rule, a page of an unfinished list must be exact so that its continuation is consistent.
        (version, "") if limit > 0 => Wanted::Exact(number(version)?),
        (version, _) => Wanted::NotOlderThan(number(version)?),
    })
}

/// The options of a list that do not go together.
fn refusals(version: &str, matching: &str, continued: bool, sends_initial_events: bool) -> Vec<FieldError> {
    const MATCH: &str = "resourceVersionMatch";
    let mut errors = Vec::new();
    if !matching.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(MATCH, why));
        }
        if continued {
            errors.push(FieldError::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(MATCH, matching, ["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(MATCH, why));
        }
    }
    if sends_initial_events {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

/// The snapshot of a list is gone. A continued list may go on at the latest state, and gets a token for that.
fn gone(error: store::Error, call: &Call<'_>, after: Option<&str>) -> ApiError {
    let store::Error::Compacted { .. } = error else { return super::commit::unavailable(error) };
    match after {
        Some(after) if !call.query.get("continue").is_empty() => inconsistent(after),
        _ => ApiError::expired("The resourceVersion for the provided list is too old."),
    }
}

/// The state of the first page is no longer to be had; the rest of the list may be, as it is now.
fn inconsistent(after: &str) -> ApiError {
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.next = Some(Token::encode(-1, after, None));
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_does_not_go_together_is_said() {
        let field = |version, matching, continued, initial| {
            refusals(version, matching, continued, initial)
                .iter()
                .map(|error| error.path.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(field("5", "Exact", false, false), "");
        assert_eq!(
            field("", "Odd", true, true),
            "resourceVersionMatch resourceVersionMatch resourceVersionMatch sendInitialEvents"
        );
        assert_eq!(field("0", "Exact", false, false), "resourceVersionMatch");
        assert_eq!(field("", "", true, true), "sendInitialEvents");
    }

    #[test]
    fn tokens_survive_the_client() {
        let text = Token::encode(7, "default/web", Some(9));
        let token = Token::decode(&text).expect("a token");
        assert_eq!((token.rv, token.after(), token.since), (7, "default/web", Some(9)));
        let others = BASE64.encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"default/web\u0000"}"#);
        assert_eq!(Token::decode(&others).expect("a token"), Token { since: None, ..token });
        for bad in ["", "%%%", "e30", "bm9uc2Vuc2U"] {
            assert!(Token::decode(bad).is_err(), "{bad}");
        }
    }
}
