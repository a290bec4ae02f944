//! Patch: JSON patch, merge patch, strategic merge patch, and server-side apply.

use std::borrow::Cow;

use bytes::Bytes;
use facts::Type;
use gates::body::{media_type, read_bytes};
use gates::notes::Notes;
use http::StatusCode;
use kinds::convert;
use machinery::codec::unreadable_kind;
use machinery::patch::{echo, go_print, json, json_type, merge, strategic};
use machinery::rest::{Body, Response};
use machinery::status::{ApiError, FieldError, Reason};
use machinery::{Value, codec, schema, value};

use super::body::{Conform, Text, check_kind, other_kind, strictness};
use super::options::{FieldValidation, WriteOptions};
use super::type_meta::{TypeMeta, kindless};
use super::update::{Part, Produced, nameless};
use super::{Api, Call, object_response};

/// A patch, read but not yet applied: it is applied anew to each version of the object that wins a race against it.
pub(super) struct Patch {
    pub(super) form: Form,
    /// The keys that it has twice.
    duplicates: Vec<String>,
    /// As it was sent, for messages that show it.
    text: Bytes,
}

/// The kinds of patches.
pub(super) enum Form {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply { configuration: Value, force: bool },
}

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY_YAML: &str = "application/apply-patch+yaml";
const APPLY_CBOR: &str = "application/apply-patch+cbor";

impl Patch {
    /// The options of a patch of a type that the resource can be patched with.
    pub(super) fn options(call: &Call<'_>) -> Result<WriteOptions, ApiError> {
        let media = media_type(call.headers);
        let typed = call.served.facts.ty.is_some();
        let accepted = [JSON, MERGE, STRATEGIC, APPLY_YAML, APPLY_CBOR];
        let accepted = accepted.into_iter().filter(|accepted| typed || *accepted != STRATEGIC);
        if !accepted.clone().any(|accepted| accepted == media) {
            // What upstream serves by routes never gets as far as the list of what would do.
            let message = match typed {
                true => "415: Unsupported Media Type".to_owned(),
                false => format!(
                    "the body of the request was in an unknown format - accepted media types include: {}",
                    accepted.collect::<Vec<_>>().join(", ")
                ),
            };
            let mut refused = ApiError::new(Reason::UnsupportedMediaType, message);
            refused.details = typed.then(Box::default);
            return Err(refused);
        }
        WriteOptions::of_patch(call.query, matches!(media, APPLY_YAML | APPLY_CBOR))
    }

    /// Reads the body as what its media type says it is. That it is one that can be read, [`Patch::options`] has found.
    pub(super) async fn read(call: &Call<'_>, body: Body) -> Result<Self, ApiError> {
        let media = media_type(call.headers);
        let applies = matches!(media, APPLY_YAML | APPLY_CBOR);
        let limits = codec::Limits::default();
        let (tree, mut duplicates, text) = match body {
            Body::Value(tree) => (tree, Vec::new(), None),
            body => {
                let bytes = read_bytes(body).await?;
                let (tree, duplicates) = match media {
                    APPLY_YAML => {
                        let decoded =
                            codec::yaml::decode(&bytes, limits).map_err(|error| no_yaml(&bytes, &error.message))?;
                        (decoded.value, decoded.duplicates)
                    }
                    APPLY_CBOR => {
                        let decoded = codec::cbor::decode(&bytes, limits)
                            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
                        (decoded, Vec::new())
                    }
                    _ => {
                        let decoded = codec::json::decode(&bytes, limits)
                            .map_err(|_| ApiError::bad_request("invalid JSON patch"))?;
                        (decoded.value, decoded.duplicates)
                    }
                };
                (tree, duplicates, Some(bytes))
            }
        };
        if applies && !tree.is_object() && !tree.is_null() {
            let codec = if media == APPLY_CBOR { "cbor" } else { "error unmarshaling JSON: while decoding JSON: json" };
            let what = match &tree {
                Value::Number(_) if media == APPLY_CBOR => "positive integer",
                other => json_type(other),
            };
            let message = format!(
                "error decoding patch: {codec}: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
            );
            return Err(ApiError::bad_request(message));
        }
        let text = text.unwrap_or_else(|| Bytes::from(tree.to_string()));
        let form = match media {
            JSON => {
                duplicates.iter_mut().for_each(|duplicate| duplicate.insert_str(0, "json patch "));
                Form::Json(tree)
            }
            MERGE => Form::Merge(tree),
            STRATEGIC => Form::Strategic(tree),
            _ => Form::Apply { configuration: tree, force: call.query.flag("force") },
        };
        Ok(Self { form, duplicates, text })
    }

    /// The patched object, of a type with a schema for strategic patches, and what a strict reader objects to in the patch
    /// itself. An apply is merged by a field manager instead.
    pub(super) fn patched(
        &self,
        mut object: Value,
        of: Option<&Type>,
        validation: FieldValidation,
    ) -> Result<(Value, Vec<String>), ApiError> {
        let strict = validation != FieldValidation::Ignore;
        let mut problems = self.duplicates.clone();
        match &self.form {
            Form::Json(patch) => {
                if strict {
                    problems.extend(json::check_strict(patch)?);
                }
                json::apply(&mut object, patch)?;
            }
            Form::Merge(patch) => {
                merge::check(patch, strict)?;
                merge::apply(&mut object, patch.clone());
            }
            Form::Strategic(patch) => {
                let of = of.expect("only kinds with a schema read strategic merge patches");
                strategic::apply(&mut object, patch.clone(), of)?;
            }
            Form::Apply { .. } => unreachable!("an apply is merged by a field manager"),
        }
        Ok((object, problems))
    }

    /// An applied configuration is not read into a type, so what is wrong with its text is said on its own.
    fn check_configuration(&self, options: &WriteOptions, notes: &Notes) -> Result<(), ApiError> {
        if !matches!(self.form, Form::Apply { .. }) || self.duplicates.is_empty() {
            return Ok(());
        }
        match options.field_validation {
            FieldValidation::Strict => {
                let problems = self.duplicates.join(", ");
                let message = format!("error strict decoding patch: error converting YAML to JSON: {problems}");
                return Err(ApiError::bad_request(message));
            }
            // Below its head, the text has a line for each.
            FieldValidation::Warn => {
                let lines = self.duplicates.iter().filter_map(|line| line.strip_prefix(codec::yaml::DUPLICATES));
                lines.flat_map(str::lines).map(str::trim).for_each(|line| notes.warn(line));
            }
            FieldValidation::Ignore => {}
        }
        Ok(())
    }

    /// Upstream converts what some patches make to the type of the object, where it decodes others.
    pub(super) fn conform(&self) -> Conform {
        match self.form {
            Form::Strategic(_) | Form::Apply { .. } => schema::conform_converted,
            Form::Json(_) | Form::Merge(_) => schema::conform,
        }
    }

    /// What a patch makes of an object must be of its kind. A strategic merge patch is read as the kind that it patches,
    /// whatever it says itself; an applied configuration was checked before it was merged.
    pub(super) fn check_kind<'o>(
        &self,
        new: &mut Value,
        (group, version, kind): (&str, &str, &str),
        of: Option<&Type>,
        object: impl Fn() -> Cow<'o, Value>,
    ) -> Result<(), ApiError> {
        match &self.form {
            Form::Strategic(_) => {
                for field in ["apiVersion", "kind"] {
                    if let Some(odd) = new.get(field).filter(|value| !value.is_string() && !value.is_null()) {
                        let why = format!("cannot convert {} to string", machinery::patch::go_type(odd));
                        return Err(self.unfit(object, of, &why));
                    }
                }
                value::set(new, "apiVersion", facts::api_version(group, version));
                value::set(new, "kind", kind);
                Ok(())
            }
            Form::Apply { .. } => check_kind(new, group, version, kind),
            Form::Json(_) | Form::Merge(_) => {
                match unreadable_kind(new).or_else(|| other_kind(new, group, version, kind)) {
                    Some(why) => Err(self.unfit(object, of, &why)),
                    None => check_kind(new, group, version, kind),
                }
            }
        }
    }

    /// The fields that nobody knows, where a patch took the version away: upstream then reads the object as its internal type,
    /// whose fields have other names.
    pub(super) fn versionless(&self, new: &Value) -> Option<Vec<String>> {
        let fields = match &self.form {
            Form::Json(_) | Form::Merge(_) if value::text(new, "apiVersion").is_empty() => new.as_object()?,
            _ => return None,
        };
        if unreadable_kind(new).is_some() {
            return None;
        }
        let names = fields.keys().filter(|name| !matches!(name.as_str(), "apiVersion" | "kind"));
        Some(names.map(|name| format!("unknown field {name:?}")).collect())
    }

    /// The answer when what the patch makes of an object is none of its kind.
    pub(super) fn unfit<'o>(&self, object: impl FnOnce() -> Cow<'o, Value>, of: Option<&Type>, why: &str) -> ApiError {
        let text = match &self.form {
            Form::Strategic(patch) => {
                let of = of.expect("only kinds with a schema read strategic merge patches");
                go_print(&strategic::leftover(&object(), patch.clone(), of))
            }
            Form::Apply { configuration, .. } => return ApiError::bad_request(unconvertible(configuration, why)),
            Form::Json(_) | Form::Merge(_) => self.made(&object(), of),
        };
        ApiError::invalid("", "", "", &[FieldError::invalid("patch", text, why)])
    }

    /// What a patch without a type makes of an object, as a text.
    fn made(&self, object: &Value, of: Option<&Type>) -> String {
        let echo = if matches!(self.form, Form::Json(_)) { echo::json } else { echo::merge };
        let sent = std::str::from_utf8(&self.text).ok();
        sent.and_then(|sent| echo(object, of, sent)).unwrap_or_default()
    }

    /// What a patched custom resource says of itself, for which nothing but its validation holds it to account.
    fn type_meta<'o>(
        &self,
        new: &mut Value,
        facts: &facts::Resource,
        object: impl Fn() -> Cow<'o, Value>,
    ) -> Result<TypeMeta, ApiError> {
        if let Some(why) = unreadable_kind(new) {
            return Err(self.unfit(object, None, &why));
        }
        if value::text(new, "kind").is_empty() {
            let made = self.made(&object(), None);
            return Err(self.unfit(object, None, &kindless(&made)));
        }
        Ok(TypeMeta::take(new, facts))
    }
}

/// What upstream says of an applied configuration with a value that its type cannot hold.
fn unconvertible(configuration: &Value, why: &str) -> String {
    let text = |path: &str| value::text(configuration, path).to_owned();
    let (namespace, name) = (text("metadata.namespace"), text("metadata.name"));
    let version = text("apiVersion");
    let kind = match version.contains('/') {
        true => format!("{version}, Kind={}", text("kind")),
        false => format!("/{version}, Kind={}", text("kind")),
    };
    format!(
        "failed to convert new object ({namespace}/{name}; {kind}) to proper version: unable to convert unstructured object to {kind}: {why}"
    )
}

/// Whether a request is a server-side apply.
pub fn is_apply(headers: &http::HeaderMap) -> bool {
    media_type(headers).starts_with("application/apply-patch")
}

impl Api {
    /// Changes parts of an object; an apply makes it if it is not there.
    pub(super) async fn patch(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let part = if call.info.subresource == "status" { Part::Status } else { Part::Main };
        let options = Patch::options(call)?;
        let patch = Patch::read(call, body).await?;
        let (from, to) = (&call.resource.storage, &call.served.facts);
        let changed = self
            .replace(call, part, &options, |old, _| {
                let versioned = || convert::seen(from, to, old);
                let (mut new, applied, claimed) = self.patched(call, &patch, versioned, &options)?;
                self.check_namespace(call, &mut new)?;
                self.check_name(call, &new)?;
                claimed.map_or(Ok(()), |claimed| claimed.judge(call, &new))?;
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
                let new = self.apply(call, None, configuration, &options, *force)?.object;
                let new = self.stored_form(call, new, Text::applied(), &options, patch.conform());
                let new = new.map_err(|why| patch.unfit(|| Cow::Owned(Value::Null), None, &why))?;
                patch.check_configuration(&options, &call.exchange.notes)?;
                self.check_name(call, &new)?;
                (StatusCode::CREATED, self.create_object(call, new, &options, true).await?)
            }
            (None, _) => return Err(call.not_found()),
        };
        Ok(object_response(status, self.convert(call, object)?))
    }

    /// What a patch makes of an object, in storage form, whether the record of field owners is kept already, and what is still to be judged of it.
    fn patched<'a>(
        &self,
        call: &Call<'_>,
        patch: &Patch,
        versioned: impl Fn() -> Cow<'a, Value>,
        options: &WriteOptions,
    ) -> Result<(Value, bool, Option<TypeMeta>), ApiError> {
        let (facts, of) = (&call.served.facts, call.served.facts.ty.map(|ty| ty.def()));
        let kind = (&*facts.group, &*facts.version, &*facts.kind);
        let applied = matches!(patch.form, Form::Apply { .. });
        let (mut new, problems) = match &patch.form {
            Form::Apply { configuration, force } => {
                let applied = self.apply(call, Some(&versioned()), configuration, options, *force)?;
                (applied.object, Vec::new())
            }
            _ => patch.patched(versioned().into_owned(), of, options.field_validation)?,
        };
        let claimed = match call.resource.form.is_some() && !applied {
            true => Some(patch.type_meta(&mut new, facts, &versioned)?),
            false => None,
        };
        if let Some(unknown) = patch.versionless(&new) {
            let problems = problems.into_iter().chain(unknown).collect();
            strictness(problems, options, &call.exchange.notes).map_err(|why| patch.unfit(&versioned, of, &why))?;
            return Err(nameless(call));
        }
        patch.check_kind(&mut new, kind, of, &versioned)?;
        let text = if applied { Text::applied() } else { Text::with_problems(problems) };
        let new = self.stored_form(call, new, text, options, patch.conform());
        let new = new.map_err(|why| patch.unfit(&versioned, of, &why))?;
        patch.check_configuration(options, &call.exchange.notes)?;
        Ok((new, applied, claimed))
    }
}

/// Why a configuration to apply cannot be read. Upstream makes JSON of it twice: first for the audit log, which takes what begins like JSON as it
/// is, and then for good.
fn no_yaml(bytes: &[u8], why: &str) -> ApiError {
    const PREFIX: &str = "error converting YAML to JSON: ";
    let why = why.trim_start_matches(PREFIX);
    ApiError::bad_request(if bytes.trim_ascii_start().starts_with(b"{") {
        format!("error decoding patch: {PREFIX}{why}")
    } else {
        format!("error encoding patch: {why}")
    })
}
