//! OpenAPI: what the API looks like, for clients that ask.
//!
//! `/openapi/v3` has a document per group version, `/openapi/v2` has everything in one, in JSON and in the
//! protobuf form that client-go asks for. All of it follows from the facts, and from the groups that are
//! served: [`paths`] tells the operations, [`schemas`] the built-in types, [`custom`] those of custom resources,
//! [`v2`] and [`v3`] how each version writes them down. Documents are made when first asked for, of [`pieces`] that
//! are kept. When the groups change a new [`OpenApi`] takes the place of the old one, with the pieces of what has not changed.

mod action;
mod answer;
mod custom;
mod form;
mod gnostic;
mod gnostic_v3;
mod names;
mod operation;
mod paths;
mod pieces;
mod schemas;
mod shared;
#[cfg(test)]
mod tests;
mod v2;
mod v3;
mod words;

use std::sync::{Arc, OnceLock};

use facts::{Group, Type, TypeId};
use serde_json::{Map, Value, json};

use self::form::{Encoding, Parts, Trees};
use self::operation::{Operation, PathItem};
use self::pieces::Piece;
use self::schemas::Dialect;
use crate::discovery::{Document, etag};

pub use custom::{Custom, Customs};
pub(crate) use form::Form;
pub(crate) use pieces::Assembled;

/// The OpenAPI documents of what is served.
#[derive(Debug)]
pub struct OpenApi {
    built_in: Arc<BuiltIn>,
    /// The built-in groups, and those of custom resources.
    groups: Vec<Group>,
    customs: Customs,
    documents: Vec<Entry>,
    root: OnceLock<Document>,
    v2_json: OnceLock<Assembled>,
    v2_protobuf: OnceLock<Assembled>,
}

/// What stays, whatever definitions there are.
#[derive(Debug)]
pub struct BuiltIn {
    groups: Vec<Group>,
    /// The release that the documents name, such as `v1.37.0`.
    release: String,
    /// What is around the sections of version 2.
    v2_frame: OnceLock<Value>,
    v2_json: OnceLock<Parts>,
    v2_protobuf: OnceLock<Parts>,
}

/// A document of version 3.
#[derive(Debug)]
struct Entry {
    /// Its place below `/openapi/v3/`, such as `apis/apps/v1`.
    path: String,
    subject: Subject,
    made: Arc<Made>,
}

/// What is made of a document when somebody asks for it, and kept while what it is made from stays.
#[derive(Debug, Default)]
struct Made {
    /// What custom resources it is made from; nothing for what is built in.
    source: String,
    tag: OnceLock<String>,
    json: OnceLock<Assembled>,
    protobuf: OnceLock<Assembled>,
}

/// What a document of version 3 is about.
#[derive(Debug)]
enum Subject {
    Api,
    Apis,
    Group(usize),
    GroupVersion(usize, usize),
    Version,
    Issuer,
    Keys,
}

impl BuiltIn {
    /// These groups of built-in kinds.
    pub fn new(groups: Vec<Group>, release: impl Into<String>) -> Arc<BuiltIn> {
        let (v2_frame, v2_json, v2_protobuf) = Default::default();
        Arc::new(BuiltIn { groups, release: release.into(), v2_frame, v2_json, v2_protobuf })
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn v2_frame(&self) -> &Value {
        self.v2_frame.get_or_init(|| v2::frame(&self.groups, &self.release))
    }

    fn v2(&self, form: Form) -> &Parts {
        let made = if form == Form::V2Json { &self.v2_json } else { &self.v2_protobuf };
        made.get_or_init(|| {
            let (definitions, paths) = v2::built_in(&self.groups);
            form.parts(&Trees::new(definitions, paths))
        })
    }

    /// Makes what documents say of them, before anybody asks.
    pub(crate) fn prepare(&self) {
        for encoding in Encoding::ALL {
            self.v2(encoding.form(Dialect::V2));
        }
        self.v2_frame();
    }
}

impl OpenApi {
    /// The documents of these groups, some of whose resources are custom.
    pub fn new(built_in: Arc<BuiltIn>, groups: Vec<Group>, customs: Customs) -> OpenApi {
        let mut documents = vec![
            Entry::new(".well-known/openid-configuration".to_owned(), Subject::Issuer),
            Entry::new("api".to_owned(), Subject::Api),
            Entry::new("apis".to_owned(), Subject::Apis),
            Entry::new("openid/v1/jwks".to_owned(), Subject::Keys),
            Entry::new("version".to_owned(), Subject::Version),
        ];
        for (g, group) in groups.iter().enumerate() {
            // Upstream does not describe groups that have nothing but custom resources.
            if !group.name.is_empty() && !group.versions.iter().all(v3::is_custom) {
                documents.push(Entry::new(format!("apis/{}", group.name), Subject::Group(g)));
            }
            for (v, version) in group.versions.iter().enumerate() {
                let path = paths::Base::new(&group.name, &version.name).path();
                documents.push(Entry::new(path[1..].to_owned(), Subject::GroupVersion(g, v)));
            }
        }
        documents.sort_by(|a, b| a.path.cmp(&b.path));
        for entry in &mut documents {
            if let Subject::GroupVersion(group, version) = entry.subject {
                let source = custom::source(customs.of(&groups[group].versions[version].resources));
                entry.made = Arc::new(Made { source, ..Made::default() });
            }
        }
        let (root, v2_json, v2_protobuf) = Default::default();
        OpenApi { built_in, groups, customs, documents, root, v2_json, v2_protobuf }
    }

    /// Keeps the documents of others that are of the same.
    pub fn keep(&mut self, others: &OpenApi) {
        for entry in &mut self.documents {
            if let Some(known) = others.entry(&entry.path).filter(|known| known.made.source == entry.made.source) {
                entry.made = known.made.clone();
            }
        }
    }

    /// `/openapi/v3`: where each document is. The tag of a document is part of its address, so that a client
    /// may keep a copy for as long as the address stays.
    pub fn root(&self) -> &Document {
        self.root.get_or_init(|| {
            let paths: Map<String, Value> = self
                .documents
                .iter()
                .map(|entry| {
                    let address = format!("/openapi/v3/{}?hash={}", entry.path, self.tag(entry));
                    (entry.path.clone(), json!({ "serverRelativeURL": address }))
                })
                .collect();
            Document::new(json!({ "paths": paths }).to_string())
        })
    }

    /// `/openapi/v3/PATH`, such as that of `apis/apps/v1`. Its tag is the same in both forms: they are of the same content.
    pub(crate) fn document(&self, form: Form, path: &str) -> Option<&Assembled> {
        let entry = self.entry(path)?;
        let made = if form == Form::V3Json { &entry.made.json } else { &entry.made.protobuf };
        Some(made.get_or_init(|| Assembled::new(self.tag(entry).to_owned(), self.write(form, &entry.subject))))
    }

    fn entry(&self, path: &str) -> Option<&Entry> {
        let at = self.documents.binary_search_by(|entry| (*entry.path).cmp(path)).ok()?;
        Some(&self.documents[at])
    }

    /// `/openapi/v2`.
    pub(crate) fn v2(&self, form: Form) -> &Assembled {
        let made = if form == Form::V2Json { &self.v2_json } else { &self.v2_protobuf };
        made.get_or_init(|| {
            let everywhere = form.parts(&Trees::new(v2::everywhere(&self.groups), Map::new()));
            let built_in = [&everywhere, self.built_in.v2(form)];
            let parts = built_in.into_iter().chain(self.customs.all().map(|custom| custom.parts(form)));
            Assembled::new(self.v2_tag(), form.assemble(self.built_in.v2_frame(), parts))
        })
    }

    /// As [`OpenApi::v2`], with a change to the trees of `definitions` and `paths`. These have what is built in, and those custom resources
    /// whose group version is `open` to the change.
    pub(crate) fn v2_changed(
        &self,
        form: Form,
        open: impl Fn(&str, &str) -> bool,
        change: impl FnOnce(&mut Value),
    ) -> Assembled {
        let (mut definitions, mut paths) = v2::built_in(&self.built_in.groups);
        definitions.extend(v2::everywhere(&self.groups));
        let is_open = |custom: &&Arc<Custom>| open(&custom.resource().group, &custom.resource().version);
        for custom in self.customs.all().filter(is_open) {
            let Trees { schemas: Value::Object(schemas), paths: Value::Object(items) } = custom.read(Dialect::V2)
            else {
                continue;
            };
            definitions.extend(schemas);
            paths.extend(items);
        }
        let mut tree = json!({ "definitions": definitions, "paths": paths });
        change(&mut tree);
        let changed = form.parts(&Trees { schemas: tree["definitions"].take(), paths: tree["paths"].take() });
        let others = self.customs.all().filter(|custom| !is_open(custom)).map(|custom| custom.parts(form));
        let parts = [&changed].into_iter().chain(others);
        let pieces = form.assemble(self.built_in.v2_frame(), parts);
        // What the others have is in the tag by its content.
        let mut content = changed.schemas.text();
        changed.paths.iter().for_each(|piece| piece.unpack(&mut content));
        Assembled::new(etag(format!("{} {}", self.v2_tag(), etag(&content)).as_bytes()), pieces)
    }

    /// Known by what the document is made from, as [`OpenApi::tag`].
    pub(crate) fn v2_tag(&self) -> String {
        let versions = self
            .groups
            .iter()
            .flat_map(|group| group.versions.iter().map(move |version| facts::api_version(&group.name, &version.name)));
        let versions = versions.collect::<Vec<String>>().join(" ");
        let customs = custom::source(self.customs.all());
        etag(format!("{} {} v2 {versions} {customs}", sources(), self.built_in.release).as_bytes())
    }

    /// The tag of a document. It is known by what it is made from, so that the first to ask for the root need
    /// not wait for all documents to be written; most are never asked for.
    fn tag<'a>(&'a self, entry: &'a Entry) -> &'a str {
        entry.made.tag.get_or_init(|| {
            let source = format!("{} {} {} {}", sources(), self.built_in.release, entry.path, entry.made.source);
            etag(source.as_bytes())
        })
    }

    fn write(&self, form: Form, subject: &Subject) -> Vec<Piece> {
        let release = &self.built_in.release;
        let plain = |item| v3::single(item, release);
        let tree = match *subject {
            Subject::Api => plain(paths::api_root()),
            Subject::Apis => plain(paths::apis_root()),
            Subject::Group(group) => plain(paths::group_root(&self.groups[group].name)),
            Subject::Version => plain(paths::version()),
            Subject::Issuer => plain(paths::issuer()),
            Subject::Keys => plain(paths::keys()),
            Subject::GroupVersion(group, version) => {
                let group = &self.groups[group];
                let version = &group.versions[version];
                if v3::is_custom(version) {
                    return v3::custom_group_version(form, version, &self.customs);
                }
                v3::group_version(&group.name, version, release)
            }
        };
        vec![form.whole(&tree)]
    }
}

impl Entry {
    fn new(path: String, subject: Subject) -> Entry {
        Entry { path, subject, made: Arc::default() }
    }
}

/// What documents are made from, in short: facts, prose, and the code that puts them together.
fn sources() -> &'static str {
    static SOURCES: OnceLock<String> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let code = [
            include_str!("mod.rs"),
            include_str!("custom.rs"),
            include_str!("operation.rs"),
            include_str!("paths.rs"),
            include_str!("parameters.txt"),
            include_str!("schemas.rs"),
            include_str!("shared.rs"),
            include_str!("v2.rs"),
            include_str!("v3.rs"),
        ];
        let parts = [facts::SOURCE, prose::SOURCE].into_iter().chain(code);
        parts.map(|part| etag(part.as_bytes())).collect()
    })
}

/// The schemas of the built-in types that these operations need. `everywhere` has the group versions of which
/// some types are kinds although the facts do not say so.
fn definitions(items: &[PathItem], dialect: Dialect, everywhere: &[(String, String)]) -> Map<String, Value> {
    let named = items.iter().flat_map(|item| &item.operations).flat_map(Operation::types);
    let built_in = named.filter_map(facts::type_named);
    // The schema of a custom resource refers to these, but is not among the facts.
    let custom = items.iter().flat_map(|item| &item.operations).flat_map(Operation::types);
    let custom = custom.filter(|name| facts::type_named(name).is_none()).flat_map(|_| custom::REFERRED);
    let needed = schemas::closure(built_in.chain(custom.filter_map(facts::type_named)));
    let schema = |of: &'static Type| {
        let everywhere = if is_everywhere(&of.name) { everywhere } else { &[] };
        (of.name.to_string(), schemas::of_type(of, dialect, everywhere))
    };
    needed.into_iter().map(TypeId::def).map(schema).collect()
}

/// The types that are kinds of every group version.
const EVERYWHERE: [&str; 2] =
    ["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"];

fn is_everywhere(name: &str) -> bool {
    EVERYWHERE.contains(&name)
}

/// What a status code means; OpenAPI wants it with every answer.
fn reason(code: &str) -> &'static str {
    match code {
        "200" => "OK",
        "201" => "Created",
        "202" => "Accepted",
        _ => "Unauthorized",
    }
}
