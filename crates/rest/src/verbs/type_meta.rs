//! What objects of custom resources say that they are.
//!
//! Upstream reads them without a type, so an object of any kind can be read: whether it is of the right one is a question to its validation,
//! where one of a built-in kind is refused by whoever reads it. Between the two, the version is looked at.

use bytes::Bytes;
use machinery::gvk::GroupVersion;
use machinery::status::{ApiError, FieldError};
use machinery::{Value, codec, value};

use super::Call;
use super::body::{strictness, unrecognized};
use super::options::{FieldValidation, WriteOptions};

/// What an object says of itself.
pub(super) struct TypeMeta {
    api_version: String,
    kind: String,
}

impl TypeMeta {
    fn of(object: &Value) -> Self {
        let text = |field: &str| value::text(object, field).to_owned();
        Self { api_version: text("apiVersion"), kind: text("kind") }
    }

    /// What a patched object says of itself. From here on it is one of the right kind, until it is judged.
    pub fn take(object: &mut Value, facts: &facts::Resource) -> Self {
        let claimed = Self::of(object);
        value::set(object, "apiVersion", facts.api_version());
        value::set(object, "kind", &*facts.kind);
        claimed
    }

    /// Refuses an object of another kind. Whoever writes a status changes neither kind nor version, whatever they say.
    pub fn judge(&self, call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
        if self.api_version.is_empty() {
            return Err(ApiError::internal("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
        }
        if call.info.subresource == "status" {
            return Ok(());
        }
        let facts = &call.served.facts;
        let wanted =
            [("kind", &self.kind, facts.kind.to_string()), ("apiVersion", &self.api_version, facts.api_version())];
        let other = wanted.into_iter().filter(|(_, said, wanted)| *said != wanted);
        let errors: Vec<FieldError> = other
            .map(|(field, said, wanted)| FieldError::invalid(field, said.as_str(), format!("must be {wanted}")))
            .collect();
        if errors.is_empty() {
            return Ok(());
        }
        let group = GroupVersion::parse(&self.api_version).map(|version| version.group.to_string());
        Err(ApiError::invalid(&group.unwrap_or_default(), &self.kind, value::text(object, "metadata.name"), &errors))
    }

    /// Refuses an object of another version or kind.
    fn check(&self, call: &Call<'_>, object: &Value, options: &WriteOptions) -> Result<(), ApiError> {
        let facts = &call.served.facts;
        let expected = facts.api_version();
        if self.api_version == expected {
            return self.judge(call, object);
        }
        match GroupVersion::parse(&self.api_version) {
            // Of a version that is not there no field is known.
            Some(version) if version.group == facts.group && self.kind == facts.kind => {
                let names = object.as_object().into_iter().flat_map(|fields| fields.keys());
                let names = names.filter(|name| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
                let unknown = names.map(|name| format!("unknown field {name:?}")).collect();
                strictness(unknown, options, &call.exchange.notes)
                    .map_err(|why| codec::cannot_be_handled(&self.kind, &version.version, &facts.kind, &why))?;
            }
            None if !self.api_version.is_empty() => return Ok(()),
            _ => {}
        }
        let (said, why) = (&self.api_version, "does not match the expected API version");
        Err(ApiError::bad_request(format!("the API version in the data ({said}) {why} ({expected})")))
    }

    /// Why its metadata cannot be read, if so: upstream reads that before it looks at version and kind.
    fn unreadable(&self, call: &Call<'_>, object: &Value) -> Option<ApiError> {
        let why = apiextensions::Schema::coerce_metadata(&mut object.clone()).err()?;
        let version = self.api_version.rsplit('/').next().unwrap_or_default();
        Some(codec::cannot_be_handled(&self.kind, version, &call.served.facts.kind, &why))
    }
}

/// Why nobody can tell the kind of an object with this text.
pub(super) fn kindless(text: &str) -> String {
    format!("Object 'Kind' is missing in '{text}'")
}

/// Checks what an object says of itself that was sent as a whole; what it is read as is up to the path.
pub(super) fn check(
    call: &Call<'_>,
    object: &mut Value,
    sent: Option<&Bytes>,
    options: &WriteOptions,
) -> Result<(), ApiError> {
    if !object.is_object() {
        return Ok(());
    }
    let facts = &call.served.facts;
    let claimed = TypeMeta::of(object);
    if claimed.kind.is_empty() {
        let sent = sent.cloned().unwrap_or_else(|| object.to_string().into());
        let why = kindless(&String::from_utf8_lossy(&sent));
        return Err(match options.field_validation {
            FieldValidation::Ignore => codec::cannot_be_handled(&facts.kind, &facts.version, &facts.kind, &why),
            _ => unrecognized(ApiError::bad_request(why), &facts.kind, "", &sent),
        });
    }
    claimed.check(call, object, options).map_err(|error| claimed.unreadable(call, object).unwrap_or(error))?;
    // What has no version at all is refused by whoever reads it.
    if claimed.api_version == facts.api_version() {
        value::set(object, "kind", &*facts.kind);
    }
    Ok(())
}
