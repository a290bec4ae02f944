//! `apply --prune --applyset`: a parent object that knows which kinds and namespaces its members are in, so that pruning needs no
//! list of kinds and finds what earlier applies left behind.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use machinery::status::Reason;
use machinery::value::{at, list, text};
use serde_json::{Value, json};

use crate::command::Invocation;
use crate::discovery::{Mapping, query};
use crate::error::{Failure, Outcome};
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{Info, info};

const TOOLING: &str = "applyset.kubernetes.io/tooling";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
const KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
const OLD_KINDS: &str = "applyset.kubernetes.io/contains-group-resources";
const ID: &str = "applyset.kubernetes.io/id";
const PART_OF: &str = "applyset.kubernetes.io/part-of";
const PARENT_TYPE: &str = "applyset.kubernetes.io/is-parent-type";

/// A set, as far as its parent is known.
pub struct Set {
    mapping: Mapping,
    name: String,
    namespace: String,
    /// Kinds (`Deployment.apps`) and namespaces before this apply.
    before: Members,
    /// Those of this apply.
    now: Members,
}

#[derive(Default, Clone)]
struct Members {
    kinds: BTreeSet<String>,
    namespaces: BTreeSet<String>,
}

fn kind_of(mapping: &Mapping) -> String {
    if mapping.group.is_empty() { mapping.kind.clone() } else { format!("{}.{}", mapping.kind, mapping.group) }
}

impl Set {
    /// The set that `--applyset` names: `NAME`, or `TYPE[.GROUP]/NAME`.
    pub async fn named(invocation: &Invocation, reference: &str) -> Outcome<Self> {
        let (kind, name) = reference.split_once('/').unwrap_or(("secrets", reference));
        let odd = |why: String| Failure::Message(format!("invalid parent reference {reference:?}: {why}"));
        if name.is_empty() {
            return Err(odd("name cannot be blank".to_owned()));
        }
        let mapping = invocation.session.mapping(kind).await.map_err(|error| odd(error.bare()))?;
        let connection = invocation.session.connection()?;
        // The namespace must be said: a set of the namespace that happens to be the current one is found by accident only.
        let given = mapping.namespaced && connection.namespace_given;
        let namespace = if given { connection.namespace.clone() } else { String::new() };
        let set =
            Self { mapping, name: name.to_owned(), namespace, before: Members::default(), now: Members::default() };
        set.validate(invocation).await?;
        Ok(set)
    }

    fn is_built_in(&self) -> bool {
        self.mapping.group.is_empty() && matches!(self.mapping.resource.as_str(), "secrets" | "configmaps")
    }

    async fn validate(&self, invocation: &Invocation) -> Outcome {
        if self.mapping.namespaced && self.namespace.is_empty() {
            return Err(Failure::message("namespace is required to use namespace-scoped ApplySet"));
        }
        if self.is_built_in() {
            return Ok(());
        }
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let found =
            invocation.session.api()?.get(&format!("{path}{}", query(&[("labelSelector", PARENT_TYPE)]))).await?;
        let wanted = self.mapping.qualified();
        if list(&found, "items").iter().any(|definition| text(definition, "metadata.name") == wanted) {
            return Ok(());
        }
        let named = format!("{}, Resource={}", self.mapping.api_version(), self.mapping.resource);
        Err(Failure::Message(format!("resource {named:?} is not permitted as an ApplySet parent")))
    }

    /// What members are labelled with.
    fn id(&self) -> String {
        let named = [&*self.name, &*self.namespace, &*self.mapping.kind, &*self.mapping.group].join(".");
        let hashed = ring::digest::digest(&ring::digest::SHA256, named.as_bytes());
        format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(hashed))
    }

    /// As messages name it.
    fn shown(&self) -> String {
        format!("{}.{}/{}", self.mapping.resource, self.mapping.group, self.name)
    }

    /// Labels the objects as members.
    pub fn label(&self, infos: &mut [Info]) -> Outcome {
        for info in infos {
            if at(&info.object, "metadata.labels").and_then(|all| all.get(PART_OF)).is_some() {
                return Err(Failure::Message(format!("ApplySet label {PART_OF:?} already set in input data")));
            }
            let metadata = machinery::value::object_mut(&mut info.object, "metadata");
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            labels[PART_OF] = self.id().into();
        }
        Ok(())
    }

    /// Reads the parent, and has it cover what is to be applied before anything is: an apply that is broken off loses nothing.
    pub async fn begin(&mut self, invocation: &Invocation, writing: &Writing, infos: &[Info]) -> Outcome {
        self.read_parent(invocation).await?;
        for info in infos {
            self.now.kinds.insert(kind_of(&info.mapping));
            if info.mapping.namespaced && !info.namespace.is_empty() {
                self.now.namespaces.insert(info.namespace.clone());
            }
        }
        let both = Members {
            kinds: self.before.kinds.union(&self.now.kinds).cloned().collect(),
            namespaces: self.before.namespaces.union(&self.now.namespaces).cloned().collect(),
        };
        self.write_parent(invocation, writing, &both).await
    }

    async fn read_parent(&mut self, invocation: &Invocation) -> Outcome {
        let shown = self.shown();
        let parent = match invocation.session.api()?.get(&self.mapping.path(&self.namespace, &self.name, "")).await {
            Ok(parent) => parent,
            Err(error) if error.is_not_found() && self.is_built_in() => return Ok(()),
            Err(error) if error.is_not_found() => {
                return Err(Failure::message("custom resource ApplySet parents cannot be created automatically"));
            }
            Err(error) => {
                return Err(Failure::Message(format!(
                    "failed to fetch ApplySet parent object {shown:?}: {}",
                    error.bare()
                )));
            }
        };
        let of = |field: &str, key: &str| {
            let found = at(&parent, field).and_then(|all| all.get(key)).and_then(Value::as_str);
            found.map(str::to_owned)
        };
        let Some(tooling) = of("metadata.annotations", TOOLING) else {
            return Err(Failure::Message(format!(
                "ApplySet parent object {shown:?} already exists and is missing required annotation {TOOLING:?}"
            )));
        };
        let tool = tooling.rsplit_once('/').map_or(&*tooling, |(tool, _)| tool);
        if tool != "kubectl" {
            return Err(Failure::Message(format!(
                "ApplySet parent object {shown:?} already exists and is managed by tooling {tool:?} instead of \"kubectl\""
            )));
        }
        let id = self.id();
        match of("metadata.labels", ID) {
            None => {
                return Err(Failure::Message(format!(
                    "ApplySet parent object {shown:?} exists and does not have required label {ID}"
                )));
            }
            Some(known) if known != id => {
                return Err(Failure::Message(format!(
                    "ApplySet parent object {shown:?} exists and has incorrect value for label {ID:?} (got: {known}, want: {id})"
                )));
            }
            Some(_) => {}
        }
        let words = |text: &str| text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        self.before.namespaces = of("metadata.annotations", NAMESPACES).map(|text| words(&text)).unwrap_or_default();
        if self.mapping.namespaced {
            self.before.namespaces.insert(self.namespace.clone());
        }
        self.before.kinds = match (of("metadata.annotations", KINDS), of("metadata.annotations", OLD_KINDS)) {
            (Some(kinds), _) => words(&kinds),
            (None, Some(resources)) => {
                let mut kinds = BTreeSet::new();
                for resource in words(&resources) {
                    let resource: String = resource;
                    kinds.insert(kind_of(&invocation.session.mapping(&resource).await?));
                }
                kinds
            }
            (None, None) => {
                return Err(Failure::Message(format!(
                    "parsing ApplySet annotation on {shown:?}: kubectl requires the {KINDS:?} annotation to be set on all ApplySet parent objects"
                )));
            }
        };
        Ok(())
    }

    async fn write_parent(&self, invocation: &Invocation, writing: &Writing, members: &Members) -> Outcome {
        if writing.dry_run == DryRun::Client {
            return Ok(());
        }
        let kinds: Vec<&str> = members.kinds.iter().map(String::as_str).collect();
        let others: Vec<&str> =
            members.namespaces.iter().map(String::as_str).filter(|name| *name != self.namespace).collect();
        let mut object = json!({
            "apiVersion": self.mapping.api_version(), "kind": self.mapping.kind,
            "metadata": {
                "name": self.name,
                "annotations": {
                    TOOLING: format!("kubectl/{}", rules::names::VERSION),
                    KINDS: kinds.join(","),
                    NAMESPACES: others.join(","),
                },
                "labels": {ID: self.id()},
            },
        });
        if !self.namespace.is_empty() {
            object["metadata"]["namespace"] = self.namespace.as_str().into();
        }
        let parent =
            Info { name: self.name.clone(), namespace: self.namespace.clone(), ..info(&self.mapping, object, "") };
        let writing = Writing { manager: "kubectl-applyset".to_owned(), ..writing.clone() };
        let api = invocation.session.api()?;
        let written = match writing.apply(&api, &parent, &parent.object, false).await {
            // These fields are this tool's own, whoever took them.
            Err(error) if error.is(Reason::Conflict) => writing.apply(&api, &parent, &parent.object, true).await,
            other => other,
        };
        written.map(drop).map_err(|error| Failure::Message(format!("failed to update ApplySet: {}", error.bare())))
    }

    /// Deletes members that were not applied this time, and lets the parent forget what it no longer has.
    pub async fn prune(&self, invocation: &mut Invocation, writing: &Writing, applied: &[Info]) -> Outcome {
        let uids: BTreeSet<&str> = applied.iter().map(|info| text(&info.object, "metadata.uid")).collect();
        let selector = query(&[("labelSelector", &format!("{PART_OF}={}", self.id()))]);
        for kind in &self.before.kinds {
            let (name, group) = kind.split_once('.').unwrap_or((kind, ""));
            let found = invocation.session.discovery().await?.group_kind(group, name).cloned();
            let Some(mapping) = found else {
                return Err(Failure::Message(format!(
                    "parsing ApplySet annotation on {:?}: could not find mapping for kind in {KINDS:?} annotation: no matches for kind {name:?} in group {group:?}",
                    self.shown()
                )));
            };
            let places: Vec<&str> =
                if mapping.namespaced { self.before.namespaces.iter().map(String::as_str).collect() } else { vec![""] };
            for place in places {
                let path = format!("{}{selector}", mapping.path(place, "", ""));
                let members = invocation.session.api()?.get(&path).await?;
                for mut object in list(&members, "items").iter().cloned() {
                    if uids.contains(text(&object, "metadata.uid")) {
                        continue;
                    }
                    object["apiVersion"] = mapping.api_version().into();
                    object["kind"] = mapping.kind.as_str().into();
                    super::prune::delete(invocation, writing, &mapping, object).await?;
                }
            }
        }
        self.write_parent(invocation, writing, &self.now).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sets_id_is_a_hash_of_its_parent() {
        let mapping = Mapping { kind: "Secret".to_owned(), resource: "secrets".to_owned(), ..Mapping::default() };
        let set = Set {
            mapping,
            name: "my-set".to_owned(),
            namespace: "test".to_owned(),
            before: Members::default(),
            now: Members::default(),
        };
        // The example of the specification.
        assert!(set.id().starts_with("applyset-") && set.id().ends_with("-v1"));
        assert_eq!(set.id().len(), "applyset--v1".len() + 43);
        assert_eq!(set.shown(), "secrets./my-set");
    }
}
