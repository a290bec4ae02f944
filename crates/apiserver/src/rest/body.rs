//! From a request's body to an object in storage form: decode, check the kind, convert, prune, default.

use std::sync::Arc;

use bytes::Bytes;
use hops::Hop;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use machinery::gvk::GroupVersion;
use machinery::object::Object;
use machinery::patch::json_type;
use machinery::rest::Body;
use machinery::status::{ApiError, FieldError, Reason};
use machinery::{Value, apply, codec, names, objectmeta, schema, value};
use threads::heavy;

use super::options::{FieldValidation, WriteOptions};
use super::{Api, Call};
use crate::admission::{self, Operation};
use crate::convert;
use crate::gates::context;
use crate::query::Query;
use crate::registry::{NameRule, internal};

/// The largest body that is read.
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// A body's media type, without parameters.
pub fn media_type(headers: &HeaderMap) -> &str {
    let text = headers.get(CONTENT_TYPE).and_then(|header| header.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// Reads what is still on the wire. A large body makes the request a heavy one: all that is done with it takes long.
pub async fn read_bytes(body: Body) -> Result<Bytes, ApiError> {
    let bytes = match body {
        Body::Empty => Bytes::new(),
        Body::Bytes(bytes) if bytes.len() > MAX_BODY => return Err(ApiError::too_large(MAX_BODY)),
        Body::Bytes(bytes) => bytes,
        Body::Value(value) => Bytes::from(value.to_string()),
        Body::Incoming(read) => read(MAX_BODY).await?,
    };
    heavy::weigh(bytes.len()).await;
    Ok(bytes)
}

/// Reads what should be an object of a kind: at least it must be possible to ask it for its kind.
pub async fn read_of_kind(headers: &HeaderMap, body: Body, kind: &str) -> Result<(Value, Text), ApiError> {
    if let Body::Value(value) = body {
        return Ok((value, Text::default()));
    }
    let media = media_type(headers).to_ascii_lowercase();
    let bytes = read_bytes(body).await?;
    let (value, duplicates) = decode(&media, &bytes).map_err(|error| unrecognized(error, kind, &media, &bytes))?;
    // Nothing at all is an object with nothing in it.
    let value = if value.is_null() { Value::Object(Default::default()) } else { value };
    match unreadable_kind(&value) {
        Some(why) => Err(unrecognized(ApiError::bad_request(why), kind, "", &bytes)),
        None => {
            let json = matches!(&*media, "" | JSON).then_some(bytes);
            Ok((value, Text { duplicates, json }))
        }
    }
}

/// Reads something that is asked of an object and never stored (a binding, a request for a token), as its schema has it.
pub async fn read_request(
    headers: &HeaderMap,
    query: &Query,
    body: Body,
    (group, version, kind): (&str, &str, &str),
) -> Result<Value, ApiError> {
    let options = WriteOptions::parse(query, "CreateOptions")?;
    let (mut object, text) = read_of_kind(headers, body, kind).await?;
    check_kind(&mut object, group, version, kind)?;
    let failed = |why: String| codec::cannot_be_handled(kind, version, kind, &why);
    let problems = match facts::type_of(group, version, kind) {
        Some(ty) => text.problems(schema::conform(&mut object, ty.def()).map_err(failed)?, ty.def()),
        None => text.duplicates,
    };
    strictness(problems, &options).map_err(failed)?;
    Ok(object)
}

/// Reads options that a request has instead of an object, if there are any: whatever of their kind, in whatever version.
pub async fn read_options(headers: &HeaderMap, body: Body, kind: &str) -> Result<Option<Value>, ApiError> {
    let media = media_type(headers).to_owned();
    let bytes = read_bytes(body).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let (value, _) = decode(&media, &bytes).map_err(|error| match media.as_str() {
        _ if error.reason != Some(Reason::BadRequest) => error,
        "" | JSON => ApiError::bad_request(format!("couldn't get version/kind; json parse error: {}", error.message)),
        _ => ApiError::bad_request(error.message.trim_start_matches("error converting YAML to JSON: ")),
    })?;
    let mut options = if value.is_null() { Value::Object(Default::default()) } else { value };
    if let Some(why) = unreadable_kind(&options) {
        return Err(ApiError::bad_request(why));
    }
    let said = |field: &str| value::text(&options, field);
    if !matches!(said("kind"), "") && said("kind") != kind {
        let version = Some(said("apiVersion")).filter(|version| !version.is_empty()).unwrap_or("meta.k8s.io/v1");
        let scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
        let kind = said("kind");
        let message = format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}");
        return Err(ApiError::bad_request(message));
    }
    if let Some(ty) = facts::type_named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")) {
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
}

impl Text {
    /// A text of which only this is known.
    pub(super) fn with_problems(duplicates: Vec<String>) -> Self {
        Self { duplicates, json: None }
    }

    /// What a strict reader objects to in an object with these unknown fields: in the order of the text, if it is JSON.
    pub(super) fn problems(self, unknown: Vec<String>, of: &facts::Type) -> Vec<String> {
        let mut problems = self.duplicates;
        problems.extend(unknown);
        let json = self.json.filter(|_| !problems.is_empty());
        json.and_then(|json| schema::complaints(&json, of)).unwrap_or(problems)
    }
}

/// Decodes bytes of a media type.
pub fn decode(media: &str, bytes: &[u8]) -> Result<(Value, Vec<String>), ApiError> {
    let decoded = match media.to_ascii_lowercase().as_str() {
        "" | JSON => codec::json::decode(bytes, codec::Limits::default()),
        "application/yaml" => codec::yaml::decode(bytes, codec::Limits::default()),
        "application/cbor" => {
            let value = codec::cbor::decode(bytes, codec::Limits::default())
                .map_err(|error| ApiError::bad_request(format!("unable to decode CBOR: {error}")))?;
            return Ok((value, Vec::new()));
        }
        "application/vnd.kubernetes.protobuf" => {
            return Ok((codec::protobuf::decode(bytes, None)?, Vec::new()));
        }
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
            return Err(ApiError::new(Reason::UnsupportedMediaType, message));
        }
    }?;
    Ok((decoded.value, decoded.duplicates))
}

impl Api {
    /// The body as an object in storage form.
    pub(super) async fn read_object(
        &self,
        call: &Call<'_>,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let facts = call.served.facts;
        if let Body::Value(value) = body {
            return self.to_storage(call, value, Text::default(), options);
        }
        let (value, text) = read_of_kind(call.headers, body, &facts.kind).await?;
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
        let facts = call.served.facts;
        check_kind(&mut object, &facts.group, &facts.version, &facts.kind)?;
        let mut object = self.stored_form(call, object, text, options).map_err(|why| decode_error(facts, &why))?;
        if let Some(warning) = dedup_owners(&mut object, "") {
            context::warn(warning);
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
    ) -> Result<Value, String> {
        let hop = hops::start(Hop::Decode, call.info.verb);
        let facts = call.served.facts;
        let problems = match facts.ty {
            Some(ty) => text.problems(schema::conform(&mut object, ty.def())?, ty.def()),
            None => text.duplicates,
        };
        strictness(problems, options)?;
        if let Some(ty) = facts.ty {
            schema::default(&mut object, ty.def());
        }
        let mut object = convert::between(facts, call.resource.storage, object);
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
        convert::from_storage(call.resource.storage, call.served.facts, object, call.resource.cache.fields())
    }

    /// The namespace of the object must be the request's; an absent one is filled in.
    pub(super) fn check_namespace(&self, call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
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
                objectmeta::validate_object_meta_update(metadata, old, call.resource.storage.namespaced, "metadata")
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
        if judges_finalizers(call.served.facts) {
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
        internal::show(&mut errors, call.resource.storage.ty.map(|ty| ty.def()));
        if !is_an_extension(call.resource.storage) {
            say_once(&mut errors);
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
            context::warn(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {why}"
            ));
        }
        if let Some(warning) = dedup_owners(new, AFTER_ADMISSION) {
            context::warn(warning);
        }
        Ok(())
    }

    /// Everything admission has to say about an object that is asked for and never stored: a binding, an eviction, a token.
    pub(super) async fn admit_request(
        &self,
        call: &Call<'_>,
        object: &mut Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let request = self.admission_request(call, Operation::Create, dry_run);
        self.admission.mutate(self, &request, object, None).await?;
        self.admission.validate(self, &request, Some(object), None).await
    }

    /// What admission is told about a write.
    pub(super) fn admission_request<'a>(
        &self,
        call: &'a Call<'_>,
        operation: Operation,
        dry_run: bool,
    ) -> admission::Request<'a> {
        admission::Request {
            operation,
            info: call.info,
            resource: call.resource,
            facts: call.served.facts,
            user: call.user,
            dry_run,
            options: call.query.pairs(),
        }
    }
}

/// Whether finalizers without a domain must be among those that Kubernetes knows. Upstream asks that of most kinds, not of all.
fn judges_finalizers(facts: &facts::Resource) -> bool {
    const LENIENT: [&str; 6] = [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "policy",
    ];
    let old_event = facts.group.is_empty() && &*facts.kind == "Event";
    facts.ty.is_some() && !old_event && !LENIENT.contains(&&*facts.group)
}

/// Whether a kind is served by the parts of upstream's server that extend its API: definitions, what they define, and services.
fn is_an_extension(facts: &facts::Resource) -> bool {
    facts.ty.is_none() || matches!(&*facts.group, "apiextensions.k8s.io" | "apiregistration.k8s.io")
}

/// What is found wrong twice is said once.
fn say_once(errors: &mut Vec<FieldError>) {
    let mut said = std::collections::HashSet::new();
    errors.retain(|error| said.insert(error.to_string()));
}

/// Forgets empty lists and maps of a built-in kind, as far as a form goes; see [`schema::settle`].
pub(super) fn settle(facts: &facts::Resource, object: &mut Value, form: schema::Form) -> bool {
    facts.ty.is_some_and(|ty| schema::settle(object, ty.def(), form))
}

/// Why nobody can tell the kind of an object.
pub(crate) fn unreadable_kind(object: &Value) -> Option<String> {
    if object.is_null() {
        return None;
    }
    let failed = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    let Value::Object(fields) = object else {
        let what = json_type(object);
        return Some(format!(
            "{failed} {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        ));
    };
    for field in ["apiVersion", "kind"] {
        if let Some(odd) = fields.get(field).filter(|said| !said.is_string() && !said.is_null()) {
            return Some(format!("{failed} {} into Go struct field .{field} of type string", json_type(odd)));
        }
    }
    let version = value::text(object, "apiVersion");
    let odd = !version.is_empty() && GroupVersion::parse(version).is_none();
    odd.then(|| format!("unexpected GroupVersion string: {version}"))
}

/// The answer to a body that is no object, with its beginning.
fn unrecognized(error: ApiError, kind: &str, media: &str, bytes: &[u8]) -> ApiError {
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
        let said = |field: &str, or: &str| {
            Some(value::text(object, field)).filter(|said| !said.is_empty()).unwrap_or(or).to_owned()
        };
        let (said_version, said_kind) = (said("apiVersion", &facts::api_version(group, version)), said("kind", kind));
        let message = match GroupVersion::parse(&said_version) {
            Some(said) => format!("{said_kind} in version {:?} cannot be handled as a {kind}: {why}", said.version),
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
    let said_version = value::text(object, "apiVersion");
    let said_kind = value::text(object, "kind");
    let other = (!said_version.is_empty() && said_version != expected) || (!said_kind.is_empty() && said_kind != kind);
    if !other {
        return None;
    }
    let said_version = if said_version.is_empty() { expected.as_str() } else { said_version };
    let Some(said) = GroupVersion::parse(said_version) else {
        return Some(format!("unexpected GroupVersion string: {said_version}"));
    };
    let said_kind = if said_kind.is_empty() { kind } else { said_kind };
    Some(match facts::type_of(&said.group, &said.version, said_kind) {
        Some(_) => {
            let package = package(group);
            format!("converting ({}.{said_kind}) to ({package}.{kind}): unknown conversion", said.version)
        }
        None => format!(
            "no kind {said_kind:?} is registered for version {:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            facts::api_version(&said.group, &said.version)
        ),
    })
}

/// The package in which upstream has the types of a group, as its messages name them.
pub fn package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() }
}

/// Owners that are given twice count once, and the client hears of it. `when` says at which point they were.
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

/// What an error begins with that is about unknown and duplicate fields.
const STRICT: &str = "strict decoding error: ";

/// Whether an object was refused for unknown and duplicate fields alone.
pub(super) fn is_strict(why: &str) -> bool {
    why.starts_with(STRICT)
}

/// Unknown and duplicate fields: an error, warnings, or nothing.
pub(super) fn strictness(problems: Vec<String>, options: &WriteOptions) -> Result<(), String> {
    match options.field_validation {
        FieldValidation::Strict if !problems.is_empty() => {
            return Err(format!("{STRICT}{}", problems.join(", ")));
        }
        FieldValidation::Warn => {
            for problem in problems {
                match problem.strip_prefix(machinery::codec::yaml::DUPLICATES) {
                    Some(lines) => lines.lines().map(str::trim).for_each(context::warn),
                    None => context::warn(problem),
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
