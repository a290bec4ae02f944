//! Patch: JSON patch, merge patch, strategic merge patch, and server-side apply.

use http::StatusCode;
use machinery::patch::{json, merge, strategic};
use machinery::rest::{Body, Response};
use machinery::status::{ApiError, FieldError, Reason};
use machinery::{Value, codec, value};

use super::body::{Warnings, check_kind, media_type, read_bytes};
use super::options::WriteOptions;
use super::update::{Part, Produced};
use super::{Api, Call, object_response};
use crate::convert;

/// A patch, read but not yet applied: it is applied anew to each version of the object that wins a race against it.
enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply { configuration: Value, force: bool },
}

const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor";

impl Patch {
    async fn read(call: &Call<'_>, body: Body) -> Result<Self, ApiError> {
        let media = media_type(call.headers).to_owned();
        let force = call.query.flag("force");
        let limits = codec::Limits::default();
        let tree = match body {
            Body::Value(tree) => tree,
            body => {
                let bytes = read_bytes(body).await?;
                match media.as_str() {
                    "application/apply-patch+yaml" => codec::yaml::decode(&bytes, limits)?.value,
                    "application/apply-patch+cbor" => super::body::decode("application/cbor", &bytes)?.0,
                    _ => codec::json::decode(&bytes, limits)?.value,
                }
            }
        };
        if force && !media.starts_with("application/apply-patch") {
            return Err(refused(FieldError::forbidden("force", "may not be specified for non-apply patch")));
        }
        match media.as_str() {
            "application/json-patch+json" => Ok(Self::Json(tree)),
            "application/merge-patch+json" => Ok(Self::Merge(tree)),
            "application/strategic-merge-patch+json" if call.served.facts.ty.is_some() => Ok(Self::Strategic(tree)),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                if call.query.get("fieldManager").is_empty() {
                    return Err(refused(FieldError::required("fieldManager", "is required for apply patch")));
                }
                Ok(Self::Apply { configuration: tree, force })
            }
            _ => {
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
                );
                Err(ApiError::new(Reason::UnsupportedMediaType, message))
            }
        }
    }

    /// The patched object, and whether the record of field owners is kept already.
    fn apply(
        &self,
        api: &Api,
        call: &Call<'_>,
        options: &WriteOptions,
        mut object: Value,
    ) -> Result<(Value, bool), ApiError> {
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
            Self::Apply { configuration, force } => {
                let applied = api.apply(call, Some(&object), configuration, options, *force)?;
                return Ok((applied.object, true));
            }
        }
        Ok((object, false))
    }
}

/// Whether a request is a server-side apply.
pub fn is_apply(headers: &http::HeaderMap) -> bool {
    let media = headers.get(http::header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    media.starts_with("application/apply-patch")
}

fn refused(error: FieldError) -> ApiError {
    ApiError::invalid("meta.k8s.io", "PatchOptions", "", &[error])
}

impl Api {
    /// Changes parts of an object; an apply makes it if it is not there.
    pub(super) async fn patch(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let part = if call.info.subresource == "status" { Part::Status } else { Part::Main };
        let options = WriteOptions::parse(call.query, "PatchOptions")?;
        let patch = Patch::read(call, body).await?;
        let mut warnings = Warnings::default();
        let (from, to) = (call.resource.storage, call.served.facts);
        let changed = self
            .replace(call, part, &options, |old_tree, old| {
                let versioned = convert::from_storage(from, to, old.clone(), call.resource.cache.fields())?;
                let (patched, applied) = patch.apply(self, call, &options, versioned.to_value())?;
                let (mut new, said) = self.to_storage(call, patched, Vec::new(), &options)?;
                warnings = said;
                warnings.extend(call.resource.strategy.warnings(&new, Some(old_tree)));
                self.check_name(call, &mut new)?;
                self.check_namespace(call, &mut new)?;
                Ok(Produced { new, applied })
            })
            .await?;
        let (status, object) = match (changed, &patch) {
            (Some(changed), _) => (StatusCode::OK, changed.object()),
            (None, Patch::Apply { configuration, force }) if call.info.subresource.is_empty() => {
                let mut configuration = configuration.clone();
                check_kind(&mut configuration, &to.group, &to.version, &to.kind)?;
                let uid = value::text(&configuration, "metadata.uid");
                if !uid.is_empty() {
                    let why = "uid mismatch: the provided object specified uid {uid}, and no existing object was found";
                    return Err(ApiError::conflict(&call.resource.name, &call.info.name, &why.replace("{uid}", uid)));
                }
                let applied = self.apply(call, None, &configuration, &options, *force)?;
                let (mut new, said) = self.to_storage(call, applied.object, Vec::new(), &options)?;
                warnings = said;
                self.check_name(call, &mut new)?;
                (StatusCode::CREATED, self.create_object(call, new, &options, true).await?)
            }
            (None, _) => return Err(call.not_found()),
        };
        let mut response = object_response(status, self.convert(call, object)?);
        warnings.write(response.headers_mut());
        Ok(response)
    }
}
