//! Objects that are asked and answered, and never stored: they are read as a create would read them, down to the record of who
//! said what, which the answer shows.

use gates::Exchange;
use http::header::USER_AGENT;
use machinery::apply::{FieldManager, Filter, OneVersion};
use machinery::rest::{Body, User};
use machinery::status::ApiError;
use machinery::{Value, codec, objectmeta, schema, value};
use serde_json::json;

use super::body::{check_kind, read_of_kind, strictness};
use super::create::wipe_system_fields;
use super::options::WriteOptions;

/// Reads a review of this kind.
pub async fn read_review(
    facts: &facts::Resource,
    exchange: &Exchange,
    body: Body,
    now: &str,
) -> Result<Value, ApiError> {
    let (namespace, headers) = (exchange.info.namespace.as_str(), exchange.headers());
    let options = WriteOptions::parse(exchange.query(), "CreateOptions")?;
    let (mut review, text) = read_of_kind(headers, body, &facts.kind).await?;
    check_kind(&mut review, &facts.group, &facts.version, &facts.kind)?;
    let Some(of) = facts.ty.map(|ty| ty.def()) else { return Ok(review) };
    schema::conform(&mut review, of)
        .and_then(|unknown| strictness(text.problems(unknown, of), &options, &exchange.notes))
        .map_err(|why| codec::cannot_be_handled(&facts.kind, &facts.version, &facts.kind, &why))?;
    schema::default(&mut review, of);
    schema::complete(&mut review, of);
    wipe_system_fields(&mut review);
    let own = value::text(&review, "metadata.namespace");
    if facts.namespaced && own.is_empty() {
        value::set(&mut review, "metadata.namespace", namespace);
    } else if facts.namespaced && own != namespace {
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

/// A user as reviews show it.
pub fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        info["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}
