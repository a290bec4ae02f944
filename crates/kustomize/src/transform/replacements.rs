//! Replacements: the value of a field of one object is copied to fields of others.

use machinery::Value;
use machinery::codec::{Limits, yaml};

use crate::Error;
use crate::files::Root;
use crate::id::{Gvk, Id};
use crate::kustomization::{FieldOptions, ReplacementField, Source, Target, in_go_words, without_nulls};
use crate::paths;
use crate::resource::Resource;
use crate::resources::Resources;

const DEFAULT_PATH: &str = "metadata.name";

/// Reads the replacements that are in files of their own.
pub fn load(fields: &[ReplacementField], root: &Root) -> Result<Vec<ReplacementField>, Error> {
    let mut all = Vec::new();
    for field in fields {
        if field.path.is_empty() {
            all.push(field.clone());
            continue;
        }
        if field.source.is_some() || field.targets.as_ref().is_some_and(|targets| !targets.is_empty()) {
            return Err(Error::new("cannot specify both path and inline replacement"));
        }
        let content = root.read(&field.path)?;
        let value = yaml::decode(&content, Limits::default()).map_err(|error| Error::new(error.message))?.value;
        let read = |value: Value| {
            serde_json::from_value(without_nulls(value)).map_err(|error| Error::new(in_go_words(&error.to_string())))
        };
        match value {
            Value::Array(items) => {
                for item in items {
                    all.push(read(item)?);
                }
            }
            Value::Object(_) => all.push(read(value)?),
            _ => return Err(Error::new("unsupported replacement type encountered within replacement path: invalid")),
        }
    }
    Ok(all)
}

pub fn apply(resources: &mut Resources, replacements: &[ReplacementField]) -> Result<(), Error> {
    for replacement in replacements {
        let (Some(targets), true) =
            (&replacement.targets, replacement.source.is_some() || replacement.source_value.is_some())
        else {
            return Err(Error::new("replacements must specify a source and at least one target"));
        };
        let value = match (&replacement.source_value, &replacement.source) {
            (Some(_), Some(_)) => {
                return Err(Error::new("value and resource selectors are mutually exclusive"));
            }
            (Some(text), _) => Value::String(text.clone()),
            (None, Some(source)) => read(resources, source)?,
            (None, None) => continue,
        };
        for target in targets {
            copy(resources, &value, target)?;
        }
    }
    Ok(())
}

fn source_id(source: &Source) -> Id {
    let gvk = Gvk { group: source.group.clone(), version: source.version.clone(), kind: source.kind.clone() };
    Id { gvk, name: source.name.clone(), namespace: source.namespace.clone() }
}

fn read(resources: &Resources, source: &Source) -> Result<Value, Error> {
    let id = source_id(source);
    let shown = || {
        let options = source.options.as_ref().filter(|options| !options.delimiter.is_empty() || options.create);
        let options =
            options.map(|options| format!("{}({}), create={}", options.delimiter, options.index, options.create));
        let path = Some(source.field_path.clone()).filter(|path| !path.is_empty());
        [Some(id.to_string()), path, options].into_iter().flatten().collect::<Vec<_>>().join(":")
    };
    let mut found =
        resources.iter().filter(|resource| resource.all_ids().iter().any(|known| known.is_selected_by(&id)));
    let resource = found.next().ok_or_else(|| Error::new(format!("nothing selected by {}", shown())))?;
    if found.next().is_some() {
        return Err(Error::new(format!("multiple matches for selector {}", shown())));
    }
    let path = if source.field_path.is_empty() { DEFAULT_PATH } else { &source.field_path };
    let value = paths::lookup(&resource.value, &paths::steps(path)).filter(|value| !is_empty(value));
    let value =
        value.ok_or_else(|| Error::new(format!("fieldPath `{path}` is missing for replacement source {id}")))?;
    match source.options.as_ref().filter(|options| !options.delimiter.is_empty()) {
        None => Ok(value.clone()),
        Some(options) => part(value, options),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// One of the parts between delimiters.
fn part(value: &Value, options: &FieldOptions) -> Result<Value, Error> {
    if value.is_object() || value.is_array() {
        return Err(Error::new("delimiter option can only be used with scalar nodes"));
    }
    let text = paths::plain(value);
    let parts: Vec<&str> = text.split(&options.delimiter).collect();
    let index = usize::try_from(options.index).ok();
    let found = index.and_then(|index| parts.get(index));
    let found = found
        .ok_or_else(|| Error::new(format!("options.index {} is out of bounds for value {text}", options.index)))?;
    Ok(retyped(found, value))
}

fn copy(resources: &mut Resources, value: &Value, target: &Target) -> Result<(), Error> {
    let Some(select) = &target.select else {
        return Err(Error::new("target must specify resources to select"));
    };
    let matcher = select.compiled()?;
    let rejects =
        target.reject.iter().map(|reject| Ok((reject, reject.compiled()?))).collect::<Result<Vec<_>, Error>>()?;
    for resource in resources.iter_mut() {
        let ids = resource.all_ids();
        let rejected = rejects.iter().any(|(reject, matcher)| {
            let by_labels = reject.has_label_selectors() && matcher.labels(resource);
            by_labels || (!reject.names_nothing() && ids.iter().any(|id| matcher.id(id)))
        });
        if matcher.labels(resource) && !rejected && ids.iter().any(|id| matcher.id(id)) {
            set(resource, value, target)?;
        }
    }
    Ok(())
}

fn set(resource: &mut Resource, value: &Value, target: &Target) -> Result<(), Error> {
    let default = [DEFAULT_PATH.to_owned()];
    let fields = if target.field_paths.is_empty() { &default[..] } else { &target.field_paths };
    let create = target.options.as_ref().is_some_and(|options| options.create);
    for path in fields {
        let steps = paths::steps(path);
        if structured(&mut resource.value, &steps, value, create) {
            continue;
        }
        let missing = || {
            let or_create = if create { " or create" } else { "" };
            format!("unable to find{or_create} field {path:?} in replacement target")
        };
        let put = &mut |field: &mut Value| put(field, value, target.options.as_ref());
        let count = paths::each(&mut resource.value, &steps, create.then_some(value), put).map_err(|error| {
            if error.to_string().starts_with("delimiter") { error } else { error.within(missing()) }
        })?;
        if count == 0 {
            return Err(Error::new(missing()));
        }
    }
    Ok(())
}

fn put(field: &mut Value, value: &Value, options: Option<&FieldOptions>) -> Result<(), Error> {
    let is_scalar = |value: &Value| !value.is_object() && !value.is_array();
    let Some(options) = options.filter(|options| !options.delimiter.is_empty()) else {
        *field =
            if is_scalar(field) && is_scalar(value) { retyped(&paths::plain(value), field) } else { value.clone() };
        return Ok(());
    };
    if !is_scalar(field) {
        return Err(Error::new("delimiter option can only be used with scalar nodes"));
    }
    let old = if field.is_null() { String::new() } else { paths::plain(field) };
    let mut parts: Vec<String> = old.split(&options.delimiter).map(str::to_owned).collect();
    let new = paths::plain(value);
    match usize::try_from(options.index) {
        Err(_) => parts.insert(0, new),
        Ok(index) if index >= parts.len() => parts.push(new),
        Ok(index) => parts[index] = new,
    }
    *field = retyped(&parts.join(&options.delimiter), field);
    Ok(())
}

/// A text as a value of the type that another one has.
fn retyped(text: &str, like: &Value) -> Value {
    if like.is_string() {
        return Value::String(text.to_owned());
    }
    serde_json::from_str(text)
        .ok()
        .filter(|value: &Value| !value.is_object() && !value.is_array())
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Sets a value within JSON or YAML that is the text of a field. Whether there was such a text, and such a place in it.
fn structured(object: &mut Value, steps: &[String], value: &Value, create: bool) -> bool {
    for at in 1..steps.len() {
        let Some(Value::String(text)) = paths::lookup(object, &steps[..at]).cloned() else { continue };
        let Ok(decoded) = yaml::decode_core(text.as_bytes(), Limits::default()) else { continue };
        let mut inner = decoded.value;
        let put = &mut |field: &mut Value| put(field, value, None);
        let done = paths::each(&mut inner, &steps[at..], create.then_some(value), put);
        if !done.is_ok_and(|count| count > 0) {
            return false;
        }
        let written = written(&inner, &text);
        let _ = paths::each(object, &steps[..at], None, &mut |field| {
            *field = Value::String(written.clone());
            Ok(())
        });
        return true;
    }
    false
}

/// In the form that the text had: JSON on one line or on several, or YAML.
fn written(value: &Value, old: &str) -> String {
    if !old.trim_start().starts_with(['{', '[']) {
        return yaml::encode(value).trim().to_owned();
    }
    let pretty = old.contains('\n') && old.contains("  ");
    let written = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    written.unwrap_or_default()
}
