//! Server-side apply, and who owns which field.
//!
//! Every write goes through a [`FieldManager`]. A create, update or patch makes its author the owner of what it changed
//! ([`FieldManager::update`]). An apply states what its author wants and owns: it is merged into the object, takes out what
//! the author stated before and states no more, and fails where it would change what others own ([`FieldManager::apply`]).
//!
//! How values merge is in [`kind`], sets of paths are in [`set`], the walks over objects in [`compare`], [`merge`] and
//! [`typed`], the record of owners in [`managed`]. The clock is the caller's: times come in as text.

mod compare;
mod conflict;
mod kind;
mod managed;
mod merge;
mod overlay;
mod path;
mod scale;
mod set;
mod typed;

pub use compare::Comparison;
pub use conflict::{Conflict, Error};
pub use overlay::overlay;
pub use path::Element;
pub use scale::Scale;
pub use set::{Filter, Set};

use std::collections::HashMap;
use std::sync::OnceLock;

use facts::Type;
use serde_json::Value;

use crate::gvk::GroupVersion;
use crate::value::text;
use kind::Kind;
use managed::{Id, Managed, Operation, Owner};

/// The annotation in which `kubectl apply` keeps what was applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager whose earlier client-side applies do not count as conflicts.
const KUBECTL: &str = "kubectl";

/// Whether the record of owners in an object can be read. The error is upstream's message.
pub fn check_record(object: &Value) -> Result<(), String> {
    Managed::decode(managed::entries(object)).map(drop)
}

/// The other versions of a kind: what a manager wrote in one version is compared in that version.
pub trait Versions: Sync {
    /// The object in another version, and the type it has there. `None` if there is no such version any more.
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, &Type)>;
}

/// For kinds that have just one version.
pub struct OneVersion;

impl Versions for OneVersion {
    fn convert(&self, _: &Value, _: &str) -> Option<(Value, &Type)> {
        None
    }
}

/// What an apply made of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The object with its new `managedFields`, not yet conformed and defaulted.
    pub object: Value,
    /// Whether anything but the `managedFields` changed.
    pub changed: bool,
}

/// Keeps the record of owners for one kind in one version, written through one subresource.
pub struct FieldManager<'a> {
    /// The type of the objects.
    pub of: &'a Type,
    pub kind: &'a str,
    /// Their `apiVersion`.
    pub api_version: &'a str,
    /// The subresource through which they are written; empty for the resource itself.
    pub subresource: &'a str,
    /// What the strategy lets a write own.
    pub filter: &'a Filter,
    pub versions: &'a dyn Versions,
}

impl FieldManager<'_> {
    /// An object of the kind that has nothing: what every object is compared with when it is created.
    pub fn empty(&self) -> Value {
        let mut empty = serde_json::json!({"apiVersion": self.api_version, "kind": self.kind});
        crate::schema::complete(&mut empty, self.of);
        empty
    }

    /// Whether an object is of the type of its kind. Upstream keeps no record of one that is not; it finds out before what a write may not
    /// change is put back.
    pub fn fits(&self, object: &Value) -> bool {
        typed::fits(object, Kind::Struct(self.of))
    }

    /// Records a create, update or patch in the `managedFields` of the new object. For a create, the old object is
    /// [`FieldManager::empty`]. Both must be complete. A record that cannot be read is left as the old object has it.
    pub fn update(&self, old: &Value, new: &mut Value, manager: &str, now: &str) {
        let managed = self.read(old, new);
        managed::set_entries(new, None);
        let exists = !text(old, "metadata.uid").is_empty();
        if managed.is_empty() && exists {
            // Nobody ever kept a record of this object, and one write is no beginning.
            return;
        }
        let id = Id::new(manager, Operation::Update, self.api_version, self.subresource);
        let entries = match self.track(old, new, managed, id, now) {
            Ok(managed) => managed.encode(),
            Err(_) => Some(managed::entries(old).to_vec()).filter(|entries| !entries.is_empty()).map(Value::Array),
        };
        managed::set_entries(new, entries);
    }

    /// Merges a configuration into an object (for a create: into [`FieldManager::empty`]) and makes the manager the owner
    /// of all it names.
    pub fn apply(&self, live: &Value, patch: &Value, manager: &str, force: bool, now: &str) -> Result<Applied, Error> {
        self.check_patch(patch)?;
        let malformed = |what: &str, error: String| Error::Malformed(format!("{what}: {error}"));
        let mut managed = Managed::decode(managed::entries(live))
            .map_err(|error| malformed("failed to decode managed fields", error))?;
        if managed.is_empty() && !text(live, "metadata.uid").is_empty() {
            let id = Id::new("before-first-apply", Operation::Update, self.api_version, self.subresource);
            managed = self
                .track(&self.empty(), live, managed, id, now)
                .map_err(|error| malformed("failed to create manager for existing fields", error))?;
        }
        typed::validate(patch, Kind::Struct(self.of)).map_err(|error| {
            malformed(&format!("failed to create typed patch object ({})", self.name_of(patch)), error)
        })?;
        let id = Id::new(manager, Operation::Apply, self.api_version, self.subresource);
        let outcome = match self.merge(live, patch, managed.clone(), &id, force, now) {
            Err(Error::Conflict(conflicts)) if manager == KUBECTL => {
                match self.without_own_past(live, &conflicts).as_slice() {
                    [] => self.merge(live, patch, managed, &id, true, now),
                    rest => Err(Error::Conflict(rest.to_vec())),
                }
            }
            outcome => outcome,
        };
        let (object, managed) = outcome?;
        let changed = object.is_some();
        let mut object = object.unwrap_or_else(|| live.clone());
        if manager == KUBECTL {
            keep_last_applied(&mut object, patch);
        }
        managed::set_entries(&mut object, managed.encode());
        Ok(Applied { object, changed })
    }

    /// The owners to go on from: the new object's if a client sent any, else the old object's.
    fn read(&self, old: &Value, new: &Value) -> Managed {
        let live = || Managed::decode(managed::entries(old)).unwrap_or_default();
        if !self.subresource.is_empty() {
            return live();
        }
        if managed::is_reset(new) {
            return Managed::default();
        }
        match Managed::decode(managed::entries(new)) {
            Ok(managed) if !managed.is_empty() => managed,
            _ => live(),
        }
    }

    fn check_patch(&self, patch: &Value) -> Result<(), Error> {
        let (version, kind) = (text(patch, "apiVersion"), text(patch, "kind"));
        if version != self.api_version || kind != self.kind {
            // Of what has no version that can be read, the kind is not read either.
            let (of, kind) = match GroupVersion::parse(version) {
                Some(of) => (of, kind),
                None if version.is_empty() => (GroupVersion::new("", ""), kind),
                None => (GroupVersion::new("", ""), ""),
            };
            return Err(Error::Malformed(format!("invalid object type: {}/{}, Kind={kind}", of.group, of.version)));
        }
        // What is no list there is for the schema to refuse.
        if patch["metadata"]["managedFields"].is_array() {
            return Err(Error::Malformed("metadata.managedFields must be nil".to_owned()));
        }
        Ok(())
    }

    /// How upstream names an object in the messages about it.
    fn name_of(&self, object: &Value) -> String {
        let group_version = GroupVersion::parse(self.api_version).unwrap_or_else(|| GroupVersion::new("", ""));
        format!(
            "{}/{}; {}/{}, Kind={}",
            text(object, "metadata.namespace"),
            text(object, "metadata.name"),
            group_version.group,
            group_version.version,
            self.kind
        )
    }

    /// Makes `id` the owner of all that differs between two objects.
    fn track(&self, old: &Value, new: &Value, mut managed: Managed, id: Id, now: &str) -> Result<Managed, String> {
        let mut versions = Compared::new(self, old, new)?;
        managed.owners.retain_mut(|owner| {
            let Some(changes) = versions.at(&owner.version) else { return false };
            owner.fields = std::mem::take(&mut owner.fields)
                .difference(&changes.modified)
                .difference(&changes.added)
                .difference(&changes.removed);
            !owner.fields.is_empty()
        });
        let changes = versions.own();
        let fields = changes.modified.union(changes.added).difference(never_owned());
        if !fields.is_empty() {
            match managed.find(&id) {
                Some(owner) => {
                    owner.fields = std::mem::take(&mut owner.fields).union(fields);
                    owner.time = Some(now.to_owned());
                }
                None => {
                    let (version, time) = (self.api_version.to_owned(), Some(now.to_owned()));
                    managed.owners.push(Owner { id, version, fields, time });
                }
            }
        }
        managed.cap();
        Ok(managed)
    }

    /// One attempt at an apply. No object if nothing changed but the record of owners.
    fn merge(
        &self,
        live: &Value,
        patch: &Value,
        mut managed: Managed,
        id: &Id,
        force: bool,
        now: &str,
    ) -> Result<(Option<Value>, Managed), Error> {
        let kind = Kind::Struct(self.of);
        let mut known: HashMap<String, bool> = HashMap::new();
        managed.owners.retain(|owner| match known.get(&owner.version) {
            Some(known) => *known,
            None => *known.entry(owner.version.clone()).or_insert(self.knows(live, &owner.version)),
        });
        let merged = merge::merge(live, patch, kind)
            .map_err(|error| Error::Malformed(format!("failed to merge config: {error}")))?;
        let last = managed.take(id);
        let fields = self.filter.apply(typed::field_set(patch, kind));
        managed.owners.push(Owner {
            id: id.clone(),
            version: self.api_version.to_owned(),
            fields,
            time: last.as_ref().and_then(|last| last.time.clone()),
        });
        // Most applies name all they named before: then nothing can go, and finding that out the long way costs most of them.
        let named = |last: &Owner| {
            let now = managed.owners.iter().rev().find(|owner| owner.id == *id);
            now.is_some_and(|now| last.fields.clone().difference(&now.fields).is_empty())
        };
        let merged = match last.filter(|last| !named(last)) {
            Some(last) => self.prune(merged, &managed, &last),
            None => merged,
        };
        let mut versions = Compared::new(self, live, &merged)
            .map_err(|error| Error::Malformed(format!("failed to compare objects: {error}")))?;
        let mut conflicts = Vec::new();
        for owner in managed.owners.iter_mut().filter(|owner| owner.id != *id) {
            let Some(changes) = versions.at(&owner.version) else { continue };
            let changed = owner.fields.intersection(&changes.modified).union(owner.fields.intersection(&changes.added));
            if !force {
                changed.for_each(&mut |path| {
                    conflicts.push(Conflict { manager: owner.id.clone(), path: path.to_vec() });
                });
            }
            owner.fields = std::mem::take(&mut owner.fields).difference(&changed).difference(&changes.removed);
        }
        if !conflicts.is_empty() {
            conflicts.sort_by(|a, b| a.manager.cmp(&b.manager));
            return Err(Error::Conflict(conflicts));
        }
        let changed = *live != merged;
        if let Some(owner) = managed.find(id) {
            owner.fields = std::mem::take(&mut owner.fields).difference(never_owned());
            if changed {
                owner.time = Some(now.to_owned());
            }
        }
        managed.owners.retain(|owner| !owner.fields.is_empty());
        Ok((changed.then_some(merged), managed))
    }

    fn knows(&self, object: &Value, version: &str) -> bool {
        version == self.api_version || self.versions.convert(object, version).is_some()
    }

    /// The object in a version, and how it merges there.
    fn at<'s>(&'s self, object: &Value, version: &str) -> Option<(Value, Kind<'s>)> {
        if text(object, "apiVersion") == version {
            // Conversions keep `apiVersion` true, so this is the one case without a conversion.
            let of = if version == self.api_version { self.of } else { self.versions.convert(object, version)?.1 };
            return Some((object.clone(), Kind::Struct(of)));
        }
        let (converted, of) = self.versions.convert(object, version)?;
        Some((converted, Kind::Struct(of)))
    }

    /// Takes out what the manager applied last time and does not any more, unless somebody else owns it.
    fn prune(&self, merged: Value, managed: &Managed, last: &Owner) -> Value {
        let Some((full, kind)) = self.at(&merged, &last.version) else { return merged };
        let last_fields = typed::with_named_fields(&last.fields, kind);
        let mut pruned = typed::remove(&full, &last_fields, kind);
        let mut versions: Vec<&str> = vec![&last.version];
        for owner in &managed.owners {
            if !versions.contains(&owner.version.as_str()) {
                versions.push(&owner.version);
            }
        }
        for version in versions {
            let owned = managed.owners.iter().filter(|owner| owner.version == version);
            let owned = Set::union_of(owned.map(|owner| owner.fields.clone()).collect());
            if owned.is_empty() {
                continue;
            }
            let (Some((full, kind)), Some((part, _))) = (self.at(&merged, version), self.at(&pruned, version)) else {
                continue;
            };
            let all = typed::with_named_fields(&typed::field_set(&full, kind), kind);
            let kept = typed::with_named_fields(&typed::field_set(&part, kind), kind)
                .union(typed::with_named_fields(&owned, kind));
            pruned = typed::remove(&full, &all.difference(&kept), kind);
        }
        let Some((part, _)) = self.at(&pruned, &last.version) else { return merged };
        let all = typed::with_named_fields(&typed::field_set(&full, kind), kind);
        let kept = typed::with_named_fields(&typed::field_set(&part, kind), kind);
        let result = typed::remove(&full, &all.difference(&kept).intersection(&last_fields), kind);
        self.at(&result, self.api_version).map_or(merged, |(result, _)| result)
    }

    /// The conflicts about fields that are not as this very client applied them last, from its own side.
    fn without_own_past(&self, live: &Value, conflicts: &[Conflict]) -> Vec<Conflict> {
        let allowed = || {
            let last = live["metadata"]["annotations"][LAST_APPLIED].as_str().filter(|last| !last.is_empty())?;
            let last = crate::codec::json::decode(last.as_bytes(), Default::default()).ok()?.value;
            let kind = Kind::Struct(self.of);
            if text(&last, "apiVersion") != self.api_version || typed::validate(&last, kind).is_err() {
                return None;
            }
            let changes = compare::compare(&last, live, kind).ok()?;
            let fields = typed::field_set(&last, kind);
            Some(fields.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
        };
        match allowed() {
            Some(allowed) => conflicts.iter().filter(|conflict| !allowed.has(&conflict.path)).cloned().collect(),
            None => conflicts.to_vec(),
        }
    }
}

/// What differs between two objects, in every version that somebody asks for.
struct Compared<'a> {
    manager: &'a FieldManager<'a>,
    old: &'a Value,
    new: &'a Value,
    own: Comparison,
    others: HashMap<String, Option<Comparison>>,
}

impl<'a> Compared<'a> {
    fn new(manager: &'a FieldManager<'a>, old: &'a Value, new: &'a Value) -> Result<Self, String> {
        let own = filtered(compare::compare(old, new, Kind::Struct(manager.of))?, manager.filter);
        Ok(Self { manager, old, new, own, others: HashMap::new() })
    }

    /// In another version; `None` if there is no such version.
    fn at(&mut self, version: &str) -> Option<&Comparison> {
        if version == self.manager.api_version {
            return Some(&self.own);
        }
        if !self.others.contains_key(version) {
            let versions = self.manager.versions;
            let both = versions.convert(self.old, version).zip(versions.convert(self.new, version));
            let comparison = both.and_then(|((old, of), (new, _))| compare::compare(&old, &new, Kind::Struct(of)).ok());
            let comparison = comparison.map(|changes| filtered(changes, self.manager.filter));
            self.others.insert(version.to_owned(), comparison);
        }
        self.others.get(version)?.as_ref()
    }

    fn own(self) -> Comparison {
        self.own
    }
}

fn filtered(changes: Comparison, filter: &Filter) -> Comparison {
    match filter {
        Filter::All => changes,
        _ => Comparison {
            added: filter.apply(changes.added),
            modified: filter.apply(changes.modified),
            removed: filter.apply(changes.removed),
        },
    }
}

/// The fields that nobody owns: they are the server's, or say which object this is.
fn never_owned() -> &'static Set {
    static SET: OnceLock<Set> = OnceLock::new();
    SET.get_or_init(|| {
        Set::of_fields([
            "apiVersion",
            "kind",
            "metadata",
            "metadata.name",
            "metadata.namespace",
            "metadata.creationTimestamp",
            "metadata.selfLink",
            "metadata.uid",
            "metadata.clusterName",
            "metadata.generation",
            "metadata.managedFields",
            "metadata.resourceVersion",
        ])
    })
}

/// Keeps the annotation of client-side applies true, where there is one, so that going back to them stays possible.
fn keep_last_applied(object: &mut Value, patch: &Value) {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut applied = patch.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    // As Go writes it: safe to stand in HTML, and a line of its own.
    let applied = crate::codec::json::html_safe(&applied.to_string()) + "\n";
    annotations.insert(LAST_APPLIED.to_owned(), Value::String(applied));
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > crate::objectmeta::MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

/// Whether two objects are equal but for the times in their `managedFields`: then nothing is to be written.
pub fn equal_but_times(a: &Value, b: &Value) -> bool {
    let (Some(fields_a), Some(fields_b)) = (a.as_object(), b.as_object()) else { return a == b };
    let without = |object: &crate::value::Object, key: &str| object.len() - usize::from(object.contains_key(key));
    let rest_equal = |a: &crate::value::Object, b: &crate::value::Object, key: &str| {
        without(a, key) == without(b, key)
            && a.iter().filter(|(name, _)| *name != key).all(|(name, value)| b.get(name) == Some(value))
    };
    if !rest_equal(fields_a, fields_b, "metadata") {
        return false;
    }
    let (Some(meta_a), Some(meta_b)) = (a["metadata"].as_object(), b["metadata"].as_object()) else {
        return a["metadata"] == b["metadata"];
    };
    let (entries_a, entries_b) = (managed::entries(a), managed::entries(b));
    rest_equal(meta_a, meta_b, "managedFields")
        && entries_a.len() == entries_b.len()
        && entries_a.iter().zip(entries_b).all(|(a, b)| match (a.as_object(), b.as_object()) {
            (Some(a), Some(b)) => rest_equal(a, b, "time"),
            _ => a == b,
        })
}

#[cfg(test)]
mod tests;
