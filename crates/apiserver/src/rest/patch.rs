//! Patch: JSON patch, merge patch, strategic merge patch, and server-side apply.

use facts::Type;
use http::StatusCode;
use machinery::patch::{json, merge, strategic};
use machinery::rest::{Body, Response};
use machinery::status::{ApiError, FieldError, Reason};
use machinery::{Value, codec, value};

use super::body::{check_kind, media_type, other_kind, read_bytes};
use super::options::{FieldValidation, WriteOptions};
use super::update::{Part, Produced};
use super::{Api, Call, object_response};
use crate::convert;
use crate::gates::context;

/// A patch, read but not yet applied: it is applied anew to each version of the object that wins a race against it.
pub(super) struct Patch {
    pub(super) form: Form,
    /// The keys that it has twice.
    duplicates: Vec<String>,
}

/// The kinds of patches.
pub(super) enum Form {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply { configuration: Value, force: bool },
}

const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor";

impl Patch {
    /// Reads the body as what its media type says it is.
    pub(super) async fn read(call: &Call<'_>, body: Body) -> Result<Self, ApiError> {
        let media = media_type(call.headers).to_owned();
        let force = call.query.flag("force");
        let limits = codec::Limits::default();
        let (tree, mut duplicates) = match body {
            Body::Value(tree) => (tree, Vec::new()),
            body => {
                let bytes = read_bytes(body).await?;
                match media.as_str() {
                    "application/apply-patch+yaml" => {
                        let decoded = codec::yaml::decode(&bytes, limits)?;
                        (decoded.value, decoded.duplicates)
                    }
                    "application/apply-patch+cbor" => super::body::decode("application/cbor", &bytes)?,
                    _ => {
                        let decoded = codec::json::decode(&bytes, limits)?;
                        (decoded.value, decoded.duplicates)
                    }
                }
            }
        };
        if force && !media.starts_with("application/apply-patch") {
            return Err(refused(FieldError::forbidden("force", "may not be specified for non-apply patch")));
        }
        let form = match media.as_str() {
            "application/json-patch+json" => {
                duplicates.iter_mut().for_each(|duplicate| duplicate.insert_str(0, "json patch "));
                Form::Json(tree)
            }
            "application/merge-patch+json" => Form::Merge(tree),
            "application/strategic-merge-patch+json" if call.served.facts.ty.is_some() => Form::Strategic(tree),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                if call.query.get("fieldManager").is_empty() {
                    return Err(refused(FieldError::required("fieldManager", "is required for apply patch")));
                }
                Form::Apply { configuration: tree, force }
            }
            _ => {
                let message = format!(
                    "the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
                );
                return Err(ApiError::new(Reason::UnsupportedMediaType, message));
            }
        };
        Ok(Self { form, duplicates })
    }

    /// The patched object, of a type with a schema for strategic patches. An apply is merged by a field manager instead.
    pub(super) fn patched(&self, mut object: Value, of: Option<&Type>) -> Result<Value, ApiError> {
        match &self.form {
            Form::Json(patch) => json::apply(&mut object, patch).map_err(ApiError::from)?,
            Form::Merge(patch) => {
                if !patch.is_object() {
                    return Err(ApiError::bad_request("error decoding patch: expected an object"));
                }
                merge::apply(&mut object, patch.clone());
            }
            Form::Strategic(patch) => {
                let of = of.expect("only kinds with a schema read strategic merge patches");
                strategic::apply(&mut object, patch.clone(), of).map_err(ApiError::from)?;
            }
            Form::Apply { .. } => unreachable!("an apply is merged by a field manager"),
        }
        Ok(object)
    }

    /// What a strict reader objects to in the patch itself, before anything is made of it.
    pub(super) fn duplicates(&self) -> Vec<String> {
        match &self.form {
            Form::Apply { .. } => Vec::new(),
            _ => self.duplicates.clone(),
        }
    }

    /// An applied configuration is not read into a type, so what is wrong with its text is said on its own.
    fn check_configuration(&self, options: &WriteOptions) -> Result<(), ApiError> {
        if !matches!(self.form, Form::Apply { .. }) || self.duplicates.is_empty() {
            return Ok(());
        }
        match options.field_validation {
            FieldValidation::Strict => {
                let problems = self.duplicates.join(", ");
                return Err(ApiError::bad_request(format!("error strict decoding patch: {problems}")));
            }
            FieldValidation::Warn => self.duplicates.iter().for_each(context::warn),
            FieldValidation::Ignore => {}
        }
        Ok(())
    }

    /// What a patch makes of an object must be of its kind. A strategic merge patch is read as the kind that it patches,
    /// whatever it says itself; an applied configuration was checked before it was merged.
    fn check_kind(
        &self,
        new: &mut Value,
        facts: &facts::Resource,
        of: Option<&Type>,
        object: impl Fn() -> Value,
    ) -> Result<(), ApiError> {
        match &self.form {
            Form::Strategic(_) => {
                for field in ["apiVersion", "kind"] {
                    if let Some(odd) = new.get(field).filter(|said| !said.is_string() && !said.is_null()) {
                        let why = format!("cannot convert {} to string", machinery::patch::go_type(odd));
                        return Err(self.unfit(object, of, &why));
                    }
                }
                value::set(new, "apiVersion", facts.api_version());
                value::set(new, "kind", &*facts.kind);
                Ok(())
            }
            Form::Apply { .. } => check_kind(new, &facts.group, &facts.version, &facts.kind),
            Form::Json(_) | Form::Merge(_) => match other_kind(new, &facts.group, &facts.version, &facts.kind) {
                Some(why) => Err(self.unfit(object, of, &why)),
                None => check_kind(new, &facts.group, &facts.version, &facts.kind),
            },
        }
    }

    /// The answer when what the patch makes of an object is none of its kind.
    pub(super) fn unfit(&self, object: impl FnOnce() -> Value, of: Option<&Type>, why: &str) -> ApiError {
        let text = match &self.form {
            Form::Strategic(patch) => go_map(patch),
            Form::Apply { configuration, .. } => return ApiError::bad_request(unconvertible(configuration, why)),
            _ => self.patched(object(), of).map(|patched| patched.to_string()).unwrap_or_default(),
        };
        ApiError::invalid("", "", "", &[FieldError::invalid("patch", text, why)])
    }
}

/// What upstream says of an applied configuration with a value that its type cannot hold.
fn unconvertible(configuration: &Value, why: &str) -> String {
    let said = |path: &str| value::text(configuration, path).to_owned();
    let (namespace, name) = (said("metadata.namespace"), said("metadata.name"));
    let version = said("apiVersion");
    let kind = match version.contains('/') {
        true => format!("{version}, Kind={}", said("kind")),
        false => format!("/{version}, Kind={}", said("kind")),
    };
    format!(
        "failed to convert new object ({namespace}/{name}; {kind}) to proper version: unable to convert unstructured object to {kind}: {why}"
    )
}

/// A tree as Go prints one: that is how upstream shows a strategic patch.
fn go_map(tree: &Value) -> String {
    match tree {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("{key}:{}", go_map(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

/// Whether a request is a server-side apply.
pub fn is_apply(headers: &http::HeaderMap) -> bool {
    super::body::media_type(headers).starts_with("application/apply-patch")
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
        let (from, to) = (call.resource.storage, call.served.facts);
        let changed = self
            .replace(call, part, &options, |old, _| {
                let versioned = || convert::between(from, to, old.clone());
                let (mut new, applied) = self.patched(call, &patch, versioned, &options)?;
                self.check_namespace(call, &mut new)?;
                self.check_name(call, &new)?;
                Ok(Produced { new, applied })
            })
            .await?;
        let (status, object) = match (changed, &patch.form) {
            (Some(changed), _) => (StatusCode::OK, changed.object()),
            (None, Form::Apply { configuration, force }) if call.info.subresource.is_empty() => {
                let uid = value::text(configuration, "metadata.uid");
                if !uid.is_empty() {
                    let why = "uid mismatch: the provided object specified uid {uid}, and no existing object was found";
                    return Err(ApiError::conflict(&call.resource.name, &call.info.name, &why.replace("{uid}", uid)));
                }
                let applied = self.apply(call, None, configuration, &options, *force)?;
                patch.check_configuration(&options)?;
                let new = self
                    .stored_form(call, applied.object, Vec::new(), &options)
                    .map_err(|why| patch.unfit(|| Value::Null, None, &why))?;
                self.check_name(call, &new)?;
                (StatusCode::CREATED, self.create_object(call, new, &options, true).await?)
            }
            (None, _) => return Err(call.not_found()),
        };
        Ok(object_response(status, self.convert(call, object)?))
    }

    /// What a patch makes of an object, in storage form, and whether the record of field owners is kept already.
    fn patched(
        &self,
        call: &Call<'_>,
        patch: &Patch,
        versioned: impl Fn() -> Value,
        options: &WriteOptions,
    ) -> Result<(Value, bool), ApiError> {
        let (facts, of) = (call.served.facts, call.served.facts.ty.map(|ty| ty.def()));
        let applied = matches!(patch.form, Form::Apply { .. });
        let mut new = match &patch.form {
            Form::Apply { configuration, force } => {
                let applied = self.apply(call, Some(&versioned()), configuration, options, *force)?;
                patch.check_configuration(options)?;
                applied.object
            }
            _ => patch.patched(versioned(), of)?,
        };
        patch.check_kind(&mut new, facts, of, &versioned)?;
        let new =
            self.stored_form(call, new, patch.duplicates(), options).map_err(|why| patch.unfit(versioned, of, &why))?;
        Ok((new, applied))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_strategic_patch_is_shown_as_go_shows_a_map() {
        let patch = json!({"spec": {"b": [1, "x"], "a": null}, "flag": true});
        assert_eq!(go_map(&patch), "map[flag:true spec:map[a:<nil> b:[1 x]]]");
    }
}
