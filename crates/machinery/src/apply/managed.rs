//! `metadata.managedFields`: who owns what, since when.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde_json::Value;

use super::set::Set;
use crate::status::go_quote;
use crate::value::{Object, list, text};

/// The most managers that wrote by other means than apply; older ones are lumped together.
const MAX_UPDATE_MANAGERS: usize = 10;

/// How a manager wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// What tells managers apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// Empty for apply: there a manager is the same one whatever version it speaks.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Id {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Self {
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            operation,
            api_version: if operation == Operation::Apply { String::new() } else { api_version.to_owned() },
            subresource: subresource.to_owned(),
        }
    }
}

impl fmt::Display for Id {
    /// As conflicts print it: `"kubectl" with subresource "status" using apps/v1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&go_quote(&self.manager))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", go_quote(&self.subresource))?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// A manager and what it owns.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub(super) id: Id,
    /// The version in which the fields are named.
    pub(super) version: String,
    pub(super) fields: Set,
    pub(super) time: Option<String>,
}

/// All managers of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Managed {
    pub(super) owners: Vec<Owner>,
}

impl Managed {
    /// Reads `managedFields`. The error is upstream's message.
    pub(super) fn decode(entries: &[Value]) -> Result<Self, String> {
        let mut owners: Vec<Option<Owner>> = Vec::with_capacity(entries.len());
        let mut places: HashMap<Id, usize> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let operation = match text(entry, "operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let version = text(entry, "apiVersion");
            if version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text(entry, "fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}")),
            }
            let fields = Set::decode(&entry["fieldsV1"]).map_err(|error| format!("error decoding set: {error}"))?;
            let id = Id {
                // Kept as it is, whatever it is: only new entries get a name for the nameless.
                manager: text(entry, "manager").to_owned(),
                ..Id::new("", operation, version, text(entry, "subresource"))
            };
            let time = entry["time"].as_str().map(str::to_owned);
            if let Some(earlier) = places.insert(id.clone(), owners.len()) {
                owners[earlier] = None;
            }
            owners.push(Some(Owner { id, version: version.to_owned(), fields, time }));
        }
        Ok(Self { owners: owners.into_iter().flatten().collect() })
    }

    /// Whether nobody owns anything.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) fn find(&mut self, id: &Id) -> Option<&mut Owner> {
        self.owners.iter_mut().find(|owner| owner.id == *id)
    }

    pub(super) fn take(&mut self, id: &Id) -> Option<Owner> {
        let at = self.owners.iter().position(|owner| owner.id == *id)?;
        Some(self.owners.swap_remove(at))
    }

    /// Lumps the oldest managers together, per version, until few enough are left.
    pub(super) fn cap(&mut self) {
        let is_update = |owner: &Owner| owner.id.operation == Operation::Update;
        if self.owners.iter().filter(|owner| is_update(owner)).count() <= MAX_UPDATE_MANAGERS {
            return;
        }
        let (updates, applies): (Vec<Owner>, Vec<Owner>) =
            std::mem::take(&mut self.owners).into_iter().partition(is_update);
        self.owners = applies;
        let mut oldest: Vec<(Option<String>, Id)> =
            updates.iter().map(|owner| (owner.time.clone(), owner.id.clone())).collect();
        oldest.sort();
        let mut updates: BTreeMap<Id, Owner> = updates.into_iter().map(|owner| (owner.id.clone(), owner)).collect();
        let mut firsts: BTreeMap<String, Id> = BTreeMap::new();
        let mut lumped: BTreeMap<Id, Vec<Set>> = BTreeMap::new();
        for (time, id) in oldest {
            if updates.len() <= MAX_UPDATE_MANAGERS {
                break;
            }
            let bucket = Id::new("ancient-changes", Operation::Update, &id.api_version, "");
            let Some(first) = firsts.get(&id.api_version) else {
                firsts.insert(id.api_version.clone(), id);
                continue;
            };
            if !updates.contains_key(&bucket)
                && let Some(owner) = updates.remove(first)
            {
                updates.insert(bucket.clone(), Owner { id: bucket.clone(), ..owner });
            }
            if bucket == id {
                continue;
            }
            if let Some(owner) = updates.remove(&id)
                && let Some(ancient) = updates.get_mut(&bucket)
            {
                lumped.entry(bucket).or_default().push(owner.fields);
                ancient.time = time;
            }
        }
        for (bucket, mut sets) in lumped {
            if let Some(ancient) = updates.get_mut(&bucket) {
                sets.push(std::mem::take(&mut ancient.fields));
                ancient.fields = Set::union_of(sets);
            }
        }
        self.owners.extend(updates.into_values());
    }

    /// As `managedFields`, applies first, then the oldest first. `None` if nobody owns anything.
    pub(super) fn encode(mut self) -> Option<Value> {
        if self.is_empty() {
            return None;
        }
        self.owners.sort_by(|a, b| {
            (a.id.operation, &a.time)
                .cmp(&(b.id.operation, &b.time))
                .then_with(|| a.id.manager.cmp(&b.id.manager))
                .then_with(|| a.version.cmp(&b.version))
                .then_with(|| a.id.subresource.cmp(&b.id.subresource))
        });
        let entry = |owner: Owner| {
            let operation = if owner.id.operation == Operation::Apply { "Apply" } else { "Update" };
            let mut entry = Object::new();
            let mut put = |key: &str, value: Value| entry.insert(key.to_owned(), value);
            put("apiVersion", owner.version.into());
            put("fieldsType", "FieldsV1".into());
            put("fieldsV1", owner.fields.encode());
            if !owner.id.manager.is_empty() {
                put("manager", owner.id.manager.into());
            }
            put("operation", operation.into());
            if !owner.id.subresource.is_empty() {
                put("subresource", owner.id.subresource.into());
            }
            if let Some(time) = owner.time {
                put("time", time.into());
            }
            Value::Object(entry)
        };
        Some(Value::Array(self.owners.into_iter().map(entry).collect()))
    }
}

/// The entries of an object.
pub(super) fn entries(object: &Value) -> &[Value] {
    list(object, "metadata.managedFields")
}

/// Whether a client asks to forget all managers: with an empty list, or with one empty entry.
pub(super) fn is_reset(object: &Value) -> bool {
    match object.pointer("/metadata/managedFields").and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.is_empty(),
        _ => false,
    }
}

/// Replaces the entries of an object.
pub(super) fn set_entries(object: &mut Value, entries: Option<Value>) {
    let metadata = crate::value::object_mut(object, "metadata");
    match entries {
        Some(entries) => metadata.insert("managedFields".to_owned(), entries),
        None => metadata.remove("managedFields"),
    };
}
