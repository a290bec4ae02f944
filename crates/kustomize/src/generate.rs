//! Config maps and secrets made from files, lines and literals, and the hashes of what is in them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::Value;
use serde_json::{Map, json};

use crate::Error;
use crate::files::Root;
use crate::kustomization::DataArgs;
use crate::resource::{Behavior, Resource};

type Pairs = BTreeMap<String, Vec<u8>>;

pub fn config_map(root: &Root, args: &DataArgs) -> Result<Resource, Error> {
    let mut value = skeleton("ConfigMap", args)?;
    for (key, content) in pairs(root, args)? {
        let (field, text) = match String::from_utf8(content) {
            Ok(text) => ("data", text),
            Err(binary) => ("binaryData", wrapped(binary.as_bytes())),
        };
        machinery::value::object_mut(&mut value, field).insert(key, Value::String(text));
    }
    Ok(finished(value, args))
}

pub fn secret(root: &Root, args: &DataArgs) -> Result<Resource, Error> {
    let mut value = skeleton("Secret", args)?;
    let kind = if args.secret_type.is_empty() { "Opaque" } else { &args.secret_type };
    value["type"] = json!(kind);
    let data: Map<String, Value> =
        pairs(root, args)?.into_iter().map(|(key, content)| (key, Value::String(wrapped(&content)))).collect();
    value["data"] = Value::Object(data);
    Ok(finished(value, args))
}

/// Base64, in lines of 70 letters where it is longer, as upstream writes it.
fn wrapped(content: &[u8]) -> String {
    const LINE: usize = 70;
    let encoded = STANDARD.encode(content);
    if encoded.len() < LINE {
        return encoded;
    }
    encoded.as_bytes().chunks(LINE).map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect()
}

fn skeleton(kind: &str, args: &DataArgs) -> Result<Value, Error> {
    if args.name.is_empty() {
        return Err(Error::new("a configmap must have a name"));
    }
    let mut value = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": args.name}});
    if !args.namespace.is_empty() {
        value["metadata"]["namespace"] = json!(args.namespace);
    }
    Ok(value)
}

fn finished(mut value: Value, args: &DataArgs) -> Resource {
    if let Some(options) = &args.options {
        for (field, texts) in [("labels", &options.labels), ("annotations", &options.annotations)] {
            if !texts.is_empty() {
                value["metadata"][field] = json!(texts);
            }
        }
        if options.immutable {
            value["immutable"] = json!(true);
        }
    }
    let needs_hash = args.options.as_ref().is_none_or(|options| !options.disable_name_suffix_hash);
    let mut resource = Resource::new(value);
    resource.needs_hash = needs_hash;
    resource.behavior = Behavior::named(&args.behavior);
    resource
}

fn pairs(root: &Root, args: &DataArgs) -> Result<Pairs, Error> {
    let failed = |error: Error| error.within("loading KV pairs");
    let mut all = env_files(root, &args.envs)
        .map_err(|error| failed(error.within(format!("env source files: [{}]", args.envs.join(" ")))))?;
    let literals = args.literals.iter().map(|source| literal(source)).collect::<Result<Vec<_>, _>>();
    all.extend(
        literals.map_err(|error| failed(error.within(format!("literal sources [{}]", args.literals.join(" ")))))?,
    );
    let files = args.files.iter().map(|source| file(root, source)).collect::<Result<Vec<_>, _>>();
    all.extend(files.map_err(|error| failed(error.within(format!("file sources: [{}]", args.files.join(" ")))))?);
    let mut found = Pairs::new();
    for (key, content) in all {
        if found.contains_key(&key) {
            return Err(Error::new(format!("configmap {} illegally repeats the key `{key}`", args.name)));
        }
        found.insert(key, content);
    }
    Ok(found)
}

fn literal(source: &str) -> Result<(String, Vec<u8>), Error> {
    let (key, text) = source
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| Error::new(format!("invalid literal source {source}, expected key=value")))?;
    let quoted = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    Ok((key.to_owned(), quoted.unwrap_or(text).as_bytes().to_vec()))
}

fn file(root: &Root, source: &str) -> Result<(String, Vec<u8>), Error> {
    let parts: Vec<&str> = source.split('=').collect();
    let (key, path) = match parts[..] {
        [path] => (path.rsplit('/').next().unwrap_or(path), path),
        ["", path] => return Err(Error::new(format!("missing key name for file path {path:?} in source {source:?}"))),
        [key, ""] => return Err(Error::new(format!("missing file path for key name {key:?} in source {source:?}"))),
        [key, path] => (key, path),
        _ => return Err(Error::new(format!("source {source:?} key name or file path contains '='"))),
    };
    Ok((key.to_owned(), root.read(path)?))
}

fn env_files(root: &Root, paths: &[String]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut all = Vec::new();
    for path in paths {
        let content = root.read(path)?;
        let text = String::from_utf8(content)
            .map_err(|error| Error::new(format!("line has invalid utf8 bytes : {}", error)))?;
        for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            if !key.is_empty() {
                all.push((key.to_owned(), value.as_bytes().to_vec()));
            }
        }
    }
    Ok(all)
}

/// Ten letters that change whenever the content does.
pub fn hash(resource: &Value) -> String {
    let part = |field: &str| match resource.get(field) {
        None => json!(""),
        Some(value) => value.clone(),
    };
    // Upstream means to hash the name as well, and looks for it where it is not.
    let name = "";
    let kind = machinery::value::text(resource, "kind");
    let mut content = match kind {
        "ConfigMap" => json!({"kind": kind, "name": name, "data": part("data")}),
        "Secret" => json!({"kind": kind, "type": part("type"), "name": name, "data": part("data")}),
        _ => resource.clone(),
    };
    for (of, field) in [("ConfigMap", "binaryData"), ("Secret", "stringData")] {
        if let Some(map) = resource.get(field).filter(|map| map.is_object() && kind == of) {
            content[field] = map.clone();
        }
    }
    content_hash(&content)
}

/// The first ten hexadecimal digits of the hash of what Go writes for a value, in letters that make no words. `kubectl create --append-hash`
/// names objects by it, too.
pub fn content_hash(content: &Value) -> String {
    let text = machinery::codec::json::html_safe(&content.to_string());
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let hex: String = digest.as_ref().iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    hex.chars()
        .map(|digit| match digit {
            '0' => 'g',
            '1' => 'h',
            '3' => 'k',
            'a' => 'm',
            'e' => 't',
            other => other,
        })
        .collect()
}
