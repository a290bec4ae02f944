//! One object never stops a part: whatever users write and the API server takes, everything else goes on.
//!
//! From a sample of every kind, every field is set to null and to what else is at the edge of its type, by create, by
//! update, by patch and in the status, while all controllers, the scheduler and hollow nodes run. Most of it is refused,
//! which is as well; what is taken must neither be unreadable to any part, nor make one panic, nor keep others' objects
//! waiting. Kinds that decide about requests (webhooks, policies, priorities, other servers) may stop others' requests, and are meant to:
//! of these, nothing may be left when they are gone.
//! `TRIREME_SOAK=1` tries every edge of every field.

use std::time::Duration;

use client::{Client, DeleteOptions, Dynamic, Gvr, ListParams, Patch};
use facts::{Resource, Schema, Type};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use machinery::codec::{Limits, yaml};
use machinery::{Value, value};
use serde_json::json;

use crate::workloads::Hollow;

/// Requests under way at a time.
const AT_ONCE: usize = 16;
/// How deep the status of an object is made up.
const DEPTH: usize = 4;
/// The kind of the sample's definition. Every change of a definition ends the watches of its kind; three within moments look like a
/// watch that gets nowhere, and everything is read again, as it should be.
const REDEFINED: &str = "trireme_informer_relists_total{resource=\"foos\"}";
/// How long the kernel may look at the rules.
const NFT: Duration = Duration::from_secs(60);

/// An object as one of every kind, and where it lives.
struct Sample {
    facts: &'static Resource,
    resource: Dynamic,
    namespace: String,
    object: Value,
}

fn samples(client: &Client) -> Vec<Sample> {
    let documents = include_str!("../../../apiserver/tests/it/kinds.yaml").split("\n---\n");
    let objects = documents.map(|text| yaml::decode(text.as_bytes(), Limits::default()).expect("YAML").value);
    let sample = |object: Value| {
        let (group, version) = value::text(&object, "apiVersion").rsplit_once('/').unwrap_or(("", "v1"));
        let facts = facts::kind(group, version, value::text(&object, "kind")).expect("a built-in kind");
        let namespace = value::text(&object, "metadata.namespace").to_owned();
        let resource = client.dynamic(&Gvr::new(group, version, &*facts.plural));
        Sample { facts, resource, namespace, object }
    };
    objects.map(sample).collect()
}

/// What is at the edge of a type.
fn edges(name: &str, schema: &Schema) -> Vec<Value> {
    // That many pods would be made.
    let counts_pods = matches!(name, "replicas" | "parallelism" | "completions" | "minReplicas" | "maxReplicas");
    match schema {
        Schema::String => vec![json!(""), json!("\u{fc}/ %s"), json!("x".repeat(300))],
        Schema::Int32 if !counts_pods => vec![json!(0), json!(-1), json!(i32::MAX), json!(i32::MIN)],
        Schema::Int64 if !counts_pods => vec![json!(0), json!(-1), json!(i64::MAX), json!(i64::MIN)],
        Schema::Int32 | Schema::Int64 => vec![json!(0), json!(-1)],
        Schema::Double => vec![json!(0), json!(-1.0e308)],
        Schema::Bool => vec![json!(false), json!(true)],
        Schema::Time => {
            vec![json!("0001-01-01T00:00:00Z"), json!("9999-12-31T23:59:59Z"), json!("0000-01-01T00:00:00Z")]
        }
        Schema::MicroTime => vec![json!("0001-01-01T00:00:00.000000Z"), json!("9999-12-31T23:59:59.999999Z")],
        Schema::Quantity => vec![json!("0"), json!("-1"), json!("9223372036854775807Ei"), json!("1e30"), json!("0.1n")],
        Schema::IntOrString => vec![json!(0), json!(-1), json!(i32::MAX), json!("100%"), json!("")],
        Schema::Array(list) => vec![json!([]), json!([null]), json!([blank(&list.items)])],
        Schema::Map(_) => vec![json!({}), json!({"": null})],
        Schema::Ref(_) | Schema::Object(_) => vec![json!({})],
        Schema::Bytes => vec![json!(""), json!("AA==")],
        Schema::Duration | Schema::Any(_) => vec![],
    }
}

fn blank(schema: &Schema) -> Value {
    if schema.object().is_some() { json!({}) } else { Value::Null }
}

/// An object with every field of its type, so many levels deep.
fn filled(of: &Type, depth: usize) -> Value {
    let value = |schema: &Schema| value_of(schema, depth);
    Value::Object(of.fields().iter().map(|field| (field.name.to_string(), value(&field.schema))).collect())
}

fn value_of(schema: &Schema, depth: usize) -> Value {
    match schema {
        Schema::String | Schema::Any(_) => json!("a"),
        Schema::Bytes => json!("YQ=="),
        Schema::Int32 | Schema::Int64 | Schema::Double | Schema::IntOrString => json!(1),
        Schema::Bool => json!(true),
        Schema::Time => json!("2026-01-02T03:04:05Z"),
        Schema::MicroTime => json!("2026-01-02T03:04:05.000006Z"),
        Schema::Quantity => json!("1"),
        Schema::Duration => json!("1s"),
        Schema::Array(list) if depth > 0 => json!([value_of(&list.items, depth - 1)]),
        Schema::Map(map) if depth > 0 => json!({"a": value_of(&map.values, depth - 1)}),
        Schema::Array(_) => json!([]),
        schema => schema.object().filter(|_| depth > 0).map_or(json!({}), |of| filled(of, depth - 1)),
    }
}

/// Every place in an object, with what may be there.
fn places(value: &Value, schema: &Schema, here: &str, found: &mut Vec<(String, Schema)>) {
    let mut step = |key: &str, value: &Value, schema: &Schema| {
        let path = format!("{here}/{}", key.replace('~', "~0").replace('/', "~1"));
        found.push((path.clone(), schema.clone()));
        places(value, schema, &path, found);
    };
    match (schema, value) {
        (Schema::Array(list), Value::Array(items)) => {
            items.iter().enumerate().for_each(|(at, item)| step(&at.to_string(), item, &list.items));
        }
        (Schema::Map(map), Value::Object(entries)) => {
            entries.iter().for_each(|(key, entry)| step(key, entry, &map.values));
        }
        (schema, Value::Object(fields)) => {
            let known = |key: &str| schema.object()?.field(key).map(|field| field.schema.clone());
            for (key, value) in fields {
                if let Some(schema) = known(key) {
                    step(key, value, &schema);
                }
            }
        }
        _ => {}
    }
}

impl Sample {
    fn name(&self) -> &str {
        value::text(&self.object, "metadata.name")
    }

    fn ty(&self) -> Schema {
        Schema::Ref(self.facts.ty.expect("a type"))
    }

    /// The places in an object but its names, with the values to be tried there.
    fn trials(&self, object: &Value) -> Vec<(String, Value)> {
        let mut found = Vec::new();
        places(object, &self.ty(), "", &mut found);
        let names = ["/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace"];
        found.retain(|(path, _)| !names.contains(&path.as_str()));
        let all = std::env::var_os("TRIREME_SOAK").is_some();
        let mut trials = Vec::new();
        for (number, (path, schema)) in found.into_iter().enumerate() {
            let edges = edges(path.rsplit('/').next().unwrap_or_default(), &schema);
            trials.push((path.clone(), Value::Null));
            if all {
                trials.extend(edges.into_iter().map(|edge| (path.clone(), edge)));
            } else if !edges.is_empty() {
                trials.push((path, edges[number % edges.len()].clone()));
            }
        }
        trials
    }

    /// Whether objects of this kind decide about the requests of others.
    fn is_gate(&self) -> bool {
        // A group whose server does not answer keeps namespaces from going, as upstream: nobody knows what is in them.
        let gates = ["admissionregistration.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"];
        gates.contains(&&*self.facts.group)
    }

    /// Tries everything; how much of it was taken.
    async fn poison(&self) -> usize {
        let (resource, space) = (&self.resource, &*self.namespace);
        let mut taken = usize::from(resource.create(space, &self.object).await.is_ok());
        let trials = self.trials(&self.object);
        for (number, (path, edge)) in trials.iter().filter(|(_, edge)| edge.is_null()).enumerate() {
            let mut odd = self.object.clone();
            *odd.pointer_mut(path).expect("a place that was found") = edge.clone();
            value::set(&mut odd, "metadata.name", format!("{}-odd-{number}", self.name()));
            taken += usize::from(resource.create(space, &odd).await.is_ok());
        }
        for (path, edge) in &trials {
            taken += self.patch("", path, edge).await;
            taken += self.update(path, edge).await;
        }
        if self.facts.subresource("status").is_some()
            && let Some(of) =
                self.ty().object().and_then(|of| of.field("status")).and_then(|status| status.schema.object())
        {
            // The whole of it may be refused because of one field; then each is put in alone.
            let status = filled(of, DEPTH);
            self.patch("status", "/status", &json!({})).await;
            taken += self.patch("status", "/status", &status).await;
            for (field, value) in status.as_object().into_iter().flatten() {
                taken += self.patch("status", &format!("/status/{field}"), value).await;
            }
            let whole = json!({"status": status});
            for (path, edge) in self.trials(&whole) {
                taken += self.patch("status", &path, &edge).await;
            }
        }
        taken
    }

    /// Writes the sample with one odd value over what is there, so that of all fields only that one is odd.
    async fn update(&self, path: &str, edge: &Value) -> usize {
        let Ok(stored) = self.resource.get(&self.namespace, self.name()).await else { return 0 };
        let mut odd = self.object.clone();
        *odd.pointer_mut(path).expect("a place that was found") = edge.clone();
        let Some(metadata) = odd.get_mut("metadata").and_then(Value::as_object_mut) else { return 0 };
        metadata.insert("resourceVersion".to_owned(), json!(value::text(&stored, "metadata.resourceVersion")));
        usize::from(self.resource.update(&self.namespace, &odd, "").await.is_ok())
    }

    /// Deletes what was made of the sample.
    async fn delete(&self) {
        let found = self.resource.list(&self.namespace, &ListParams::default()).await.expect("a list");
        for object in &found.items {
            let name = value::text(object, "metadata.name");
            if name.starts_with(self.name()) {
                self.resource.delete(&self.namespace, name, &DeleteOptions::default()).await.expect("a deletion");
            }
        }
    }

    async fn patch(&self, subresource: &str, path: &str, edge: &Value) -> usize {
        let patch = Patch::Json(json!([{"op": "add", "path": path, "value": edge}]));
        usize::from(self.resource.patch(&self.namespace, self.name(), subresource, &patch).await.is_ok())
    }
}

/// What a node makes of the Services and their endpoints: packet rules that the kernel would take, and names.
async fn serve(client: &Client) {
    let services = client.list::<Service>("", &ListParams::default()).await.expect("Services");
    let slices = client.list::<EndpointSlice>("", &ListParams::default()).await.expect("slices");
    assert_eq!((services.undecodable, slices.undecodable), (vec![], vec![]));
    assert!(services.items.len() > 5 && slices.items.len() > 5, "some were taken");
    let (services, slices) = (services.items, slices.items);
    let node = proxy::NodeView { name: "hollow-0".to_owned(), ..proxy::NodeView::default() };
    let rules = proxy::rules::Rules::build(services.iter().map(|one| &**one), slices.iter().map(|one| &**one), node);
    // Checked by the kernel, and not put into force.
    let checked = node::run::output("nft", &["-c", "-f", "-"], rules.replacement().as_bytes(), NFT).await;
    assert!(checked.is_ok(), "{checked:?}");
    for service in &services {
        let _entry = dns::zone::Entry::of(service, slices.iter().map(|slice| &**slice));
    }
}

/// What shows that each part goes on: its work on objects that nobody spoilt.
const AFTER: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: all}
spec: {hard: {pods: "20"}}
"#;

/// Writes everything odd that the samples give; how much of it was taken.
async fn poison(samples: &[&Sample]) -> usize {
    futures::stream::iter(samples)
        .map(|sample| sample.poison())
        .buffer_unordered(AT_ONCE)
        .fold(0, async |all, some| all + some)
        .await
}

/// New objects find every part at work, and nothing was set aside or caught on the way.
async fn goes_on(cluster: &Hollow) {
    cluster.k("create namespace after").await;
    cluster.kubectl.run_with(&["apply", "-n", "after", "-f", "-"], AFTER).await;
    for line in [
        "rollout status -n after deployment/web --timeout=60s",
        "rollout status -n after statefulset/db --timeout=60s",
        "wait -n after --for=jsonpath={.status.currentHealthy}=2 pdb/web --timeout=60s",
        "wait -n after --for=jsonpath={.status.used.pods}=3 quota/all --timeout=60s",
        "wait -n after --for=jsonpath={.endpoints[1].conditions.ready}=true endpointslice -l kubernetes.io/service-name=web --timeout=60s",
        "delete namespace after --timeout=60s",
    ] {
        cluster.k(line).await;
    }
    let figures = cluster.server.client().raw("/metrics").await.expect("figures");
    let figures = String::from_utf8_lossy(&figures);
    let troubles =
        ["trireme_panics_total{", "trireme_informer_relists_total{", "trireme_informer_undecodable_objects_total{"];
    let counted: Vec<&str> = figures
        .lines()
        .filter(|line| troubles.iter().any(|trouble| line.starts_with(trouble)) && !line.starts_with(REDEFINED))
        .collect();
    let log = cluster.server.log_text();
    let panics: Vec<&str> =
        log.lines().filter(|line| line.contains("panicked") || line.contains("cannot be decoded")).collect();
    assert!(counted.is_empty() && panics.is_empty(), "{}\n{}", counted.join("\n"), panics.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_users_write_everything_else_goes_on() {
    let cluster = Hollow::start(2).await;
    let client = cluster.server.client();
    let samples = samples(&client);
    // Namespaces first: others live in them.
    for sample in samples.iter().filter(|sample| sample.facts.kind == "Namespace") {
        let _ = sample.resource.create("", &sample.object).await;
    }
    let taken = poison(&samples.iter().filter(|sample| !sample.is_gate()).collect::<Vec<_>>()).await;
    assert!(taken > 500, "only {taken} odd objects were taken");
    goes_on(&cluster).await;
    serve(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_decided_about_requests_leaves_nothing_behind() {
    let cluster = Hollow::start(2).await;
    let samples = samples(&cluster.server.client());
    let gates: Vec<&Sample> = samples.iter().filter(|sample| sample.is_gate()).collect();
    let taken = poison(&gates).await;
    assert!(taken > 50, "only {taken} odd objects were taken");
    for sample in gates {
        sample.delete().await;
    }
    goes_on(&cluster).await;
}
