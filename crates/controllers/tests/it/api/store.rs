//! The objects, their history and who watches them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use facts::Resource;
use informer::Clock;
use machinery::ApiError;
use machinery::gvk::GroupResource;
use machinery::patch;
use machinery::rest::WatchEvent;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::{Happened, event};

/// What goes wrong, by chance but the same for the same seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// The state of the generator; 0 is no faults at all.
    pub seed: u64,
    /// One write in so many fails with a conflict.
    pub conflicts: u64,
    /// One event in so many ends the watch that would bring it.
    pub drops: u64,
    /// One watch in so many that would go on where another ended finds its revision gone.
    pub gone: u64,
}

impl Faults {
    /// Numbers from a linear congruential generator: good enough to be unpredictable to a controller.
    fn strikes(&mut self, one_in: u64) -> bool {
        if self.seed == 0 || one_in == 0 {
            return false;
        }
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33).is_multiple_of(one_in)
    }
}

type Id = (String, String);

struct Watcher {
    resource: Id,
    namespace: String,
    sender: mpsc::UnboundedSender<WatchEvent>,
}

/// Everything the API server holds.
pub struct Store {
    clock: Arc<dyn Clock>,
    faults: Faults,
    hostile: bool,
    revision: u64,
    serial: u64,
    objects: HashMap<Id, BTreeMap<(String, String), Value>>,
    history: Vec<(u64, Id, Happened, Value)>,
    watchers: Vec<Watcher>,
    writes: u64,
}

fn id(resource: &Resource) -> Id {
    (resource.group.to_string(), resource.plural.to_string())
}

fn group_resource(resource: &Resource) -> GroupResource {
    GroupResource::new(resource.group.to_string(), resource.plural.to_string())
}

impl Store {
    pub fn new(clock: Arc<dyn Clock>, faults: Faults) -> Self {
        Self {
            clock,
            hostile: faults.seed != 0,
            faults,
            revision: 1,
            serial: 0,
            objects: HashMap::new(),
            history: Vec::new(),
            watchers: Vec::new(),
            writes: 0,
        }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many writes there were.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether there are faults, or were.
    pub fn is_hostile(&self) -> bool {
        self.hostile
    }

    /// No more faults, so that the world can settle.
    pub fn calm(&mut self) {
        self.faults = Faults::default();
    }

    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let known = self.objects.get(&id(resource)).and_then(|all| all.get(&(namespace.to_owned(), name.to_owned())));
        known.cloned().ok_or_else(|| ApiError::not_found(&group_resource(resource), name))
    }

    pub fn list(&self, resource: &Resource, namespace: &str) -> Vec<Value> {
        let all = self.objects.get(&id(resource)).into_iter().flatten();
        all.filter(|((known, _), _)| namespace.is_empty() || known == namespace)
            .map(|(_, value)| value.clone())
            .collect()
    }

    pub fn names(&self, resource: &Resource, namespace: &str) -> Vec<(String, String)> {
        let all = self.objects.get(&id(resource)).into_iter().flatten();
        all.filter(|((known, _), _)| namespace.is_empty() || known == namespace).map(|(key, _)| key.clone()).collect()
    }

    pub fn history(&self, resource: &Resource, namespace: &str, from: u64) -> Vec<(Happened, Value)> {
        let (id, all) = (id(resource), self.history.iter());
        let own =
            all.filter(|(revision, known, _, value)| *revision > from && *known == id && within(value, namespace));
        own.map(|(_, _, happened, value)| (*happened, value.clone())).collect()
    }

    /// Whether a watch that wants to go on has waited too long.
    pub fn forgets(&mut self) -> bool {
        let mut faults = self.faults;
        let struck = faults.strikes(faults.gone);
        self.faults = faults;
        struck
    }

    pub fn add_watcher(&mut self, resource: &Resource, namespace: &str, sender: mpsc::UnboundedSender<WatchEvent>) {
        self.watchers.push(Watcher { resource: id(resource), namespace: namespace.to_owned(), sender });
    }

    pub fn create(&mut self, resource: &Resource, namespace: &str, mut value: Value) -> Result<Value, ApiError> {
        self.serial += 1;
        let (serial, now) = (self.serial, machinery::time::format(self.clock.now()));
        value["apiVersion"] = json!(resource.api_version());
        value["kind"] = json!(resource.kind);
        let meta = meta_mut(&mut value);
        if resource.namespaced {
            let own = meta.get("namespace").and_then(Value::as_str).unwrap_or_default().to_owned();
            let namespace = if namespace.is_empty() { own } else { namespace.to_owned() };
            if self.is_ending(&namespace) {
                return Err(ending(resource, &namespace));
            }
            meta.insert("namespace".into(), json!(namespace));
        } else {
            meta.remove("namespace");
        }
        if !meta.contains_key("name") {
            let prefix = meta.get("generateName").and_then(Value::as_str).unwrap_or_default();
            let name = format!("{prefix}{}", suffix(serial));
            meta.insert("name".into(), json!(name));
        }
        meta.insert("uid".into(), json!(format!("uid-{serial:08}")));
        meta.insert("creationTimestamp".into(), json!(now));
        meta.insert("generation".into(), json!(1));
        if &*resource.plural == "namespaces" {
            value["spec"]["finalizers"] = json!(["kubernetes"]);
            value["status"] = json!({"phase": "Active"});
        } else if resource.subresource("status").is_some() {
            value["status"] = if &*resource.plural == "pods" { json!({"phase": "Pending"}) } else { Value::Null };
        }
        let key = key_of(&value);
        if self.objects.get(&id(resource)).is_some_and(|all| all.contains_key(&key)) {
            return Err(ApiError::already_exists(&group_resource(resource), &key.1));
        }
        Ok(self.write(resource, Happened::Added, value))
    }

    pub fn update(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        new: Value,
    ) -> Result<Value, ApiError> {
        let old = self.get(resource, namespace, name)?;
        let version = new["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let stale = !version.is_empty() && old["metadata"]["resourceVersion"] != version.as_str();
        if stale || self.faults.strikes(self.faults.conflicts) {
            return Err(ApiError::stale(&group_resource(resource), name));
        }
        let uid = new["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if !uid.is_empty() && old["metadata"]["uid"] != uid.as_str() {
            return Err(ApiError::conflict(
                &group_resource(resource),
                name,
                "the uid in the precondition does not match",
            ));
        }
        self.replace(resource, &old, sub, new)
    }

    pub fn patch(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        sub: &str,
        content_type: &str,
        body: Value,
    ) -> Result<Value, ApiError> {
        let old = self.get(resource, namespace, name)?;
        let mut new = old.clone();
        match content_type {
            "application/merge-patch+json" => patch::merge::apply(&mut new, body),
            "application/strategic-merge-patch+json" => {
                let of = resource.ty.expect("built-in kinds have a type").def();
                patch::strategic::apply(&mut new, body, of)
                    .map_err(|error| ApiError::bad_request(error.to_string()))?;
            }
            other => return Err(ApiError::bad_request(format!("{other} is not simulated"))),
        }
        self.update(resource, namespace, name, sub, new)
    }

    pub fn delete(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &Value,
    ) -> Result<(), ApiError> {
        let mut value = self.get(resource, namespace, name)?;
        for (given, known) in [("uid", "uid"), ("resourceVersion", "resourceVersion")] {
            let wanted = &options["preconditions"][given];
            if wanted.is_string() && *wanted != value["metadata"][known] {
                let why = format!("the {given} in the precondition does not match");
                return Err(ApiError::conflict(&group_resource(resource), name, &why));
            }
        }
        let finalizer = match options["propagationPolicy"].as_str() {
            Some("Foreground") => Some("foregroundDeletion"),
            Some("Orphan") => Some("orphan"),
            _ => None,
        };
        let was_deleting = !value["metadata"]["deletionTimestamp"].is_null();
        let now = machinery::time::format(self.clock.now());
        let meta = meta_mut(&mut value);
        if let Some(finalizer) = finalizer.filter(|_| !was_deleting) {
            let finalizers = meta.entry("finalizers").or_insert_with(|| json!([]));
            finalizers.as_array_mut().expect("finalizers are a list").push(json!(finalizer));
        }
        let held = meta.get("finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        let is_namespace = &*resource.plural == "namespaces";
        let grace = options["gracePeriodSeconds"].as_i64().unwrap_or(30);
        let runs = &*resource.plural == "pods"
            && value["spec"]["nodeName"].is_string()
            && !matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            && grace > 0;
        if !held && !is_namespace && !runs {
            self.write(resource, Happened::Deleted, value);
            return Ok(());
        }
        if !was_deleting {
            meta_mut(&mut value).insert("deletionTimestamp".into(), json!(now));
            self.write(resource, Happened::Modified, value);
        }
        Ok(())
    }

    /// The object after an update of the whole or of one part, and its end if nothing holds it any more.
    fn replace(&mut self, resource: &Resource, old: &Value, sub: &str, mut new: Value) -> Result<Value, ApiError> {
        match sub {
            "" if resource.subresource("status").is_some() => new["status"] = old["status"].clone(),
            "" => {}
            "finalize" => {
                let finalizers = new["spec"]["finalizers"].clone();
                new = old.clone();
                new["spec"]["finalizers"] = finalizers;
            }
            part => {
                let (part, annotations) = (new[part].clone(), new["metadata"]["annotations"].clone());
                new = old.clone();
                new[sub] = part;
                if !annotations.is_null() {
                    new["metadata"]["annotations"] = annotations;
                }
            }
        }
        new["apiVersion"] = old["apiVersion"].clone();
        new["kind"] = old["kind"].clone();
        for fixed in
            ["uid", "creationTimestamp", "deletionTimestamp", "generation", "name", "namespace", "resourceVersion"]
        {
            let value = old["metadata"].get(fixed).cloned();
            match value {
                Some(value) => meta_mut(&mut new).insert(fixed.into(), value),
                None => meta_mut(&mut new).remove(fixed),
            };
        }
        meta_mut(&mut new).remove("managedFields");
        if new == *old {
            return Ok(new);
        }
        if new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
        let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        let deleting = !new["metadata"]["deletionTimestamp"].is_null();
        let is_namespace = &*resource.plural == "namespaces";
        let held = !is_empty(&new["metadata"]["finalizers"]) || (is_namespace && !is_empty(&new["spec"]["finalizers"]));
        // A pod that runs ends when its kubelet says so, by deleting it.
        let runs = &*resource.plural == "pods" && new["spec"]["nodeName"].is_string();
        if deleting && !held && !runs {
            return Ok(self.write(resource, Happened::Deleted, new));
        }
        Ok(self.write(resource, Happened::Modified, new))
    }

    fn is_ending(&self, namespace: &str) -> bool {
        let all = self.objects.get(&(String::new(), "namespaces".to_owned()));
        let known = all.and_then(|all| all.get(&(String::new(), namespace.to_owned())));
        known.is_some_and(|namespace| !namespace["metadata"]["deletionTimestamp"].is_null())
    }

    fn write(&mut self, resource: &Resource, happened: Happened, mut value: Value) -> Value {
        self.revision += 1;
        self.writes += u64::from(&*resource.plural != "events");
        value["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let (id, key) = (id(resource), key_of(&value));
        let all = self.objects.entry(id.clone()).or_default();
        if happened == Happened::Deleted {
            all.remove(&key);
        } else {
            all.insert(key, value.clone());
        }
        self.history.push((self.revision, id.clone(), happened, value.clone()));
        let mut faults = self.faults;
        self.watchers.retain(|watcher| {
            let concerned = watcher.resource == id && within(&value, &watcher.namespace);
            !concerned || (!faults.strikes(faults.drops) && watcher.sender.send(event(happened, &value)).is_ok())
        });
        self.faults = faults;
        value
    }
}

fn within(value: &Value, namespace: &str) -> bool {
    namespace.is_empty() || value["metadata"]["namespace"] == namespace
}

fn key_of(value: &Value) -> (String, String) {
    let text = |key: &str| value["metadata"][key].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn meta_mut(value: &mut Value) -> &mut Map<String, Value> {
    machinery::value::object_mut(value, "metadata")
}

/// Five letters, different for every number.
fn suffix(mut number: u64) -> String {
    machinery::names::suffix(|among| {
        let among = among as u64;
        let picked = number % among;
        number /= among;
        usize::try_from(picked).expect("a small number")
    })
}

fn ending(resource: &Resource, namespace: &str) -> ApiError {
    let mut error = ApiError::forbidden(
        &group_resource(resource),
        "",
        &format!("unable to create new content in namespace {namespace} because it is being terminated"),
    );
    let details = error.details.get_or_insert_default();
    details.causes.push(machinery::status::Cause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    error
}
