//! Who owns which field: every write records its author in `managedFields`, and apply goes by that record.

use facts::Type;
use http::header::USER_AGENT;
use kinds::convert;
use machinery::apply::{Applied, FieldManager, Filter, Versions};
use machinery::status::ApiError;
use machinery::{Value, objectmeta, value};

use super::options::WriteOptions;
use super::{Api, Call};

/// Where an object keeps who owns which field.
const RECORD: &str = "metadata.managedFields";

/// The other served versions of a resource, for records that were made in them.
struct Others<'a> {
    call: &'a Call<'a>,
}

impl Versions for Others<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, &Type)> {
        let from = &self.call.served.facts;
        let version = api_version.rsplit('/').next()?;
        if let Some(form) = &self.call.resource.form {
            let to = &form.definition.version(version)?.resource;
            let mut object = object.clone();
            value::set(&mut object, "apiVersion", api_version);
            return Some((object, to.def()?)).filter(|_| to.api_version() == api_version);
        }
        let to = facts::resource(&from.group, version, &from.plural).filter(|to| to.api_version() == api_version)?;
        Some((convert::between(from, to, object.clone()), to.ty?.def()))
    }
}

impl Api {
    /// Records a create, update or patch in the new object. Both trees are in storage form.
    pub(super) fn record(&self, call: &Call<'_>, old: Option<&Value>, new: &mut Value, options: &WriteOptions) {
        let facts = &call.served.facts;
        let (Some(of), storage) = (facts.def(), &call.resource.storage) else { return };
        let manager = manager(call, options);
        let (filter, versions, api_version) = (filter(call), Others { call }, facts.api_version());
        let keeper = keeper(call, of, &filter, &versions, &api_version);
        // What is built in has its type when it is read. Of what has not, nothing is recorded, be it in a part that the write cannot change.
        if facts.is_custom() && !keeper.fits(new) {
            match old.and_then(|old| value::at(old, RECORD)) {
                Some(record) => value::set(new, RECORD, record.clone()),
                None => drop(value::remove(new, RECORD)),
            }
            return;
        }
        let now = self.now();
        if std::ptr::eq(&**facts, &**storage) {
            let empty;
            let old = match old {
                Some(old) => old,
                None => {
                    empty = keeper.empty();
                    &empty
                }
            };
            keeper.update(old, new, &manager, &now);
            return;
        }
        // The record is kept in the words of the version that was written.
        let old = old.map_or_else(|| keeper.empty(), |old| convert::between(storage, facts, old.clone()));
        let mut versioned = convert::between(storage, facts, new.clone());
        keeper.update(&old, &mut versioned, &manager, &now);
        match value::remove(&mut versioned, RECORD) {
            Some(record) => value::set(new, RECORD, record),
            None => drop(value::remove(new, RECORD)),
        }
    }

    /// Merges an applied configuration into the live object (none: it is to be created). All in the version asked for.
    pub(super) fn apply(
        &self,
        call: &Call<'_>,
        live: Option<&Value>,
        patch: &Value,
        options: &WriteOptions,
        force: bool,
    ) -> Result<Applied, ApiError> {
        let facts = &call.served.facts;
        let of = facts.def().ok_or_else(ApiError::no_such_path)?;
        let (filter, versions, api_version) = (filter(call), Others { call }, facts.api_version());
        let keeper = keeper(call, of, &filter, &versions, &api_version);
        let empty;
        let live = match live {
            Some(live) => live,
            None => {
                empty = keeper.empty();
                &empty
            }
        };
        Ok(keeper.apply(live, patch, &options.field_manager, force, &self.now())?)
    }
}

fn keeper<'a>(
    call: &'a Call<'_>,
    of: &'a Type,
    filter: &'a Filter,
    versions: &'a dyn Versions,
    api_version: &'a str,
) -> FieldManager<'a> {
    FieldManager {
        of,
        kind: &call.served.facts.kind,
        api_version,
        subresource: &call.info.subresource,
        filter,
        versions,
    }
}

fn filter(call: &Call<'_>) -> Filter {
    let has_status = call.resource.storage.subresource("status").is_some();
    match call.resource.strategy.resets(&call.info.subresource, has_status) {
        [] => Filter::All,
        paths => Filter::exclude(paths.iter().copied()),
    }
}

/// The manager that the request names, or else the program that sent it.
pub(super) fn manager<'a>(call: &'a Call<'_>, options: &'a WriteOptions) -> std::borrow::Cow<'a, str> {
    let agent = call.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    objectmeta::field_manager(&options.field_manager, agent)
}
