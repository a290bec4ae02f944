//! Which objects a command is about: files, standard input, names, types and selectors become [`Info`]s.

pub mod arguments;
pub mod files;
pub mod helper;
mod url;

pub use arguments::Target;

use futures::StreamExt as _;
use futures::future::join_all;
use machinery::selector::LabelSelector;
use machinery::status::go_quote;
use serde_json::Value;

use crate::api::{Api, JSON};
use crate::discovery::{self, Mapping, query};
use crate::error::{Failure, Outcome};
use crate::flags::Given;
use crate::session::Session;
use crate::streams::Streams;

/// How many objects of files are read at once.
const MOST_READS: usize = 16;

/// One object, and where it is.
#[derive(Debug, Clone)]
pub struct Info {
    pub mapping: Mapping,
    pub namespace: String,
    pub name: String,
    /// The file it came from; empty for one that the server has.
    pub source: String,
    pub object: Value,
}

impl Info {
    pub fn path(&self) -> String {
        self.mapping.path(&self.namespace, &self.name, "")
    }

    /// `deployment.apps/name`.
    pub fn named(&self) -> String {
        format!("{}/{}", self.mapping.kind_name(), self.name)
    }

    pub fn resource_version(&self) -> &str {
        machinery::value::text(&self.object, "metadata.resourceVersion")
    }

    /// Takes over what the server answered.
    pub fn refresh(&mut self, object: Value) {
        let text = |path: &str| machinery::value::text(&object, path).to_owned();
        let (name, namespace) = (text("metadata.name"), text("metadata.namespace"));
        if !name.is_empty() {
            self.name = name;
        }
        if !namespace.is_empty() {
            self.namespace = namespace;
        }
        self.object = object;
    }
}

/// What to look for.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    pub filenames: Vec<String>,
    /// A directory with a kustomization, instead of files.
    pub kustomize: String,
    pub recursive: bool,
    pub arguments: Vec<String>,
    pub selector: String,
    pub field_selector: String,
    pub all_namespaces: bool,
    pub namespace: String,
    /// Objects of another namespace than this one are refused.
    pub enforce_namespace: bool,
    /// A type without a name means all of its objects.
    pub types_mean_all: bool,
    /// `--all` was given.
    pub all: bool,
    pub chunk: i64,
    pub subresource: String,
    /// As it was at this moment, which the server reads; now if it is empty.
    pub at: String,
    /// Objects from files are read from the server, too.
    pub latest: bool,
    /// No server is asked: kinds that are built in are known anyway.
    pub local: bool,
    /// What does not say its kind and version is refused as invalid.
    pub validates: bool,
    /// The first object that is missing ends it: only those before it are found.
    pub ends_at_first: bool,
}

#[derive(Debug, Default)]
pub struct Found {
    pub infos: Vec<Info>,
    pub errors: Vec<Failure>,
    /// Whether one object was asked for, by its name or as the only one of a file.
    pub singular: bool,
}

impl Found {
    /// The objects, if all of them were found.
    pub fn all(self) -> Outcome<Vec<Info>> {
        Failure::all(self.errors)?;
        Ok(self.infos)
    }
}

impl Builder {
    /// With what the flags that many commands share say.
    pub fn from_flags(session: &Session, flags: &Given) -> Outcome<Self> {
        let local = flags.is("local");
        if flags.given("kustomize").is_some() && !flags.list("filename").is_empty() {
            return Err(Failure::message("only one of -f or -k can be specified"));
        }
        if flags.given("kustomize").is_some() && flags.is("recursive") {
            return Err(Failure::message("the -k flag can't be used with -f or -R"));
        }
        let (namespace, enforce_namespace) = match session.connection() {
            Ok(connection) => (connection.namespace.clone(), connection.namespace_given),
            // Whoever works on files alone needs no configuration.
            Err(_) if local => (flags.given("namespace").unwrap_or("default").to_owned(), flags.changed("namespace")),
            Err(error) => return Err(error),
        };
        Ok(Self {
            filenames: flags.list("filename"),
            kustomize: flags.text("kustomize").to_owned(),
            recursive: flags.is("recursive"),
            arguments: flags.arguments.clone(),
            selector: flags.text("selector").to_owned(),
            field_selector: flags.text("field-selector").to_owned(),
            all_namespaces: flags.is("all-namespaces"),
            namespace,
            enforce_namespace,
            types_mean_all: flags.is("all"),
            all: flags.is("all"),
            chunk: flags.int("chunk-size"),
            subresource: flags.text("subresource").to_owned(),
            at: flags.text("at").to_owned(),
            latest: false,
            local,
            validates: flags.knows("validate") && helper::validation(flags)? != "Ignore",
            ends_at_first: false,
        })
    }

    /// The label query, for what is in files.
    pub fn label_selector(&self) -> Outcome<LabelSelector> {
        LabelSelector::parse(&self.selector).map_err(|why| {
            let selector = go_quote(&self.selector);
            Failure::Message(format!("the provided selector {selector} is not valid: {why}"))
        })
    }

    /// Whether objects are named on the command line alone.
    pub fn has_no_files(&self) -> bool {
        self.filenames.is_empty() && self.kustomize.is_empty()
    }

    /// Finds the objects and reads them.
    pub async fn infos(&self, session: &Session, streams: &mut Streams) -> Outcome<Found> {
        let mut found = if !self.has_no_files() {
            if !self.arguments.is_empty() {
                files::are_there(self, session)?;
                return Err(Failure::message(
                    "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
                ));
            }
            files::infos(self, session, streams).await?
        } else {
            let targets = arguments::targets(self, session).await?;
            let singular = targets.len() == 1 && targets[0].name.is_some();
            let mut found = Found { singular, ..Found::default() };
            let fetched = join_all(targets.iter().map(|target| self.fetch(session, target))).await;
            for answer in fetched {
                match answer {
                    Ok(infos) => found.infos.extend(infos),
                    Err(error) => found.errors.push(error),
                }
                if self.is_over(&found.errors) {
                    break;
                }
            }
            return Ok(found);
        };
        if self.latest && !self.local {
            let mut fresh = Vec::new();
            let api = session.api()?;
            let read = async |info: Info| (named(&api, &info.namespace, &info.path(), JSON).await, info);
            let mut reads = futures::stream::iter(found.infos).map(read).buffered(MOST_READS);
            while let Some((answer, mut info)) = reads.next().await {
                match answer {
                    Ok(object) => {
                        info.refresh(object);
                        fresh.push(info);
                    }
                    Err(error) => found.errors.push(error),
                }
                if self.is_over(&found.errors) {
                    break;
                }
            }
            drop(reads);
            found.infos = fresh;
        }
        Ok(found)
    }

    fn is_over(&self, errors: &[Failure]) -> bool {
        self.ends_at_first && !errors.is_empty()
    }

    async fn fetch(&self, session: &Session, target: &Target) -> Outcome<Vec<Info>> {
        let api = session.api()?;
        if let Some(name) = &target.name {
            let path = target.path(name, &self.subresource)? + &query(&[("at", &self.at)]);
            let object = named(&api, &target.namespace, &path, JSON).await?;
            return Ok(vec![info(&target.mapping, object, "")]);
        }
        let items = list(session, target, self, "").await?;
        Ok(items.into_iter().map(|object| info(&target.mapping, object, "")).collect())
    }
}

/// Reads one object. Where it is not there because its namespace is not, that is what is said.
pub async fn named(api: &Api, namespace: &str, path: &str, accept: &str) -> Outcome<Value> {
    let missing = match api.get_as(path, accept).await {
        Err(missing) if missing.is_not_found() && !matches!(namespace, "" | "default") => missing,
        answer => return answer,
    };
    match api.get(&format!("/api/v1/namespaces/{}", discovery::segment(namespace))).await {
        Err(namespace) if namespace.is_not_found() => Err(namespace),
        _ => Err(missing),
    }
}

/// Every object of a collection, chunk by chunk.
pub async fn list(session: &Session, target: &Target, builder: &Builder, extra: &str) -> Outcome<Vec<Value>> {
    let api = session.api()?;
    let mut items = Vec::new();
    let mut next = String::new();
    loop {
        let path = format!(
            "{}{}{extra}",
            target.mapping.path(&target.namespace, "", &builder.subresource),
            builder.query(&next)
        );
        let mut answer = api.get(&path).await.map_err(|error| unselectable(error, target, builder))?;
        let kind = answer.get("kind").and_then(Value::as_str).unwrap_or_default().trim_end_matches("List").to_owned();
        let version = answer.get("apiVersion").cloned().unwrap_or_default();
        machinery::value::text(&answer, "metadata.continue").clone_into(&mut next);
        if let Some(Value::Array(page)) = answer.get_mut("items").map(Value::take) {
            items.extend(page.into_iter().map(|item| with_type(item, &version, &kind)));
        }
        if next.is_empty() {
            return Ok(items);
        }
    }
}

/// A selector that the server does not know is named with what was looked for.
pub fn unselectable(error: Failure, target: &Target, builder: &Builder) -> Failure {
    match error {
        // A moment that cannot be shown has nothing to do with what was selected.
        Failure::Api(error) if !builder.at.is_empty() => error.into(),
        Failure::Api(mut error) if matches!(error.code, 400 | 404) => {
            let mapping = &target.mapping;
            let what = format!("{}/{}, Resource={}", mapping.group, mapping.version, mapping.resource);
            error.message = format!(
                "Unable to find {} that match label selector {}, field selector {}: {}",
                go_quote(&what),
                go_quote(&builder.selector),
                go_quote(&builder.field_selector),
                error.message
            );
            error.into()
        }
        other => other,
    }
}

impl Builder {
    /// The query of a list, or of its next chunk.
    pub fn query(&self, next: &str) -> String {
        let limit = if self.chunk == 0 { String::new() } else { self.chunk.to_string() };
        query(&[
            // The next chunk is of the same moment as the first, whatever this says then; ages are told by it.
            ("at", &self.at),
            ("continue", next),
            ("fieldSelector", &self.field_selector),
            ("labelSelector", &self.selector),
            ("limit", &limit),
        ])
    }
}

/// Items of a list do not say what they are.
fn with_type(mut item: Value, version: &Value, kind: &str) -> Value {
    if let Value::Object(fields) = &mut item {
        fields.entry("apiVersion").or_insert_with(|| version.clone());
        fields.entry("kind").or_insert_with(|| kind.into());
    }
    item
}

/// An object with where it is.
pub fn info(mapping: &Mapping, object: Value, source: &str) -> Info {
    let text = |path: &str| machinery::value::text(&object, path).to_owned();
    Info {
        mapping: mapping.clone(),
        namespace: text("metadata.namespace"),
        name: text("metadata.name"),
        source: source.to_owned(),
        object,
    }
}

/// Puts an object into its namespace, or refuses it where another one was asked for.
pub fn settle(info: &mut Info, namespace: &str, enforce: bool) -> Outcome {
    if !info.mapping.namespaced {
        info.namespace.clear();
        machinery::value::remove(&mut info.object, "metadata.namespace");
        return Ok(());
    }
    if info.namespace.is_empty() {
        namespace.clone_into(&mut info.namespace);
        machinery::value::set(&mut info.object, "metadata.namespace", namespace);
    } else if enforce && info.namespace != namespace {
        return Err(Failure::Message(format!(
            "the namespace from the provided object {} does not match the namespace {}. You must pass '--namespace={}' to perform this operation.",
            go_quote(&info.namespace),
            go_quote(namespace),
            info.namespace
        )));
    }
    Ok(())
}
