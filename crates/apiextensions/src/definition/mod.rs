//! A CustomResourceDefinition as the server serves it: which kinds it makes, and what each version says about their objects.
//!
//! [`Definition::read`] takes only the names and flags, which is cheap; what a schema means is found out when an object of the version is first
//! read or written, and kept ([`Version::meaning`]). A cluster may have thousands of definitions of which few are used.

mod status;
mod typed;
mod versions;

use std::sync::{Arc, OnceLock};

use facts::{Made, Resource, Str, Subresource, Verbs};
use machinery::{Value, value};

pub use status::{APPROVAL, Approval, CLEANUP, Conditions, accept_names, approval, approval_of, condition_is};
pub use versions::compare as compare_versions;

use crate::{Column, Meaning};

/// How objects come from one version into another.
#[derive(Debug, Clone, PartialEq)]
pub enum Conversion {
    /// Only `apiVersion` changes.
    None,
    /// Somebody is asked: `spec.conversion.webhook`.
    Webhook(Value),
}

/// What a definition makes.
#[derive(Debug)]
pub struct Definition {
    /// The name of the definition: `plural.group`.
    pub name: String,
    /// Tells it from a later one of the same name.
    pub uid: String,
    /// The group of its kinds.
    pub group: String,
    /// The plural name, as in paths.
    pub plural: String,
    /// The kind of its objects.
    pub kind: String,
    /// Whether they live in namespaces.
    pub namespaced: bool,
    /// Every version, also those that are not served, in the order of the definition.
    pub versions: Vec<Arc<Version>>,
    pub conversion: Conversion,
    /// Whether it is established. One whose names are accepted is not while its conversion cannot be asked: then its objects are there, and nobody
    /// gets at them.
    pub established: bool,
    /// Whether it is on its way out: then nothing new is made.
    pub terminating: bool,
}

/// What a definition says about one version.
#[derive(Debug)]
pub struct Version {
    /// Its name, such as `v1`.
    pub name: String,
    /// Whether it can be asked for.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// What whoever uses it is told, if it is deprecated.
    pub warning: Option<String>,
    /// What is served, as facts.
    pub resource: Arc<Resource>,
    /// The paths of `selectableFields`, without their leading dot.
    pub selectable: Vec<String>,
    /// Whether `status` is written apart.
    pub status: bool,
    /// Where the scale is, if there is one.
    pub scale: Option<Scale>,
    /// What `kubectl get` shows.
    pub columns: Vec<Column>,
    schema: Arc<Lazy>,
}

/// Where a custom resource has its scale; paths of fields, without their leading dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// How many there should be.
    pub spec_replicas: String,
    /// How many there are.
    pub status_replicas: String,
    /// Which pods they are, as a text; empty where nobody says.
    pub selector: String,
}

/// Where a definition can be read again, since what is stored anyway need not be kept a second time for what few ask for; and who is told which schemas
/// are in use, since what they mean takes more memory than they do.
pub trait Source: Send + Sync {
    /// The definition as it is stored.
    fn definition(&self) -> Option<Value>;
    /// What a schema of so many bytes means was found out, and is kept for as long as its version.
    fn compiled(&self, _bytes: usize) {}
    /// Somebody asks what a schema means.
    fn used(&self) {}
}

/// A definition that is at hand.
impl Source for Value {
    fn definition(&self) -> Option<Value> {
        Some(self.clone())
    }
}

/// The schema of a version, and what it means once somebody asked.
struct Lazy {
    source: Arc<dyn Source>,
    version: String,
    /// Whether fields that the schema does not know are kept: `spec.preserveUnknownFields`.
    unpruned: bool,
    meaning: OnceLock<Meaning>,
}

impl std::fmt::Debug for Lazy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lazy").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Lazy {
    fn meaning(&self) -> &Meaning {
        self.source.used();
        self.meaning.get_or_init(|| {
            let props = props(&*self.source, &self.version);
            self.source.compiled(props.to_string().len());
            Meaning::of(&props, self.unpruned)
        })
    }
}

/// The schema of a version as it was written.
fn props(source: &dyn Source, version: &str) -> Value {
    let definition = source.definition().unwrap_or_default();
    let mut versions = value::list(&definition, "spec.versions").iter();
    let version = versions.find(|known| known["name"] == version);
    version.and_then(|version| value::at(version, "schema.openAPIV3Schema")).cloned().unwrap_or_default()
}

impl Version {
    /// What its schema means.
    pub fn meaning(&self) -> &Meaning {
        self.schema.meaning()
    }

    /// Reads its schema as it was written. Whoever keeps the reader does not keep what the schema means.
    pub fn props(&self) -> impl Fn() -> Value + Send + Sync + 'static {
        let (source, version) = (self.schema.source.clone(), self.name.clone());
        move || props(&*source, &version)
    }
}

impl Definition {
    /// Reads a definition whose names have been accepted; nothing if none have. `source` is where its schemas are read from when they are needed;
    /// `age` describes the column that is shown where none is asked for.
    pub fn read(definition: &Value, source: Arc<dyn Source>, age: &str) -> Option<Self> {
        let text = |path: &str| value::text(definition, path).to_owned();
        let accepted = |field: &str| text(&format!("status.acceptedNames.{field}"));
        let (plural, kind) = (accepted("plural"), accepted("kind"));
        if plural.is_empty() || kind.is_empty() || accepted("singular").is_empty() || accepted("listKind").is_empty() {
            return None;
        }
        let reader = Reader {
            definition,
            group: text("spec.group"),
            terminating: value::at(definition, "metadata.deletionTimestamp").is_some(),
            source,
            age,
        };
        let versions = value::list(definition, "spec.versions").iter().map(|version| Arc::new(reader.version(version)));
        Some(Self {
            name: text("metadata.name"),
            uid: text("metadata.uid"),
            group: reader.group.clone(),
            namespaced: text("spec.scope") == "Namespaced",
            versions: versions.collect(),
            conversion: match value::text(definition, "spec.conversion.strategy") {
                "Webhook" => Conversion::Webhook(definition["spec"]["conversion"]["webhook"].clone()),
                _ => Conversion::None,
            },
            established: condition_is(definition, "Established", "True"),
            terminating: reader.terminating,
            plural,
            kind,
        })
    }

    /// The version of this name.
    pub fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The version that objects are stored in.
    pub fn storage(&self) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.storage)
    }

    /// What discovery says can be done with its objects: nothing new is made of what is on its way out.
    pub fn offered(&self) -> Verbs {
        match self.terminating {
            true => Verbs::of(["delete", "deletecollection", "get", "list", "watch"]),
            false => Verbs::ALL,
        }
    }
}

struct Reader<'a> {
    definition: &'a Value,
    group: String,
    terminating: bool,
    source: Arc<dyn Source>,
    age: &'a str,
}

impl Reader<'_> {
    fn version(&self, version: &Value) -> Version {
        let name = value::text(version, "name").to_owned();
        let status = value::at(version, "subresources.status").is_some();
        let scale = value::at(version, "subresources.scale").map(|scale| {
            let path = |field: &str| value::text(scale, field).trim_start_matches('.').to_owned();
            Scale {
                spec_replicas: path("specReplicasPath"),
                status_replicas: path("statusReplicasPath"),
                selector: path("labelSelectorPath"),
            }
        });
        let schema = Arc::new(Lazy {
            source: self.source.clone(),
            version: name.clone(),
            unpruned: value::flag(self.definition, "spec.preserveUnknownFields"),
            meaning: OnceLock::new(),
        });
        Version {
            served: value::flag(version, "served"),
            storage: value::flag(version, "storage"),
            warning: value::flag(version, "deprecated").then(|| self.warning(version)),
            resource: Arc::new(self.resource(&name, status, scale.is_some(), schema.clone())),
            selectable: value::list(version, "selectableFields")
                .iter()
                .map(|field| value::text(field, "jsonPath").trim_start_matches('.').to_owned())
                .collect(),
            columns: Column::of_version(version, self.age),
            status,
            scale,
            schema,
            name,
        }
    }

    fn resource(&self, version: &str, status: bool, scale: bool, schema: Arc<Lazy>) -> Resource {
        let names = |field: &str| value::at(self.definition, &format!("status.acceptedNames.{field}"));
        let text = |field: &str| names(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let texts = |field: &str| -> Box<[Str]> {
            let list = names(field).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(|name| name.as_str().map(|name| Str::Owned(name.to_owned()))).collect()
        };
        let kind = text("kind");
        let part = |name: &'static str, kind: String, kind_of| Subresource {
            name: name.into(),
            kind: kind.into(),
            kind_of,
            verbs: Verbs::of(["get", "patch", "update"]),
            ty: None,
        };
        let mut subresources = Vec::new();
        if status {
            subresources.push(part("status", kind.clone(), None));
        }
        if scale {
            let of = (Str::Borrowed("autoscaling"), Str::Borrowed("v1"));
            subresources.push(part("scale", "Scale".to_owned(), Some(of)));
        }
        let storage =
            value::list(self.definition, "spec.versions").iter().find(|version| value::flag(version, "storage"));
        let hash = storage.map(|storage| versions::hash(&self.group, value::text(storage, "name"), &kind));
        let (group, version) = (self.group.clone(), version.to_owned());
        let type_name = (group.clone(), version.clone(), kind.clone());
        Resource {
            singular: text("singular").into(),
            list_kind: text("listKind").into(),
            namespaced: value::text(self.definition, "spec.scope") == "Namespaced",
            verbs: Verbs::ALL,
            short_names: texts("shortNames"),
            categories: texts("categories"),
            storage_version_hash: hash.map(Str::Owned),
            returns_deleted: false,
            subresources: subresources.into(),
            made: Some(Made::new(move || typed::root(&schema.meaning().schema, type_name))),
            ..Resource::new(group, version, text("plural"), kind)
        }
    }

    /// What users of a deprecated version are told: the words of the definition, or which version to use.
    fn warning(&self, version: &Value) -> String {
        if let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) {
            return warning.to_owned();
        }
        let (name, kind) = (value::text(version, "name"), value::text(self.definition, "spec.names.kind"));
        let all = value::list(self.definition, "spec.versions").iter();
        let better = all.filter(|other| {
            let older = versions::compare(name, value::text(other, "name")).is_lt();
            value::flag(other, "served") && !value::flag(other, "deprecated") && older
        });
        let best = better.map(|other| value::text(other, "name")).max_by(|a, b| versions::compare(a, b));
        let advice = best.map(|best| format!("; use {}/{best} {kind}", self.group)).unwrap_or_default();
        format!("{}/{name} {kind} is deprecated{advice}", self.group)
    }
}

#[cfg(test)]
mod tests;
