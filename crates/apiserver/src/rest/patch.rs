//! Patch: JSON patch, merge patch, strategic merge patch.

use http::StatusCode;
use machinery::patch::{json, merge, strategic};
use machinery::rest::{Body, Response};
use machinery::status::{ApiError, Reason};
use machinery::{Value, codec};

use super::body::{Warnings, media_type, read_bytes};
use super::options::WriteOptions;
use super::update::Part;
use super::{Api, Call, object_response};
use crate::convert;

/// A patch, read but not yet applied: it is applied anew to each version of the object that wins a race against it.
enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
}

const ACCEPTED: &str =
    "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json";

impl Patch {
    async fn read(call: &Call<'_>, body: Body) -> Result<Self, ApiError> {
        let media = media_type(call.headers).to_owned();
        let tree = match body {
            Body::Value(tree) => tree,
            body => codec::json::decode(&read_bytes(body).await?, codec::Limits::default())?.value,
        };
        match media.as_str() {
            "application/json-patch+json" => Ok(Self::Json(tree)),
            "application/merge-patch+json" => Ok(Self::Merge(tree)),
            "application/strategic-merge-patch+json" if call.served.facts.ty.is_some() => Ok(Self::Strategic(tree)),
            _ => {
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
                );
                Err(ApiError::new(Reason::UnsupportedMediaType, message))
            }
        }
    }

    fn apply(&self, call: &Call<'_>, mut object: Value) -> Result<Value, ApiError> {
        match self {
            Self::Json(patch) => json::apply(&mut object, patch).map_err(ApiError::from)?,
            Self::Merge(patch) => {
                if !patch.is_object() {
                    return Err(ApiError::bad_request("error decoding patch: expected an object"));
                }
                merge::apply(&mut object, patch.clone());
            }
            Self::Strategic(patch) => {
                let ty = call.served.facts.ty.expect("only built-in kinds read strategic merge patches");
                strategic::apply(&mut object, patch.clone(), ty.def()).map_err(ApiError::from)?;
            }
        }
        Ok(object)
    }
}

impl Api {
    /// Changes parts of an object.
    pub(super) async fn patch(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let part = if call.info.subresource == "status" { Part::Status } else { Part::Main };
        let options = WriteOptions::parse(call.query, "PatchOptions")?;
        let patch = Patch::read(call, body).await?;
        let mut warnings = Warnings::default();
        let changed = self
            .replace(call, part, &options, |_, old| {
                let versioned =
                    convert::from_storage(call.resource.storage, call.served.facts, old.clone(), call.resource.cache.fields())?;
                let patched = patch.apply(call, versioned.to_value())?;
                let (mut new, said) = self.to_storage(call, patched, Vec::new(), &options)?;
                warnings = said;
                self.check_name(call, &mut new)?;
                self.check_namespace(call, &mut new)?;
                Ok(new)
            })
            .await?;
        let object = changed.ok_or_else(|| call.not_found())?.object();
        let mut response = object_response(StatusCode::OK, self.convert(call, object)?);
        warnings.write(response.headers_mut());
        Ok(response)
    }
}
