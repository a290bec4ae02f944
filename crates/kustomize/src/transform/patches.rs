//! Patches: strategic merges for the object that they name or for those that a target selects, and JSON patches for a target.

use machinery::Value;
use machinery::codec::{Limits, yaml};
use machinery::patch;

use crate::Error;
use crate::documents;
use crate::files::Root;
use crate::kustomization::Patch;
use crate::resource::{Allowed, Resource};
use crate::resources::Resources;
use crate::schema::Schemas;
use crate::selector::Selector;

/// An entry of `patches`, read.
pub struct Prepared {
    content: Content,
    target: Option<Selector>,
    source: String,
}

enum Content {
    Merge(Vec<Resource>),
    Json(Value),
}

impl Prepared {
    pub fn of(patch: &Patch, root: &Root) -> Result<Self, Error> {
        let failed = |error: Error| {
            let config = shown(patch);
            error.within(format!("trouble configuring builtin PatchTransformer with config: `\n{config}`"))
        };
        Self::read(patch, root).map_err(failed)
    }

    fn read(patch: &Patch, root: &Root) -> Result<Self, Error> {
        let inline = patch.patch.trim();
        let (text, source) = match (inline, &*patch.path) {
            ("", "") => return Err(Error::new(format!("must specify one of patch and path in\n{}", shown(patch)))),
            ("", path) => {
                let read = root
                    .read(path)
                    .map_err(|error| error.within(format!("failed to get the patch file from path({path})")))?;
                (String::from_utf8_lossy(&read).into_owned(), format!("[path: {path:?}]"))
            }
            (text, "") => (text.to_owned(), format!("[patch: {text:?}]")),
            _ => return Err(Error::new(format!("patch and path can't be set at the same time\n{}", shown(patch)))),
        };
        let merges = documents::resources(text.as_bytes());
        let operations = operations(&text);
        let content = match (merges, operations) {
            (Ok(merges), Ok(_)) if merges.is_empty() => Content::Merge(merges),
            (Ok(_), Ok(_)) => {
                return Err(Error::new(format!("illegally qualifies as both an SM and JSON patch: {source}")));
            }
            (Ok(merges), Err(_)) => Content::Merge(merges),
            (Err(_), Ok(operations)) => Content::Json(operations),
            (Err(_), Err(_)) => return Err(Error::new(format!("unable to parse SM or JSON patch from {source}"))),
        };
        let mut prepared = Self { content, target: patch.target.clone(), source };
        if let (Some(options), Content::Merge(patches)) = (patch.options, &mut prepared.content) {
            let allows = Allowed { name_change: options.allow_name_change, kind_change: options.allow_kind_change };
            patches.iter_mut().for_each(|patch| patch.allows = allows);
        }
        Ok(prepared)
    }

    pub fn apply(&self, resources: &mut Resources, schemas: &Schemas) -> Result<(), Error> {
        match (&self.content, &self.target) {
            (Content::Merge(patches), None) => patches.iter().try_for_each(|patch| {
                let id = patch.original_id();
                let at = resources.find(&id).map_err(|error| {
                    error.within(format!("no resource matches strategic merge patch {:?}", id.to_string()))
                })?;
                resources.get_mut(at).patch(patch, schemas)
            }),
            (Content::Merge(patches), Some(target)) => match &patches[..] {
                [] => Ok(()),
                [patch] => merge_selected(resources, target, patch, schemas),
                _ => Err(Error::new(format!(
                    "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: {}",
                    self.source
                ))),
            },
            (Content::Json(_), None) => {
                Err(Error::new(format!("must specify a target for JSON patch {}", self.source)))
            }
            (Content::Json(operations), Some(target)) => json_selected(resources, target, operations, true),
        }
    }
}

/// The entry as upstream's messages show it.
fn shown(patch: &Patch) -> String {
    let mut fields = serde_json::Map::new();
    for (key, text) in [("path", &patch.path), ("patch", &patch.patch)] {
        if !text.is_empty() {
            fields.insert(key.to_owned(), Value::String(text.clone()));
        }
    }
    yaml::encode(&Value::Object(fields))
}

fn merge_selected(
    resources: &mut Resources,
    target: &Selector,
    patch: &Resource,
    schemas: &Schemas,
) -> Result<(), Error> {
    let matcher = target.compiled()?;
    let mut all = resources.take();
    for resource in all.iter_mut().filter(|resource| matcher.selects(resource)) {
        let mut patch = patch.clone();
        patch.value["apiVersion"] = Value::String(resource.text("apiVersion").to_owned());
        resource.patch(&patch, schemas)?;
    }
    all.retain(|resource| !resource.is_gone());
    resources.append_all(all)
}

/// Applies a JSON patch to all that a target selects.
pub fn json_selected(
    resources: &mut Resources,
    target: &Selector,
    operations: &Value,
    remembers: bool,
) -> Result<(), Error> {
    let matcher = target.compiled()?;
    for resource in resources.iter_mut() {
        if !matcher.selects(resource) {
            continue;
        }
        if remembers {
            resource.remember_id();
        }
        patch::json::apply(&mut resource.value, operations).map_err(|error| Error::new(error.to_string()))?;
    }
    Ok(())
}

/// A JSON patch in JSON or in YAML.
pub fn operations(text: &str) -> Result<Value, Error> {
    if text.is_empty() {
        return Err(Error::new("empty json patch operations"));
    }
    // What begins as a list in JSON is read as JSON alone.
    let read = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|error| Error::new(error.to_string()))?
    } else {
        yaml::decode(text.as_bytes(), Limits::default()).map_err(|error| Error::new(error.message))?.value
    };
    match &read {
        Value::Array(items) if items.iter().all(Value::is_object) => Ok(read),
        other => Err(Error::new(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            patch::json_type(other)
        ))),
    }
}

/// The deprecated lists of strategic merges: each entry is a patch, or the path of one.
pub fn strategic(resources: &mut Resources, entries: &[String], root: &Root, schemas: &Schemas) -> Result<(), Error> {
    let failed = |error: Error| {
        let lines: String =
            entries.iter().map(|entry| yaml::encode(&Value::Array(vec![Value::String(entry.clone())]))).collect();
        let transformer = "PatchStrategicMergeTransformer";
        error.within(format!("trouble configuring builtin {transformer} with config: `\npaths:\n{lines}`"))
    };
    for patch in strategic_patches(entries, root).map_err(failed)? {
        let at = resources.find(&patch.original_id())?;
        let mut patch = patch;
        let resource = resources.get_mut(at);
        patch.value["apiVersion"] = Value::String(resource.text("apiVersion").to_owned());
        resource.patch(&patch, schemas)?;
        resources.drop_gone();
    }
    Ok(())
}

fn strategic_patches(entries: &[String], root: &Root) -> Result<Vec<Resource>, Error> {
    let mut patches = Vec::new();
    for entry in entries {
        match documents::resources(entry.as_bytes()) {
            Ok(inline) => patches.extend(inline),
            Err(_) => {
                let content = root.read(entry)?;
                let read = documents::resources(&content);
                patches.extend(read.map_err(|error| Error::new(format!("{error} in File: {entry}")))?);
            }
        }
    }
    if patches.is_empty() {
        return Err(Error::new(format!("patch appears to be empty; files=[{}], Patch=", entries.join(" "))));
    }
    Ok(patches)
}

/// The deprecated list of JSON patches.
pub fn json6902(resources: &mut Resources, entry: &Patch, root: &Root) -> Result<(), Error> {
    let target = entry.target.clone().unwrap_or_default();
    if target.name.is_empty() {
        return Err(Error::new("must specify the target name"));
    }
    let text = match (&*entry.patch, &*entry.path) {
        ("", "") => return Err(Error::new("empty file path and empty jsonOp")),
        (text, "") => text.to_owned(),
        ("", path) => String::from_utf8_lossy(&root.read(path)?).into_owned(),
        _ => return Err(Error::new("must specify a file path or jsonOp, not both")),
    };
    let read = operations(&text).map_err(|error| error.within(format!("decoding {text}")))?;
    if read.as_array().is_some_and(Vec::is_empty) {
        return Err(Error::new(format!("patch appears to be empty; file={}, JsonOp={text}", entry.path)));
    }
    json_selected(resources, &target, &read, false)
}
