//! A cluster in a test: the simulated API, the controllers, nodes whose kubelets obey, and a clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Kind};
use controllers::Config;
use facts::Resource;
use informer::Clock;
use informer::clock::Fake;
use jiff::Timestamp;
use machinery::rest::User;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Faults, Line};

/// A test's cluster. Dropping it stops the controllers.
pub struct World {
    pub api: Arc<Api>,
    pub clock: Arc<Fake>,
    stop: CancellationToken,
    controllers: &'static str,
    /// Whether kubelets run what is bound to them.
    pub kubelets: bool,
    /// Signs tokens, from the next start of the controllers on.
    pub tokens: Option<Arc<dyn controllers::TokenSigner>>,
    /// What really runs: the names of pods by uid. A kubelet that is not told to stop a pod goes on with it, whatever the API holds.
    running: Mutex<BTreeMap<String, String>>,
}

/// What the client makes of a stored object.
fn typed<K: Kind>(value: &Value) -> K {
    machinery::codec::typed::from_slice(value.to_string().as_bytes(), (K::API_VERSION, K::KIND))
        .expect("stored objects decode")
}

/// The resource of a kind.
pub fn resource<K: Kind>() -> &'static Resource {
    facts::resource(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT).expect("the table of facts knows every built-in kind")
}

impl World {
    /// A cluster without faults that runs all controllers.
    pub fn start() -> Self {
        Self::with("*", Faults::default())
    }

    pub fn with(controllers: &'static str, faults: Faults) -> Self {
        let clock = Fake::at("2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a timestamp"));
        let api = Api::new(clock.clone(), faults);
        let mut world = Self {
            api,
            clock,
            stop: CancellationToken::new(),
            controllers,
            kubelets: true,
            tokens: None,
            running: Mutex::default(),
        };
        world.put::<k8s_openapi::api::core::v1::Namespace>(json!({"metadata": {"name": "default"}}));
        world.restart();
        world
    }

    /// Kills the controllers between any two instructions, and starts new ones.
    pub fn restart(&mut self) {
        self.stop.cancel();
        self.stop = CancellationToken::new();
        let line = Arc::new(Line { api: self.api.clone(), cut: self.stop.clone() });
        let informers = Client::in_process(line.clone(), User::new("system:kube-controller-manager", []));
        let clients = Arc::new(move |name: &str| {
            let name = format!("system:serviceaccount:kube-system:{name}");
            Client::in_process(line.clone(), User::new(name, ["system:serviceaccounts"]))
        });
        let mut config = Config::new(clients, informers, self.clock.clone());
        config.controllers = self.controllers.split(',').map(str::to_owned).collect();
        config.cluster_ca = Some("certificates".to_owned());
        config.network.cluster_cidrs = vec!["10.244.0.0/16".parse().expect("a range")];
        config.tokens = self.tokens.clone();
        let stop = self.stop.clone();
        tokio::spawn(async move {
            let running = controllers::run(config, stop.clone());
            // Cut off, not waited for: that is what killing means.
            tokio::select! {
                answer = running => answer.expect("the names of controllers are right"),
                () = stop.cancelled() => {}
            }
        });
    }

    /// Adds nodes that are ready.
    pub fn nodes(&self, count: usize) {
        for number in 0..count {
            self.put::<k8s_openapi::api::core::v1::Node>(json!({"metadata": {"name": format!("n{number}")}}));
            self.edit::<k8s_openapi::api::core::v1::Node>("", &format!("n{number}"), |node| {
                node["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            });
        }
    }

    /// Creates an object, past all faults.
    pub fn put<K: Kind>(&self, value: Value) -> Value {
        let resource = resource::<K>();
        let namespace = value["metadata"]["namespace"]
            .as_str()
            .unwrap_or(if resource.namespaced { "default" } else { "" })
            .to_owned();
        self.api.with(|store| store.create(resource, &namespace, value).expect("the object can be created"))
    }

    /// Changes an object and its status, past all faults.
    pub fn edit<K: Kind>(&self, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let resource = resource::<K>();
        self.api.with(|store| {
            let mut value = store.get(resource, namespace, name).expect("the object is there");
            change(&mut value);
            let metadata = value["metadata"].clone();
            let write = |store: &mut crate::api::Store, sub: &str, value: Value| loop {
                // Faults are for the controllers; a user's edit just tries again.
                let mut value = value.clone();
                machinery::value::remove(&mut value, "metadata.resourceVersion");
                match store.update(resource, namespace, name, sub, value) {
                    Ok(_) => break,
                    Err(error) if error.code == 409 => {}
                    Err(error) => panic!("{error}"),
                }
            };
            if resource.subresource("status").is_some() {
                write(store, "status", value.clone());
            }
            value["metadata"] = metadata;
            write(store, "", value);
        });
    }

    pub fn get<K: Kind>(&self, namespace: &str, name: &str) -> Option<K> {
        let value = self.api.with(|store| store.get(resource::<K>(), namespace, name)).ok()?;
        Some(typed(&value))
    }

    pub fn list<K: Kind>(&self, namespace: &str) -> Vec<K> {
        let values = self.api.with(|store| store.list(resource::<K>(), namespace));
        values.iter().map(typed).collect()
    }

    pub fn delete<K: Kind>(&self, namespace: &str, name: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        self.api.with(|store| store.delete(resource::<K>(), namespace, name, &options)).expect("the object is there");
    }

    /// Everybody does what there is to do now, kubelets and the scheduler included; time moves only for short delays.
    pub async fn settle(&self) {
        for _ in 0..200 {
            // With tokio's time paused this returns once every task waits.
            tokio::time::sleep(Duration::from_millis(1)).await;
            if self.kubelets && self.run_pods() {
                continue;
            }
            match self.clock.next_wake() {
                Some(next) if next <= Duration::from_millis(200) => self.clock.advance(next),
                _ => return,
            }
        }
    }

    /// Settles again and again while time goes by.
    pub async fn pass(&self, time: Duration) {
        let end = self.clock.monotonic() + time;
        loop {
            self.settle().await;
            let left = end.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            let step = self.clock.next_wake().unwrap_or(left).clamp(Duration::from_millis(1), left);
            self.clock.advance(step);
        }
    }

    /// The name of a pod of which two run.
    pub fn running_twice(&self) -> Option<String> {
        let running = self.running.lock();
        let mut names: Vec<&String> = running.values().collect();
        names.sort();
        names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone())
    }

    /// Binds, starts and ends pods. Whether there was anything to do.
    pub fn run_pods(&self) -> bool {
        use k8s_openapi::api::core::v1::{Node, Pod};
        let pods = self.api.with(|store| store.list(resource::<Pod>(), ""));
        let nodes = self.list::<Node>("");
        let mut worked = false;
        for (number, pod) in pods.iter().enumerate() {
            let text = |path: &str| machinery::value::text(pod, path).to_owned();
            let (namespace, name) = (text("metadata.namespace"), text("metadata.name"));
            let deleting = !pod["metadata"]["deletionTimestamp"].is_null();
            let bound = pod["spec"]["nodeName"].is_string();
            if deleting
                && bound
                && pod["status"]["phase"] != "Succeeded"
                && pod["status"]["phase"] != "Failed"
                && pod["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
            {
                self.edit::<Pod>(&namespace, &name, |pod| pod["status"]["phase"] = json!("Failed"));
                worked = true;
            } else if deleting && bound && pod["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
                let now = json!({"gracePeriodSeconds": 0});
                self.api
                    .with(|store| store.delete(resource::<Pod>(), &namespace, &name, &now))
                    .expect("the pod is there");
                self.running.lock().remove(&text("metadata.uid"));
                worked = true;
            } else if !bound && !deleting && !nodes.is_empty() {
                let node = nodes[number % nodes.len()].metadata.name.clone();
                self.edit::<Pod>(&namespace, &name, |pod| pod["spec"]["nodeName"] = json!(node));
                worked = true;
            } else if bound
                && !deleting
                && pod["status"]["phase"] == "Pending"
                && pod["metadata"]["annotations"]["test/stuck"].is_null()
            {
                let address = format!("10.244.0.{}", number + 2);
                let now = machinery::time::format(self.clock.now());
                self.running.lock().insert(text("metadata.uid"), name.clone());
                self.edit::<Pod>(&namespace, &name, |pod| {
                    pod["status"] = json!({
                        "phase": "Running",
                        "podIP": address,
                        "podIPs": [{"ip": address}],
                        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
                    });
                });
                worked = true;
            }
        }
        worked
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
