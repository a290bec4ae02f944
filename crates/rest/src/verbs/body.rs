//! From a request's body to an object in storage form: decode, check the kind, convert, prune, default.

use std::sync::Arc;

use bytes::Bytes;
use gates::Exchange;
use gates::body::{media_type, read_bytes};
use gates::notes::Notes;
use hops::Hop;
use http::HeaderMap;
use kinds::convert;
use kinds::wording;
use machinery::codec::{Decoded, decode, decode_typed, unreadable_kind};
use machinery::gvk::GroupVersion;
use machinery::object::Object;
use machinery::rest::Body;
use machinery::status::{ApiError, FieldError, Reason};
use machinery::{Value, apply, codec, names, objectmeta, schema, value};

use super::options::{FieldValidation, WriteOptions};
use super::{Api, Call, type_meta};
use crate::admission::{self, Operation};
use crate::registry::NameRule;

/// Reads what should be an object of a kind: at least it must be possible to ask it for its kind.
pub(super) async fn read_of_kind(headers: &HeaderMap, body: Body, kind: &str) -> Result<(Value, Text), ApiError> {
    if let Body::Value(value) = body {
        return Ok((value, Text::default()));
    }
    let media = media_type(headers).to_ascii_lowercase();
    let bytes = read_bytes(body).await?;
    let decoded = decode_typed(&media, &bytes).map_err(|error| unrecognized(error, kind, &media, &bytes))?;
    let Decoded { value, duplicates, rounded } = decoded;
    // Nothing at all is an object with nothing in it.
    let value = if value.is_null() { Value::Object(Default::default()) } else { value };
    match unreadable_kind(&value) {
        Some(why) => Err(unrecognized(ApiError::bad_request(why), kind, "", &bytes)),
        None => {
            let json = matches!(&*media, "" | JSON).then_some(bytes);
            Ok((value, Text { duplicates, json, rounded, applied: false }))
        }
    }
}

/// Reads something that is asked of an object and never stored (a binding, a request for a token), as its schema has it.
pub async fn read_request(
    exchange: &Exchange,
    body: Body,
    (group, version, kind): (&str, &str, &str),
) -> Result<Value, ApiError> {
    let options = WriteOptions::parse(exchange.query(), "CreateOptions")?;
    let (mut object, text) = read_of_kind(exchange.headers(), body, kind).await?;
    check_kind(&mut object, group, version, kind)?;
    let failed = |why: String| codec::cannot_be_handled(kind, version, kind, &why);
    let ty = facts::type_of(group, version, kind);
    text.give_numbers(&mut object, ty.map(|ty| ty.def())).map_err(failed)?;
    let problems = match ty {
        Some(ty) => text.problems(schema::conform(&mut object, ty.def()).map_err(failed)?, ty.def()),
        None => text.duplicates,
    };
    strictness(problems, &options, &exchange.notes).map_err(failed)?;
    Ok(object)
}

/// Reads options that a request has instead of an object, if there are any: whatever of their kind, in whatever version.
pub async fn read_options(headers: &HeaderMap, body: Body, kind: &str) -> Result<Option<Value>, ApiError> {
    let media = media_type(headers).to_owned();
    let bytes = read_bytes(body).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let decoded = decode_typed(&media, &bytes).map_err(|error| match media.as_str() {
        _ if error.reason != Some(Reason::BadRequest) => error,
        "" | JSON => ApiError::bad_request(format!("couldn't get version/kind; json parse error: {}", error.message)),
        _ => ApiError::bad_request(error.message.trim_start_matches("error converting YAML to JSON: ")),
    })?;
    let mut options = if decoded.value.is_null() { Value::Object(Default::default()) } else { decoded.value };
    if let Some(why) = unreadable_kind(&options) {
        return Err(ApiError::bad_request(why));
    }
    let option = |field: &str| value::text(&options, field);
    if !matches!(option("kind"), "") && option("kind") != kind {
        let version = Some(option("apiVersion")).filter(|version| !version.is_empty()).unwrap_or("meta.k8s.io/v1");
        let scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
        let kind = option("kind");
        let message = format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}");
        return Err(ApiError::bad_request(message));
    }
    if let Some(ty) = facts::type_named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")) {
        let text = Text { json: decoded.rounded.then_some(bytes), rounded: decoded.rounded, ..Text::default() };
        text.give_numbers(&mut options, Some(ty.def())).map_err(ApiError::bad_request)?;
        schema::conform(&mut options, ty.def()).map_err(ApiError::bad_request)?;
    }
    Ok(Some(options))
}

/// Reads a tree, if there is anything to read.
pub async fn read_optional(headers: &HeaderMap, body: Body) -> Result<Option<Value>, ApiError> {
    if let Body::Value(value) = body {
        return Ok(Some(value));
    }
    let media = media_type(headers).to_owned();
    let bytes = read_bytes(body).await?;
    if bytes.is_empty() { Ok(None) } else { decode(&media, &bytes).map(|(value, _)| Some(value)) }
}

const JSON: &str = "application/json";

/// The text that an object was read from, for what a strict reader has to say about it.
#[derive(Debug, Clone, Default)]
pub(super) struct Text {
    /// The fields that it gives twice.
    duplicates: Vec<String>,
    /// The text itself, if it is JSON.
    json: Option<Bytes>,
    /// Whether it has numbers that are more in the text than in the tree.
    rounded: bool,
    /// Whether there is none, because a server-side apply made the object.
    applied: bool,
}

impl Text {
    /// A text of which only this is known.
    pub(super) fn with_problems(duplicates: Vec<String>) -> Self {
        Self { duplicates, ..Self::default() }
    }

    /// Gives the tree the numbers of the text that it cannot hold by itself, by its type; without a type all of them must fit.
    fn give_numbers(&self, object: &mut Value, of: Option<&facts::Type>) -> Result<(), String> {
        match (&self.json, of) {
            (Some(json), Some(of)) if self.rounded => schema::exact(object, of, json),
            (Some(json), None) if self.rounded => codec::numbers::in_range(json),
            _ => Ok(()),
        }
    }

    /// No text: a server-side apply made the object.
    pub(super) fn applied() -> Self {
        Self { applied: true, ..Self::default() }
    }

    /// What a strict reader objects to in an object with these unknown fields: in the order of the text, if it is JSON.
    pub(super) fn problems(self, unknown: Vec<String>, of: &facts::Type) -> Vec<String> {
        let mut problems = self.duplicates;
        problems.extend(unknown);
        let json = self.json.filter(|_| !problems.is_empty());
        json.and_then(|json| schema::complaints(&json, of)).unwrap_or(problems)
    }
}

/// How a tree is brought into the form of its type: as upstream decodes, or as it converts.
pub(super) type Conform = fn(&mut Value, &facts::Type) -> Result<Vec<String>, String>;

impl Api {
    /// The body as an object in storage form.
    pub(crate) async fn read_object(
        &self,
        call: &Call<'_>,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let facts = &call.served.facts;
        if let Body::Value(value) = body {
            return self.to_storage(call, value, Text::default(), options);
        }
        let (mut value, text) = read_of_kind(call.headers, body, &facts.kind).await?;
        if call.resource.form.is_some() {
            type_meta::check(call, &mut value, text.json.as_ref(), options)?;
        }
        self.to_storage(call, value, text, options)
    }

    /// A decoded object of the version asked for, in storage form: kind checked, unknown fields handled, defaults filled in.
    fn to_storage(
        &self,
        call: &Call<'_>,
        mut object: Value,
        text: Text,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let facts = &call.served.facts;
        check_kind(&mut object, &facts.group, &facts.version, &facts.kind)?;
        let object = self.stored_form(call, object, text, options, schema::conform);
        let mut object = object.map_err(|why| decode_error(facts, &why))?;
        if let Some(warning) = dedup_owners(&mut object, "") {
            call.warn(warning);
        }
        Ok(object)
    }

    /// As [`Api::to_storage`], of an object whose kind is known to be right. The error says what does not fit the schema.
    pub(super) fn stored_form(
        &self,
        call: &Call<'_>,
        mut object: Value,
        text: Text,
        options: &WriteOptions,
        conform: Conform,
    ) -> Result<Value, String> {
        let hop = hops::start(Hop::Schema, call.info.verb).within(call.exchange.trace);
        let facts = &call.served.facts;
        text.give_numbers(&mut object, facts.ty.map(|ty| ty.def()))?;
        let problems = match facts.ty {
            Some(ty) => text.problems(conform(&mut object, ty.def())?, ty.def()),
            None => {
                let strategy = &call.resource.strategy;
                let read = if text.applied { strategy.read_applied(&mut object) } else { strategy.read(&mut object) };
                text.duplicates.into_iter().chain(read.transpose()?.into_iter().flatten()).collect()
            }
        };
        strictness(problems, options, &call.exchange.notes)?;
        if let Some(ty) = facts.ty {
            schema::default(&mut object, ty.def());
        }
        let mut object = convert::between(facts, &call.resource.storage, object);
        call.resource.strategy.default(&mut object);
        call.resource.strategy.stamp(&mut object, &|| self.now());
        if let Some(ty) = call.resource.storage.ty {
            schema::complete(&mut object, ty.def());
        }
        hop.end(value::text(&object, "metadata.uid"), "", 0);
        Ok(object)
    }

    /// A stored object in the version asked for.
    pub(super) fn convert(&self, call: &Call<'_>, object: Arc<Object>) -> Result<Arc<Object>, ApiError> {
        convert::from_storage(&call.resource.storage, &call.served.facts, object, call.resource.cache.fields())
    }

    /// The namespace of the object must be the request's; an absent one is filled in.
    pub(crate) fn check_namespace(&self, call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
        let namespace = value::text(object, "metadata.namespace");
        if !call.resource.storage.namespaced {
            if !namespace.is_empty() {
                value::remove(object, "metadata.namespace");
            }
            return Ok(());
        }
        if call.info.namespace.is_empty() {
            return Err(ApiError::no_such_path());
        }
        if namespace.is_empty() {
            value::set(object, "metadata.namespace", call.info.namespace.as_str());
        } else if namespace != call.info.namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(message));
        }
        Ok(())
    }

    /// Name, namespace, labels, annotations, owners and finalizers.
    pub(super) fn validate_metadata(&self, call: &Call<'_>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let empty = Value::Null;
        let metadata = new.get("metadata").unwrap_or(&empty);
        let mut errors = match old {
            Some(old) => {
                let old = old.get("metadata").unwrap_or(&empty);
                let namespaced = call.resource.storage.namespaced;
                let mut errors = objectmeta::validate_object_meta_update(metadata, old, namespaced, "metadata");
                // The parts of upstream that extend its API look for the same once more; each time is a cause of its own.
                if !call.resource.strategy.flags().says_once && !errors.is_empty() {
                    errors.extend(objectmeta::validate_object_meta_again(metadata, old, "metadata"));
                }
                errors
            }
            None => {
                let rule: names::NameFn = match call.resource.strategy.name_rule() {
                    NameRule::Subdomain => names::name_is_dns_subdomain,
                    NameRule::Label => names::name_is_dns_label,
                    NameRule::Label1035 => names::name_is_dns1035_label,
                    NameRule::PathSegment => names::name_is_path_segment,
                    NameRule::ConfigMapKey => |name, _| names::is_config_map_key(name),
                    NameRule::Own => |_, _| Vec::new(),
                };
                objectmeta::validate_object_meta(metadata, call.resource.storage.namespaced, rule, "metadata")
            }
        };
        if call.resource.strategy.judges_finalizers(&call.served.facts.group) {
            objectmeta::validate_kube_finalizers(metadata, "metadata", &mut errors);
        }
        errors
    }

    /// All errors at once, or none.
    pub(super) fn refuse_invalid(
        &self,
        call: &Call<'_>,
        object: &Value,
        mut errors: Vec<FieldError>,
    ) -> Result<(), ApiError> {
        if errors.is_empty() {
            return Ok(());
        }
        wording::show(&mut errors, call.resource.storage.def());
        if call.resource.strategy.flags().says_once {
            report_once(&mut errors);
        }
        let name = value::text(object, "metadata.name");
        Err(ApiError::invalid(&call.resource.storage.group, &call.resource.storage.kind, name, &errors))
    }

    /// Lets admission change a write. What it gives twice counts once, and a record of owners that it breaks is put back.
    pub(super) async fn mutate(
        &self,
        request: &admission::Request<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        const RECORD: &str = "metadata.managedFields";
        let before = self.admission.asks_others().then(|| value::at(new, RECORD).cloned());
        self.admission.mutate(self, request, new, old).await?;
        if let Some(before) = before
            && value::at(new, RECORD) != before.as_ref()
            && let Err(why) = apply::check_record(new)
        {
            match before {
                Some(record) => value::set(new, RECORD, record),
                None => drop(value::remove(new, RECORD)),
            }
            request.exchange.notes.warn(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {why}"
            ));
        }
        if let Some(warning) = dedup_owners(new, AFTER_ADMISSION) {
            request.exchange.notes.warn(warning);
        }
        Ok(())
    }

    /// Everything admission has to say about an object that is asked for and never stored: a binding, an eviction, a token.
    pub(crate) async fn admit_request(
        &self,
        call: &Call<'_>,
        object: &mut Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let request = self.admission_request(call, Operation::Create, dry_run);
        self.admission.mutate(self, &request, object, None).await?;
        self.admission.validate(self, &request, Some(object), None).await
    }

    /// What admission knows about a write.
    pub fn admission_request<'a>(
        &self,
        call: &'a Call<'_>,
        operation: Operation,
        dry_run: bool,
    ) -> admission::Request<'a> {
        admission::Request {
            exchange: call.exchange,
            operation,
            info: call.info,
            resource: call.resource,
            facts: &call.served.facts,
            user: call.user,
            dry_run,
            options: call.query.pairs(),
        }
    }
}

/// What is found wrong twice is said once.
fn report_once(errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::HashSet::new();
    errors.retain(|error| seen.insert(error.to_string()));
}

/// Forgets empty lists and maps of a built-in kind, as far as a form goes; see [`schema::settle`].
pub(super) fn settle(facts: &facts::Resource, object: &mut Value, form: schema::Form) -> bool {
    facts.ty.is_some_and(|ty| schema::settle(object, ty.def(), form))
}

/// The answer to a body that is no object, with its beginning.
pub(super) fn unrecognized(error: ApiError, kind: &str, media: &str, bytes: &[u8]) -> ApiError {
    const SHOWN: usize = 30;
    if error.reason != Some(Reason::BadRequest) {
        return error;
    }
    let why = match media {
        "application/json" => format!("couldn't get version/kind; json parse error: {}", error.message),
        _ => error.message.trim_start_matches("error converting YAML to JSON: ").to_owned(),
    };
    let (shown, more) = if bytes.len() > SHOWN { (&bytes[..SHOWN], " ...") } else { (bytes, "") };
    let summary = match shown {
        [] => "<empty>".to_owned(),
        [b'{', ..] => String::from_utf8_lossy(shown).into_owned(),
        other => other.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({summary}{more})"
    ))
}

/// The object must be of the kind that the path names; what it leaves out is filled in.
pub fn check_kind(object: &mut Value, group: &str, version: &str, kind: &str) -> Result<(), ApiError> {
    if !object.is_object() {
        let message = "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return Err(ApiError::bad_request(message));
    }
    if let Some(why) = other_kind(object, group, version, kind) {
        let own = |field: &str, or: &str| {
            Some(value::text(object, field)).filter(|own| !own.is_empty()).unwrap_or(or).to_owned()
        };
        let (own_version, own_kind) = (own("apiVersion", &facts::api_version(group, version)), own("kind", kind));
        let message = match GroupVersion::parse(&own_version) {
            Some(parsed) => format!("{own_kind} in version {:?} cannot be handled as a {kind}: {why}", parsed.version),
            None => why,
        };
        return Err(ApiError::bad_request(message));
    }
    value::set(object, "apiVersion", facts::api_version(group, version));
    value::set(object, "kind", kind);
    Ok(())
}

/// Why an object cannot be taken for one of this kind, if what it says of itself is something else.
pub(super) fn other_kind(object: &Value, group: &str, version: &str, kind: &str) -> Option<String> {
    let expected = facts::api_version(group, version);
    let own_version = value::text(object, "apiVersion");
    let own_kind = value::text(object, "kind");
    let other = (!own_version.is_empty() && own_version != expected) || (!own_kind.is_empty() && own_kind != kind);
    if !other {
        return None;
    }
    let own_version = if own_version.is_empty() { expected.as_str() } else { own_version };
    let Some(parsed) = GroupVersion::parse(own_version) else {
        return Some(format!("unexpected GroupVersion string: {own_version}"));
    };
    let own_kind = if own_kind.is_empty() { kind } else { own_kind };
    Some(match facts::type_of(&parsed.group, &parsed.version, own_kind) {
        Some(_) => {
            let package = package(group);
            format!("converting ({}.{own_kind}) to ({package}.{kind}): unknown conversion", parsed.version)
        }
        None => format!(
            "no kind {own_kind:?} is registered for version {:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            facts::api_version(&parsed.group, &parsed.version)
        ),
    })
}

/// The package in which upstream has the types of a group, as its messages name them.
pub fn package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() }
}

/// Owners that are given twice count once, and the client gets a warning. `when` says at which point they were.
fn dedup_owners(object: &mut Value, when: &str) -> Option<String> {
    let twice = objectmeta::dedup_owner_references(object);
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        )
    })
}

/// What says that admission, or a patch, gave owners twice.
const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Unknown and duplicate fields: an error, warnings, or nothing.
pub(super) fn strictness(problems: Vec<String>, options: &WriteOptions, notes: &Notes) -> Result<(), String> {
    match options.field_validation {
        FieldValidation::Strict if !problems.is_empty() => {
            return Err(format!("strict decoding error: {}", problems.join(", ")));
        }
        FieldValidation::Warn => {
            for problem in problems {
                match problem.strip_prefix(machinery::codec::yaml::DUPLICATES) {
                    Some(lines) => lines.lines().map(str::trim).for_each(|line| notes.warn(line)),
                    None => notes.warn(problem),
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn decode_error(facts: &facts::Resource, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        facts.kind, facts.version, facts.kind
    ))
}
