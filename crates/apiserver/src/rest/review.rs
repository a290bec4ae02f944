//! Objects that are asked and answered, and never stored: they are read as a create would read them, down to the record of who
//! said what, which the answer shows.

use http::HeaderMap;
use http::header::USER_AGENT;
use machinery::apply::{FieldManager, Filter, OneVersion};
use machinery::rest::Body;
use machinery::status::ApiError;
use machinery::{Value, codec, objectmeta, schema, value};

use super::body::{check_kind, read_of_kind, strictness};
use super::create::wipe_system_fields;
use super::options::WriteOptions;
use crate::query::Query;

/// Reads a review of this kind, sent to this namespace (if any).
pub async fn read_review(
    facts: &facts::Resource,
    namespace: &str,
    headers: &HeaderMap,
    query: &Query,
    body: Body,
    now: &str,
) -> Result<Value, ApiError> {
    let options = WriteOptions::parse(query, "CreateOptions")?;
    let (mut review, text) = read_of_kind(headers, body, &facts.kind).await?;
    check_kind(&mut review, &facts.group, &facts.version, &facts.kind)?;
    let Some(of) = facts.ty.map(|ty| ty.def()) else { return Ok(review) };
    schema::conform(&mut review, of)
        .and_then(|unknown| strictness(text.problems(unknown, of), &options))
        .map_err(|why| codec::cannot_be_handled(&facts.kind, &facts.version, &facts.kind, &why))?;
    schema::default(&mut review, of);
    schema::complete(&mut review, of);
    wipe_system_fields(&mut review);
    let said = value::text(&review, "metadata.namespace");
    if facts.namespaced && said.is_empty() {
        value::set(&mut review, "metadata.namespace", namespace);
    } else if facts.namespaced && said != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    } else if !facts.namespaced {
        value::remove(&mut review, "metadata.namespace");
    }
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let api_version = facts.api_version();
    let keeper = FieldManager {
        of,
        kind: &facts.kind,
        api_version: &api_version,
        subresource: "",
        filter: &Filter::All,
        versions: &OneVersion,
    };
    keeper.update(&keeper.empty(), &mut review, &objectmeta::field_manager(&options.field_manager, agent), now);
    Ok(review)
}
