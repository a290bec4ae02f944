//! Binding: a pod gets its node.

use http::StatusCode;
use kinds::pod;
use machinery::gvk::GroupResource;
use machinery::rest::{Body, Response};
use machinery::status::ApiError;
use machinery::value;
use serde_json::json;

use crate::verbs::body::read_request;
use crate::verbs::commit::Change;
use crate::verbs::options::WriteOptions;
use crate::verbs::{Api, Call, value_response};

/// Puts a pod on a node: the scheduler's one write.
pub async fn bind(api: &Api, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
    let options = WriteOptions::parse(call.query, "CreateOptions")?;
    let mut binding = read_request(call.exchange, body, ("", "v1", "Binding")).await?;
    let node = value::text(&binding, "target.name").to_owned();
    let errors = pod::binding_errors(&binding);
    if !errors.is_empty() {
        return Err(ApiError::invalid("", "Binding", &call.info.name, &errors));
    }
    api.admit_request(call, &mut binding, options.dry_run).await?;
    let subject = GroupResource::new("", "pods/binding");
    let refuse = |why: &str| ApiError::conflict(&subject, &call.info.name, why);
    let uid = value::text(&binding, "metadata.uid").to_owned();
    let now = api.now();
    let key = call.key();
    let changed = api
        .change(call.writes(call.resource, &key), options.dry_run, |old, object| {
            let name = &object.meta().name;
            if !uid.is_empty() && *uid != *object.meta().uid {
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    object.meta().uid
                );
                return Err(refuse(&why));
            }
            if let Some(why) = pod::unbindable(name, old) {
                return Err(refuse(&why));
            }
            Ok(Change::Put(pod::bound(old, &binding, &node, &now)))
        })
        .await?;
    changed.ok_or_else(|| call.not_found())?;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(value_response(StatusCode::CREATED, success))
}
