//! OpenAPI: what the API looks like, for clients that ask.
//!
//! `/openapi/v3` has a document per group version, `/openapi/v2` has everything in one, in JSON and in the
//! protobuf form that client-go asks for. All of it follows from the facts, and from the groups that are
//! served: [`paths`] tells the operations, [`schemas`] the built-in types, [`custom`] those of custom resources,
//! [`v2`] and [`v3`] how each version writes them down. Documents are made when first asked for and kept. When
//! the groups change a new [`OpenApi`] takes the place of the old one.

mod action;
mod answer;
mod custom;
mod gnostic;
mod gnostic_v3;
mod names;
mod operation;
mod paths;
mod schemas;
#[cfg(test)]
mod tests;
mod v2;
mod v3;

use std::sync::{Arc, OnceLock};

use facts::{Group, Type, TypeId};
use serde_json::{Map, Value, json};

use self::operation::{Operation, PathItem};
use self::schemas::Dialect;
use crate::discovery::{Document, etag};

pub use custom::{Custom, Customs};
pub use paths::type_name;

/// The OpenAPI documents of what is served.
#[derive(Debug)]
pub struct OpenApi {
    groups: Vec<Group>,
    customs: Customs,
    /// The release that the documents name, such as `v1.37.0`.
    release: String,
    documents: Vec<Entry>,
    root: OnceLock<Document>,
    v2_json: OnceLock<Document>,
    v2_protobuf: OnceLock<Document>,
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
    document: OnceLock<Document>,
    protobuf: OnceLock<Document>,
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

impl OpenApi {
    /// The documents of these groups of built-in kinds.
    pub fn new(groups: Vec<Group>, release: impl Into<String>) -> OpenApi {
        OpenApi::with_customs(groups, Customs::default(), release)
    }

    /// The documents of these groups, some of whose resources are custom.
    pub fn with_customs(groups: Vec<Group>, customs: Customs, release: impl Into<String>) -> OpenApi {
        let mut documents = vec![
            Entry::new(".well-known/openid-configuration".to_owned(), Subject::Issuer),
            Entry::new("api".to_owned(), Subject::Api),
            Entry::new("apis".to_owned(), Subject::Apis),
            Entry::new("openid/v1/jwks".to_owned(), Subject::Keys),
            Entry::new("version".to_owned(), Subject::Version),
        ];
        for (g, group) in groups.iter().enumerate() {
            if !group.name.is_empty() {
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
                let source = customs.source(&groups[group].versions[version].resources);
                entry.made = Arc::new(Made { source, ..Made::default() });
            }
        }
        OpenApi {
            groups,
            customs,
            release: release.into(),
            documents,
            root: OnceLock::new(),
            v2_json: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
        }
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

    /// `/openapi/v3/PATH`, such as that of `apis/apps/v1`.
    pub fn document(&self, path: &str) -> Option<&Document> {
        let entry = self.entry(path)?;
        Some(entry.made.document.get_or_init(|| Document {
            body: self.write(&entry.subject).to_string().into(),
            etag: self.tag(entry).to_owned(),
        }))
    }

    /// As [`OpenApi::document`], as `application/com.github.proto-openapi.spec.v3.v1.0+protobuf`. Its tag is that of the
    /// JSON: it is of the same content.
    pub fn protobuf(&self, path: &str) -> Option<&Document> {
        let entry = self.entry(path)?;
        Some(entry.made.protobuf.get_or_init(|| {
            let body = gnostic_v3::encode(&self.write(&entry.subject));
            Document { body: body.into(), etag: self.tag(entry).to_owned() }
        }))
    }

    fn entry(&self, path: &str) -> Option<&Entry> {
        let at = self.documents.binary_search_by(|entry| (*entry.path).cmp(path)).ok()?;
        Some(&self.documents[at])
    }

    /// `/openapi/v2` in JSON.
    pub fn v2_json(&self) -> &Document {
        self.v2_json.get_or_init(|| Document::new(self.v2().to_string()))
    }

    /// `/openapi/v2` as `application/com.github.proto-openapi.spec.v2.v1.0+protobuf`.
    pub fn v2_protobuf(&self) -> &Document {
        self.v2_protobuf.get_or_init(|| Document::new(Self::encode_v2(&self.v2())))
    }

    /// A document of version 3 in the protobuf form.
    pub fn encode_v3(document: &Value) -> Vec<u8> {
        gnostic_v3::encode(document)
    }

    /// A document of version 2 in the protobuf form.
    pub fn encode_v2(document: &Value) -> Vec<u8> {
        gnostic::encode(document)
    }

    fn v2(&self) -> Value {
        v2::document(&self.groups, &self.customs, &self.release)
    }

    /// The tag of a document. It is known by what it is made from, so that the first to ask for the root need
    /// not wait for all documents to be written; most are never asked for.
    fn tag<'a>(&'a self, entry: &'a Entry) -> &'a str {
        entry.made.tag.get_or_init(|| {
            let source = format!("{} {} {} {}", sources(), self.release, entry.path, entry.made.source);
            etag(source.as_bytes())
        })
    }

    fn write(&self, subject: &Subject) -> Value {
        let plain = |item| v3::single(item, &self.release);
        match *subject {
            Subject::Api => plain(paths::api_root()),
            Subject::Apis => plain(paths::apis_root()),
            Subject::Group(group) => plain(paths::group_root(&self.groups[group].name)),
            Subject::Version => plain(paths::version()),
            Subject::Issuer => plain(paths::issuer()),
            Subject::Keys => plain(paths::keys()),
            Subject::GroupVersion(group, version) => {
                let group = &self.groups[group];
                v3::group_version(&group.name, &group.versions[version], &self.customs, &self.release)
            }
        }
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
            include_str!("operation.rs"),
            include_str!("paths.rs"),
            include_str!("schemas.rs"),
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
        let everywhere = if is_everywhere(of) { everywhere } else { &[] };
        (of.name.to_string(), schemas::of_type(of, dialect, everywhere))
    };
    needed.into_iter().map(TypeId::def).map(schema).collect()
}

/// Whether a type is a kind of every group version.
fn is_everywhere(of: &Type) -> bool {
    matches!(
        &*of.name,
        "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions" | "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"
    )
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
