//! Finalizers of a namespace's own, which its controller takes away when everything in it is gone.

use http::StatusCode;
use kinds::keep::keep;
use machinery::rest::{Body, Response};
use machinery::status::ApiError;
use machinery::value;

use crate::verbs::options::WriteOptions;
use crate::verbs::update::{Part, Produced};
use crate::verbs::{Api, Call, object_response};

/// Changes a namespace's own finalizers; when the last one goes from a namespace on its way out, so does it.
pub async fn finalize(api: &Api, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
    let options = WriteOptions::parse(call.query, "UpdateOptions")?;
    let input = api.read_object(call, body, &options).await?;
    api.check_name(call, &input)?;
    let changed = api
        .replace(call, Part::Direct, &options, |old, _| {
            let mut new = old.clone();
            keep(&mut new, &input, "spec.finalizers");
            let version = value::text(&input, "metadata.resourceVersion").to_owned();
            value::set(&mut new, "metadata.resourceVersion", version);
            Ok(Produced::written(new))
        })
        .await?;
    Ok(object_response(StatusCode::OK, changed.ok_or_else(|| call.not_found())?.object()))
}
