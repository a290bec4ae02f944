//! Objects in files, directories and on standard input: YAML or JSON, several in one, lists taken apart.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use machinery::codec::{Limits, yaml};
use machinery::status::go_quote;
use serde_json::Value;

use super::{Builder, Found, Info, info, settle, url};
use crate::command::Environment;
use crate::discovery::Mapping;
use crate::error::{Failure, Outcome, os_error};
use crate::session::Session;
use crate::streams::Streams;

const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];
/// The largest input that is read.
const MOST: u64 = 512 << 20;

/// One text with where it came from.
#[derive(Debug)]
struct Source {
    name: String,
    text: Vec<u8>,
}

/// Refuses paths that lead nowhere, which is told before anything else.
pub fn are_there(builder: &Builder, session: &Session) -> Outcome {
    for name in builder.filenames.iter().filter(|name| *name != "-" && !name.contains("://")) {
        paths(name, builder.recursive, &session.environment)?;
    }
    Ok(())
}

pub async fn infos(builder: &Builder, session: &Session, streams: &mut Streams) -> Outcome<Found> {
    let mut found = Found::default();
    let sources = if builder.kustomize.is_empty() {
        sources(&builder.filenames, builder.recursive, &session.environment, streams).await?
    } else {
        let text = kustomized(&builder.kustomize, kustomize::Options::default(), &session.environment, streams)?;
        vec![Source { name: builder.kustomize.clone(), text: text.into_bytes() }]
    };
    let mut documents = 0;
    let mut lists = false;
    for source in &sources {
        let mut errors = Vec::new();
        for document in split(&source.text) {
            match decode(document, &source.name, builder.validates) {
                Ok(None) => {}
                Ok(Some(object)) => {
                    documents += 1;
                    lists |= crate::print::items(&object).is_some();
                    for item in flatten(object) {
                        match one(builder, session, item, &source.name).await {
                            Ok(info) => found.infos.push(info),
                            Err(error) => errors.push(error),
                        }
                    }
                }
                Err(error) => {
                    errors.push(error);
                    break;
                }
            }
        }
        // What is wrong with one file is one error.
        found.errors.extend(Failure::together(errors));
    }
    found.singular = documents == 1 && !lists;
    Ok(found)
}

/// The objects of a text, each with where it would be.
pub async fn from_text(session: &Session, text: &[u8], name: &str) -> Outcome<Vec<Info>> {
    let builder = Builder { namespace: session.namespace()?, ..Builder::default() };
    let mut infos = Vec::new();
    for document in split(text) {
        if let Some(object) = decode(document, name, false)? {
            for item in flatten(object) {
                infos.push(one(&builder, session, item, name).await?);
            }
        }
    }
    Ok(infos)
}

async fn one(builder: &Builder, session: &Session, object: Value, source: &str) -> Outcome<Info> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let mapping = if builder.local { local(&version, &kind) } else { session.mapping_of_kind(&version, &kind).await? };
    let name = machinery::value::text(&object, "metadata.name").to_owned();
    let namespace = machinery::value::text(&object, "metadata.namespace").to_owned();
    let Some(mapping) = mapping else {
        return Err(Failure::Message(format!(
            "resource mapping not found for name: {} namespace: {} from {}: no matches for kind {} in version {}\nensure CRDs are installed first",
            go_quote(&name),
            go_quote(&namespace),
            go_quote(source),
            go_quote(&kind),
            go_quote(&version)
        )));
    };
    let mut info = info(&mapping, object, source);
    // Files that stay local stay as they are.
    if builder.local {
        return Ok(info);
    }
    settle(&mut info, &builder.namespace, builder.enforce_namespace)?;
    Ok(info)
}

/// What is known of a kind without a server.
pub fn local(api_version: &str, kind: &str) -> Option<Mapping> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let known = facts::kind(group, version, kind);
    Some(Mapping {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: known.map_or_else(|| kind.to_lowercase() + "s", |known| known.plural.to_string()),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        namespaced: known.is_none_or(|known| known.namespaced),
        ..Mapping::default()
    })
}

/// What a kustomization makes.
pub fn kustomized(
    directory: &str,
    options: kustomize::Options,
    environment: &Environment,
    streams: &mut Streams,
) -> Outcome<String> {
    let built = kustomize::build(&environment.path(directory), options, &mut |line| streams.error(line));
    Ok(built.map_err(|error| Failure::Message(error.to_string()))?.yaml)
}

/// Reads what was named.
async fn sources(
    names: &[String],
    recursive: bool,
    environment: &Environment,
    streams: &mut Streams,
) -> Outcome<Vec<Source>> {
    let mut sources = Vec::new();
    for name in names {
        if name == "-" {
            if sources.iter().any(|source: &Source| source.name == "STDIN") {
                return Err(Failure::message("standard input cannot be used for multiple arguments"));
            }
            let mut text = Vec::new();
            (&mut *streams.input).take(MOST).read_to_end(&mut text)?;
            sources.push(Source { name: "STDIN".to_owned(), text });
        } else if name.starts_with("http://") || name.starts_with("https://") {
            sources.push(Source { name: name.clone(), text: url::read(name, MOST).await? });
        } else {
            for path in paths(name, recursive, environment)? {
                let shown = path.0;
                let text =
                    std::fs::read(&path.1).map_err(|error| Failure::Message(os_error("open", &shown, &error)))?;
                sources.push(Source { name: shown, text });
            }
        }
    }
    Ok(sources)
}

/// The files of a name: itself, what a pattern matches, or what is in a directory. Each with how it is called in messages.
fn paths(name: &str, recursive: bool, environment: &Environment) -> Outcome<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    let real = environment.path(name);
    if !real.exists() && name.contains(['*', '?', '[']) {
        let mut matches = glob(&real);
        matches.sort();
        for path in matches {
            let shown = path.strip_prefix(&environment.directory).unwrap_or(&path).display().to_string();
            expand(&shown, &path, recursive, &mut found)?;
        }
    } else {
        expand(name, &real, recursive, &mut found)?;
    }
    if found.is_empty() && !real.is_dir() {
        return Err(Failure::Message(format!("the path {} does not exist", go_quote(name))));
    }
    if found.is_empty() {
        return Err(Failure::Message(format!(
            "error reading [{name}]: recognized file extensions are [.json .yaml .yml]"
        )));
    }
    Ok(found)
}

fn expand(shown: &str, path: &Path, recursive: bool, found: &mut Vec<(String, PathBuf)>) -> Outcome {
    if !path.exists() {
        return Err(Failure::Message(format!("the path {} does not exist", go_quote(shown))));
    }
    if !path.is_dir() {
        found.push((shown.to_owned(), path.to_owned()));
        return Ok(());
    }
    let read = std::fs::read_dir(path).map_err(|error| Failure::Message(os_error("open", shown, &error)))?;
    let mut entries: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let shown = format!("{}/{name}", shown.trim_end_matches('/'));
        let known = entry.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known));
        if entry.is_dir() {
            if recursive {
                expand(&shown, &entry, recursive, found)?;
            }
        } else if known {
            found.push((shown, entry));
        }
    }
    Ok(())
}

/// The files that a pattern matches, where the pattern is in the file's name.
fn glob(pattern: &Path) -> Vec<PathBuf> {
    let Some(directory) = pattern.parent() else { return Vec::new() };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let wanted = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let fits = |path: &PathBuf| matches(&wanted, &path.file_name().unwrap_or_default().to_string_lossy());
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(fits).collect()
}

/// Whether a name fits a pattern of `*`, `?` and `[a-z]`.
fn matches(pattern: &str, name: &str) -> bool {
    let mut expression = "^".to_owned();
    let mut set = false;
    for letter in pattern.chars() {
        match letter {
            '*' if !set => expression.push_str("[^/]*"),
            '?' if !set => expression.push_str("[^/]"),
            '[' if !set => {
                set = true;
                expression.push('[');
            }
            ']' if set => {
                set = false;
                expression.push(']');
            }
            letter if set => expression.push(letter),
            letter => expression.push_str(&regex::escape(&letter.to_string())),
        }
    }
    expression.push('$');
    regex::Regex::new(&expression).is_ok_and(|expression| expression.is_match(name))
}

/// The documents of a stream: JSON values one after the other, or YAML separated by `---`.
pub fn split(text: &[u8]) -> Vec<&[u8]> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        let mut values = serde_json::Deserializer::from_slice(text).into_iter::<&serde_json::value::RawValue>();
        let mut documents = Vec::new();
        let mut clean = true;
        for value in values.by_ref() {
            match value {
                Ok(raw) => documents.push(raw.get().as_bytes()),
                Err(_) => clean = false,
            }
        }
        // Braces begin YAML's flow style, too.
        if clean {
            return documents;
        }
    }
    let mut documents = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < text.len() {
        let end = text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| at + end + 1);
        let line = &text[at..end];
        let separator = line.starts_with(b"---") && line[3..].iter().all(u8::is_ascii_whitespace);
        if separator {
            documents.push(&text[start..at]);
            start = end;
        }
        at = end;
    }
    documents.push(&text[start..]);
    documents
}

/// One object; nothing for an empty document.
fn decode(document: &[u8], source: &str, validates: bool) -> Outcome<Option<Value>> {
    let cut = |error: serde_json::Error| error.is_eof();
    if document.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<Value>(document).is_err_and(cut) {
        return Err(Failure::Message(format!("error parsing {source}: unexpected EOF")));
    }
    let parsed = yaml::decode(document, Limits::default());
    let object = parsed.map_err(|error| Failure::Message(format!("error parsing {source}: {}", error.message)))?.value;
    if object.is_null() {
        return Ok(None);
    }
    let missing = |what: &str| {
        let data = machinery::codec::json::html_safe(&object.to_string());
        Failure::Message(format!("unable to decode {}: Object '{what}' is missing in '{data}'", go_quote(source)))
    };
    let invalid = |why: &str| {
        Failure::Message(format!(
            "error validating {}: error validating data: {why}; if you choose to ignore these errors, turn validation off with --validate=false",
            go_quote(source)
        ))
    };
    if !object.is_object() && validates {
        return Err(invalid("invalid object to validate"));
    }
    if !object.is_object() {
        return Err(Failure::Message(format!(
            "unable to decode {}: json: cannot unmarshal {} into Go value of type struct {{ Kind string \"json:\\\"kind\\\"\"; APIVersion string \"json:\\\"apiVersion\\\"\" }}",
            go_quote(source),
            machinery::patch::json_type(&object)
        )));
    }
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let unset: Vec<String> = ["apiVersion", "kind"]
        .iter()
        .filter(|name| text(name).is_empty())
        .map(|name| format!("{name} not set"))
        .collect();
    if validates && !unset.is_empty() {
        let why = if unset.len() > 1 { format!("[{}]", unset.join(", ")) } else { unset.concat() };
        return Err(invalid(&why));
    }
    if text("kind").is_empty() {
        return Err(missing("Kind"));
    }
    if text("apiVersion").is_empty() {
        return Err(missing("apiVersion"));
    }
    match no_map_of_texts(&object) {
        Some(why) => Err(Failure::Message(format!("unable to decode {}: {why}", go_quote(source)))),
        None => Ok(Some(object)),
    }
}

/// What is wrong with labels and annotations: a value without quotes that YAML takes for something else than a text.
fn no_map_of_texts(object: &Value) -> Option<String> {
    ["labels", "annotations"].iter().find_map(|field| {
        let map = object.get("metadata")?.get(field)?.as_object()?;
        let odd = map.values().find(|value| !value.is_string() && !value.is_null())?;
        let found = machinery::patch::json_type(odd);
        Some(format!("json: cannot unmarshal {found} into Go struct field ObjectMeta.metadata.{field} of type string"))
    })
}

/// The items of a list, or the object itself.
fn flatten(mut object: Value) -> Vec<Value> {
    if crate::print::items(&object).is_none() {
        return vec![object];
    }
    let Some(Value::Array(items)) = object.get_mut("items").map(Value::take) else { return Vec::new() };
    let kind = object["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
    let version = object["apiVersion"].clone();
    let own = !kind.is_empty();
    let typed = |mut item: Value| {
        if let (true, Value::Object(fields)) = (own, &mut item) {
            fields.entry("kind").or_insert_with(|| kind.as_str().into());
            fields.entry("apiVersion").or_insert_with(|| version.clone());
        }
        item
    };
    items.into_iter().map(typed).flat_map(flatten).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_split_into_documents() {
        for (text, expected) in [
            ("a: 1\n---\nb: 2\n", 2),
            ("---\na: 1\n", 2),
            ("{\"a\":1}\n{\"b\":2}", 2),
            ("{a: 1}\n---\n{b: 2}\n", 2),
            ("a: |\n  ---x\n  y\n", 1),
        ] {
            assert_eq!(split(text.as_bytes()).len(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused_with_upstreams_words() {
        let error = |text: &str| decode(text.as_bytes(), "f.yaml", false).err().map(|error| error.bare());
        assert_eq!(
            error("a: <b>").as_deref(),
            Some("unable to decode \"f.yaml\": Object 'Kind' is missing in '{\"a\":\"\\u003cb\\u003e\"}'")
        );
        assert!(error("kind: Pod").expect("an error").contains("Object 'apiVersion' is missing"));
        assert!(error("[").expect("an error").starts_with("error parsing f.yaml: error converting YAML to JSON: "));
        assert!(matches!(decode(b"# nothing\n", "f", true), Ok(None)));
        for (metadata, expected) in [
            ("labels: {a: true}", Some("bool into Go struct field ObjectMeta.metadata.labels")),
            ("annotations: {a: 1}", Some("number into Go struct field ObjectMeta.metadata.annotations")),
            ("labels: {a: '1', b: null}", None),
        ] {
            let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{{metadata}}}}}");
            let expected = expected
                .map(|what| format!("unable to decode \"f.yaml\": json: cannot unmarshal {what} of type string"));
            assert_eq!(error(&text), expected, "{metadata}");
        }
        assert_eq!(error("{\"a\": {\"b\": 1}").as_deref(), Some("error parsing f.yaml: unexpected EOF"));
        assert_eq!(
            decode(b"hello", "f.yaml", true).err().map(|error| error.bare()).as_deref(),
            Some(
                "error validating \"f.yaml\": error validating data: invalid object to validate; if you choose to ignore these errors, turn validation off with --validate=false"
            )
        );
    }

    #[test]
    fn directories_are_read_in_order_and_only_deep_where_asked() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("sub")).expect("a directory");
        for name in ["b.yaml", "a.json", "c.txt", "sub/d.yml"] {
            std::fs::write(directory.path().join(name), "").expect("a file");
        }
        let environment = Environment { directory: directory.path().to_owned(), ..Environment::default() };
        let names = |name: &str, recursive| -> Vec<String> {
            paths(name, recursive, &environment).expect("files").into_iter().map(|(shown, _)| shown).collect()
        };
        assert_eq!(names(".", false), ["./a.json", "./b.yaml"]);
        assert_eq!(names("./", true), ["./a.json", "./b.yaml", "./sub/d.yml"]);
        assert_eq!(names("*.yaml", false), ["b.yaml"]);
        assert!(paths("missing", false, &environment).is_err());
    }
}
