//! The whole life of an object of every kind: every verb that its resource has, its status, its scale.
//!
//! Half of upstream's conformance names ask this of one kind each; here it is asked of all of them.

use client::{DeleteOptions, Dynamic, Error, Event, Gvr, ListParams, Patch, WatchParams};
use futures::StreamExt as _;
use machinery::{Value, value};
use serde_json::json;

use crate::kinds::{Sample, facts_of, samples};
use crate::server::Server;

/// A status that a patch writes, and one that an update writes, of kinds that have no conditions of any type.
const STATUSES: &[(&str, &str, &str)] = &[
    // All that it has is behind a gate that is off.
    ("CSINode", "{}", "{}"),
    ("CronJob", r#"{"lastScheduleTime": "2026-01-01T00:00:00Z"}"#, r#"{"lastScheduleTime": "2026-01-01T00:01:00Z"}"#),
    ("HorizontalPodAutoscaler", r#"{"currentReplicas": 1}"#, r#"{"currentReplicas": 2}"#),
    (
        "Ingress",
        r#"{"loadBalancer": {"ingress": [{"ip": "169.1.1.1"}]}}"#,
        r#"{"loadBalancer": {"ingress": [{"ip": "169.1.1.2"}]}}"#,
    ),
    ("PersistentVolume", r#"{"message": "patched"}"#, r#"{"message": "updated"}"#),
    (
        "PodCertificateRequest",
        r#"{"conditions": [{"type": "Denied", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}"#,
        "{}",
    ),
    (
        "ResourceClaim",
        r#"{"allocation": {"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "n1", "device": "d1"}]}}}"#,
        r#"{"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}"#,
    ),
    ("ResourceQuota", r#"{"hard": {"pods": "20"}, "used": {"pods": "2"}}"#, r#"{"used": {"pods": "3"}}"#),
    ("VolumeAttachment", r#"{"attached": true}"#, r#"{"attached": false}"#),
];

/// What is written to the status of a kind: by a patch, and by an update.
fn statuses(kind: &str) -> [Value; 2] {
    let own = STATUSES.iter().find(|(known, ..)| *known == kind);
    if let Some((_, first, second)) = own {
        return [first, second].map(|text| serde_json::from_str(text).expect("JSON"));
    }
    ["patched", "updated"].map(|message| {
        json!({"conditions": [{"type": "StatusWritten", "status": "True", "reason": "Test", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
    })
}

/// Whether all of a part is in the whole. The server itself may have added to lists: it writes conditions, too.
fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| holds(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            part.iter().all(|part| whole.iter().any(|whole| holds(whole, part)))
        }
        (whole, part) => whole == part,
    }
}

/// One object on its way.
struct Life {
    facts: &'static facts::Resource,
    calls: Dynamic,
    space: String,
    name: String,
    object: Value,
    /// A label that no other object has.
    mark: String,
}

impl Life {
    fn new(client: &client::Client, number: usize, sample: Sample) -> Self {
        let facts = facts_of(&sample.object);
        let gvr = Gvr::new(&*facts.group, &*facts.version, &*facts.plural);
        let space = value::text(&sample.object, "metadata.namespace").to_owned();
        let mark = format!("n{number}");
        let mut object = sample.object;
        object["metadata"]["labels"]["life"] = json!(mark);
        // Nobody's but the server's to count.
        object["metadata"]["generation"] = json!(42);
        Self { facts, calls: client.dynamic(&gvr), space, name: sample.name, object, mark }
    }

    fn who(&self) -> String {
        format!("{} {}", self.facts.kind, self.name)
    }

    fn done<T>(&self, what: &str, result: Result<T, Error>) -> T {
        result.unwrap_or_else(|error| panic!("{} {what}: {error}", self.who()))
    }

    async fn get(&self) -> Value {
        self.done("get", self.calls.get(&self.space, &self.name).await)
    }

    /// The names of those that a label selects, here or in all namespaces.
    async fn listed(&self, space: &str, label: &str) -> Vec<String> {
        let params = ListParams { label_selector: format!("life={label}"), ..ListParams::default() };
        let list = self.done("list", self.calls.list(space, &params).await);
        list.items.iter().map(|item| value::text(item, "metadata.name").to_owned()).collect()
    }

    /// Writes a changed object until nobody else wrote it meanwhile: the server itself writes the status of some kinds.
    async fn update(&self, subresource: &str, change: impl Fn(&mut Value)) -> Value {
        loop {
            let mut object = self.get().await;
            change(&mut object);
            match self.calls.update(&self.space, &object, subresource).await {
                Err(error) if error.is_conflict() => {}
                other => return self.done("update", other),
            }
        }
    }

    async fn patch(&self, subresource: &str, patch: Patch) -> Value {
        self.done("patch", self.calls.patch(&self.space, &self.name, subresource, &patch).await)
    }

    /// Made, found, changed in every way.
    async fn begin(&self) {
        let who = self.who();
        let made = self.done("create", self.calls.create(&self.space, &self.object).await);
        assert_eq!(value::text(&made, "metadata.name"), self.name);
        assert!(made["metadata"]["generation"].as_i64().unwrap_or(0) < 2, "{who}: {made}");
        assert_eq!(value::text(&self.get().await, "metadata.uid"), value::text(&made, "metadata.uid"), "{who}");
        assert_eq!(self.listed(&self.space, &self.mark).await, [self.name.as_str()], "{who}");
        assert_eq!(self.listed("", &self.mark).await, [self.name.as_str()], "{who}: in all namespaces");

        self.patch("", Patch::Merge(json!({"metadata": {"labels": {"merged": "yes"}}}))).await;
        self.patch("", Patch::Strategic(json!({"metadata": {"annotations": {"strategic": "yes"}}}))).await;
        self.patch("", Patch::Json(json!([{"op": "add", "path": "/metadata/labels/json", "value": "yes"}]))).await;
        self.update("", |object| object["metadata"]["labels"]["updated"] = json!("yes")).await;
        let metadata = self.get().await["metadata"].take();
        let changed =
            json!({"labels": {"merged": "yes", "json": "yes", "updated": "yes"}, "annotations": {"strategic": "yes"}});
        assert!(holds(&metadata, &changed), "{who}: {metadata}");

        if self.facts.subresource("status").is_some() {
            self.status().await;
        }
        if self.facts.subresource("scale").is_some() {
            self.scale().await;
        }
    }

    async fn status(&self) {
        let who = self.who();
        let read = async || self.done("status", self.calls.get_subresource(&self.space, &self.name, "status").await);
        let [first, second] = statuses(&self.facts.kind);
        let patched = self.patch("status", Patch::Merge(json!({"status": first}))).await;
        assert!(holds(&patched["status"], &first), "{who}: {patched}");
        assert!(holds(&read().await["status"], &first), "{who}");
        self.update("status", |object| {
            for (key, value) in second.as_object().into_iter().flatten() {
                object["status"][key] = value.clone();
            }
        })
        .await;
        let status = read().await["status"].take();
        assert!(holds(&status, &second), "{who}: {status}");
        // What is written to the object itself leaves the status alone.
        self.update("", |object| object["status"] = json!({})).await;
        assert!(holds(&self.get().await["status"], &second), "{who}");
    }

    async fn scale(&self) {
        let who = self.who();
        let read = async || self.done("scale", self.calls.get_subresource(&self.space, &self.name, "scale").await);
        let mut scale = read().await;
        assert_eq!(scale["spec"]["replicas"], self.object["spec"]["replicas"], "{who}");
        scale["spec"]["replicas"] = json!(7);
        self.done("update scale", self.calls.update(&self.space, &scale, "scale").await);
        assert_eq!(self.get().await["spec"]["replicas"], 7, "{who}");
        self.patch("scale", Patch::Merge(json!({"spec": {"replicas": 3}}))).await;
        assert_eq!(read().await["spec"]["replicas"], 3, "{who}");
        assert_eq!(self.get().await["spec"]["replicas"], 3, "{who}");
    }

    /// Lets go of an object that is held on its way out, and sees that it is gone.
    async fn gone(&self) {
        let found = self.calls.get(&self.space, &self.name).await;
        if let Ok(mut held) = found {
            assert!(!value::text(&held, "metadata.deletionTimestamp").is_empty(), "{} was deleted", self.who());
            if self.facts.kind == "Namespace" {
                held["spec"]["finalizers"] = json!([]);
                self.done("finalize", self.calls.update("", &held, "finalize").await);
            } else {
                // The server lets go of some kinds itself.
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                match self.calls.patch(&self.space, &self.name, "", &free).await {
                    Err(error) if error.is_not_found() => {}
                    other => drop(self.done("patch", other)),
                }
            }
        }
        let gone = self.calls.get(&self.space, &self.name).await;
        assert!(gone.is_err_and(|error| error.is_not_found()), "{} is gone", self.who());
    }

    /// Deleted by name, made again, and deleted with its like.
    async fn end(&self) {
        let who = self.who();
        let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        let revision = self.done("list", self.calls.list(&self.space, &ListParams::default()).await).revision;
        self.patch("", Patch::Merge(json!({"metadata": {"labels": {"last": "yes"}}}))).await;
        self.done("delete", self.calls.delete(&self.space, &self.name, &at_once).await);
        self.gone().await;
        let made = self.done("create again", self.calls.create(&self.space, &self.object).await);
        if self.facts.verbs.has("deletecollection") {
            let select = |label: &str| ListParams { label_selector: format!("life={label}"), ..ListParams::default() };
            let of_nobody = self.calls.delete_collection(&self.space, &select("nobody"), &at_once).await;
            self.done("delete collection", of_nobody);
            let kept = self.get().await;
            assert_eq!(kept["metadata"]["uid"], made["metadata"]["uid"], "{who}");
            assert!(kept["metadata"]["deletionTimestamp"].is_null(), "{who}");
            let of_mark = self.calls.delete_collection(&self.space, &select(&self.mark), &at_once).await;
            self.done("delete collection", of_mark);
        } else {
            self.done("delete again", self.calls.delete(&self.space, &self.name, &at_once).await);
        }
        self.gone().await;
        let seen = self.watched(revision).await;
        let steps: Vec<&str> = seen.split(' ').collect();
        assert!(steps.starts_with(&["MODIFIED"]) && steps.ends_with(&["DELETED"]), "{who}: {seen}");
        assert!(seen.contains("DELETED ADDED"), "{who}: {seen}");
    }

    /// The types of all that happened to the object since, up to its second end.
    async fn watched(&self, revision: String) -> String {
        let params = WatchParams {
            field_selector: format!("metadata.name={}", self.name),
            resource_version: Some(revision),
            ..WatchParams::default()
        };
        let mut events = self.done("watch", self.calls.watch(&self.space, &params).await);
        let mut seen: Vec<&str> = Vec::new();
        let follow = async {
            while seen.iter().filter(|kind| **kind == "DELETED").count() < 2 {
                match self.done("watch", events.next().await.expect("a watch goes on")) {
                    Event::Added(_) => seen.push("ADDED"),
                    Event::Modified(_) => seen.push("MODIFIED"),
                    Event::Deleted(_) => seen.push("DELETED"),
                    Event::Bookmark { .. } => {}
                    Event::Undecodable { object, .. } => panic!("cannot be read: {object:?}"),
                }
            }
        };
        testkit::eventually("the end of the object", follow).await;
        seen.join(" ")
    }
}

#[tokio::test]
async fn every_kind_lives_through_every_verb() {
    let server = Server::default().await;
    let admin = server.admin();
    let lives: Vec<Life> =
        samples().into_iter().enumerate().map(|(number, sample)| Life::new(&admin, number, sample)).collect();
    for life in &lives {
        life.begin().await;
    }
    // What others stand upon goes last.
    for life in lives.iter().rev() {
        life.end().await;
    }
    server.stop().await;
}
