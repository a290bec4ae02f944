//! Field specs: which fields of which kinds a transformer looks at. A path goes through lists without saying so.

use machinery::Value;
use machinery::value::Object;
use serde::Deserialize;

use crate::Error;
use crate::id::Gvk;
use crate::resource::Resource;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FieldSpec {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub path: String,
    /// Whether the field is made where it is absent.
    pub create: bool,
}

/// What is made where a field is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    Nothing,
    Scalar,
    Map,
}

impl FieldSpec {
    pub fn gvk(&self) -> Gvk {
        Gvk { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }

    fn fits(&self, resource: &Resource) -> bool {
        resource.gvk().is_selected(&self.gvk())
    }

    /// Calls `set` with every field that the path leads to in a resource.
    pub fn apply(
        &self,
        resource: &mut Resource,
        make: Make,
        set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.fits(resource) {
            return Ok(());
        }
        let steps = split(&self.path, '/');
        let make = if self.create { make } else { Make::Nothing };
        let id = resource.id();
        walk(&mut resource.value, &steps, make, set)
            .map_err(|error| error.within(format!("considering field '{}' of object {id}", self.path)))
    }
}

fn walk(
    value: &mut Value,
    steps: &[String],
    make: Make,
    set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some((step, rest)) = steps.split_first() else { return set(value) };
    match value {
        Value::Null => Ok(()),
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|item| walk(item, steps, make, set))
            .map_err(|error| error.within(format!("visit traversal on path: [{}]", steps.join(" ")))),
        Value::Object(fields) => field(fields, step, rest, make, set),
        _ => Err(Error::new("expected sequence or mapping node")),
    }
}

fn field(
    fields: &mut Object,
    step: &str,
    rest: &[String],
    make: Make,
    set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let (name, is_list) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
    if name.is_empty() {
        return Err(Error::new("cannot set or create an empty field name"));
    }
    let made = match (make, rest.is_empty()) {
        (Make::Nothing, _) => None,
        _ if is_list => None,
        (Make::Scalar, true) => Some(Value::String(String::new())),
        (Make::Scalar | Make::Map, false) | (Make::Map, true) => Some(Value::Object(Object::new())),
    };
    match made {
        Some(made) => {
            let slot = fields.entry(name).or_insert(Value::Null);
            if slot.is_null() {
                *slot = made;
            }
            walk(slot, rest, make, set)
        }
        None => match fields.get_mut(name) {
            Some(found) => walk(found, rest, make, set),
            None => Ok(()),
        },
    }
}

/// The steps of a path. A delimiter after a backslash is a part of its step.
pub fn split(path: &str, delimiter: char) -> Vec<String> {
    let mut parts: Vec<&str> = path.split(delimiter).collect();
    if parts.len() > 1 && parts[0].is_empty() {
        parts.remove(0);
    }
    let mut steps: Vec<String> = Vec::new();
    for part in parts {
        match steps.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push(delimiter);
                last.push_str(part);
            }
            _ => steps.push(part.to_owned()),
        }
    }
    steps
}

/// Adds specs that are not there yet. Two that differ in whether they make their field contradict each other.
pub fn merge(specs: &mut Vec<FieldSpec>, more: &[FieldSpec]) -> Result<(), Error> {
    for spec in more {
        let same = |known: &&FieldSpec| known.gvk().is_selected(&spec.gvk()) && known.path == spec.path;
        match specs.iter().find(same) {
            Some(known) if known.create != spec.create => return Err(Error::new("conflicting fieldspecs")),
            Some(_) => {}
            None => specs.push(spec.clone()),
        }
    }
    Ok(())
}
