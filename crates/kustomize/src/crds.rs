//! What OpenAPI definitions of custom resources say about their fields: which hold labels, annotations or names.

use machinery::codec::{Limits, yaml};
use machinery::{Value, value};

use crate::Error;
use crate::config::{Config, NameReference};
use crate::fields::{FieldSpec, merge};
use crate::files::Root;

/// How deep definitions may refer to each other; upstream follows a circle for ever.
const DEEPEST: usize = 64;

pub fn config(root: &Root, paths: &[String]) -> Result<Config, Error> {
    let mut config = Config::default();
    for path in paths {
        let content = root.read(path)?;
        let decoded = yaml::decode(&content, Limits::default()).map_err(|error| {
            Error::new(error.message).within(format!("unable to parse open API definition from '{path}'"))
        })?;
        for (name, definition) in decoded.value.as_object().into_iter().flatten() {
            let properties =
                value::at(definition, "Schema.properties").or_else(|| schema(definition)?.get("properties"));
            let is_object = ["kind", "apiVersion", "metadata"]
                .iter()
                .all(|field| properties.is_some_and(|properties| properties.get(*field).is_some()));
            if is_object {
                let kind = name.rsplit('.').next().unwrap_or(name);
                load(&mut config, kind, &decoded.value, name, &[])?;
            }
        }
    }
    Ok(config)
}

fn schema(definition: &Value) -> Option<&Value> {
    definition.get("Schema").or_else(|| definition.get("schema"))
}

fn load(config: &mut Config, kind: &str, all: &Value, name: &str, path: &[&str]) -> Result<(), Error> {
    if path.len() > DEEPEST {
        return Err(Error::new(format!("definitions of {kind} refer to each other without an end")));
    }
    let properties = all.get(name).and_then(schema).and_then(|schema| schema.get("properties"));
    for (property, about) in properties.and_then(Value::as_object).into_iter().flatten() {
        let path: Vec<&str> = path.iter().copied().chain([property.as_str()]).collect();
        let says = |key: &str| about.get(key).and_then(Value::as_str);
        let spec = |path: &[&str]| FieldSpec { kind: kind.to_owned(), path: path.join("/"), ..FieldSpec::default() };
        if says("x-kubernetes-annotation").is_some() {
            merge(&mut config.common_annotations, &[spec(&path)])?;
        }
        if says("x-kubernetes-label-selector").is_some() {
            merge(&mut config.common_labels, &[spec(&path)])?;
        }
        if says("x-kubernetes-identity").is_some() {
            merge(&mut config.name_prefix, &[spec(&path)])?;
        }
        let referred = (says("x-kubernetes-object-ref-api-version"), says("x-kubernetes-object-ref-kind"));
        if let (Some(version), Some(target)) = referred {
            let key = says("x-kubernetes-object-ref-name-key").unwrap_or("name");
            let at: Vec<&str> = path.iter().copied().chain([key]).collect();
            config.refer(&NameReference {
                group: String::new(),
                version: version.to_owned(),
                kind: target.to_owned(),
                field_specs: vec![spec(&at)],
            })?;
        }
        if let Some(reference) = says("$ref") {
            load(config, kind, all, reference, &path)?;
        }
    }
    Ok(())
}
