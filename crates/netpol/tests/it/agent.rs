//! The whole agent: a real API server, the agent in the node's namespace, packets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, DeleteOptions, Patch};
use informer::Informers;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use netpol::{Attachment, Kind, Network};
use serde_json::json;
use testkit::Cluster;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Left, bridged, on_both_engines_async};
use crate::net::Net;

on_both_engines_async!(
    policies_are_in_force_within_moments_and_outlive_the_agent,
    a_policy_that_comes_and_goes_lets_nothing_through_that_another_forbids,
);

pub struct Agent {
    pub network: Network,
    shutdown: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Agent {
    pub fn start(net: &Net, client: Client, kind: Kind) -> Self {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let (say, hear) = std::sync::mpsc::channel();
        let thread = net.spawn_inside("node", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = netpol::Config { node_name: "node".into(), served: Vec::new(), engine: kind };
                let informers = Informers::new(client);
                let agent = netpol::Agent::new(config, &informers).unwrap();
                say.send(agent.network()).unwrap();
                agent.run(stop).await.unwrap();
            });
        });
        Self { network: hear.recv().unwrap(), shutdown, thread: Some(thread) }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pod(number: u8) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": format!("pod{number}"), "labels": {"app": format!("app{number}")}},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 80}]}]},
    }))
    .unwrap()
}

fn policy(name: &str, spec: serde_json::Value) -> NetworkPolicy {
    serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name}, "spec": spec})).unwrap()
}

/// Asks until the answer is right; how long that took.
pub fn until(mut answer: impl FnMut() -> String, right: impl Fn(&str) -> bool) -> Duration {
    let start = Instant::now();
    loop {
        let said = answer();
        if right(&said) {
            return start.elapsed();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "still {said}");
        std::thread::yield_now();
    }
}

pub async fn begin(api: &Client) {
    let default = json!({"metadata": {"name": "default"}});
    // The server makes the namespace itself; whoever is first.
    let _ = api.create(&serde_json::from_value::<Namespace>(default).unwrap()).await;
}

/// Makes so many pods and tells the agent of them.
pub async fn attach(api: &Client, agent: &Agent, pods: u8) {
    for number in 0..pods {
        let pod = Arc::new(api.create(&pod(number)).await.unwrap());
        let address = format!("10.1.0.{}", number + 2).parse().unwrap();
        agent.network.attach(Attachment { pod, addresses: vec![address], port: None }).await.unwrap();
    }
}

async fn policies_are_in_force_within_moments_and_outlive_the_agent(kind: Kind) {
    let cluster = Cluster::start().await;
    let net = bridged(2);
    let _left = Left(&net);
    let api = cluster.in_process();
    begin(&api).await;
    let mut pods = Vec::new();
    for number in 0..2 {
        pods.push(Arc::new(api.create(&pod(number)).await.unwrap()));
    }
    let agent = Agent::start(&net, cluster.in_process(), kind);
    // A policy that is there before a pod has its address is in force with its first packet: the word comes after the kernel's.
    let deny = policy("deny", json!({"podSelector": {"matchLabels": {"app": "app0"}}}));
    api.create(&deny).await.unwrap();
    until(|| net.ruleset().to_string(), |rules| rules.contains("trireme-netpol"));
    for (number, pod) in pods.iter().enumerate() {
        let address = format!("10.1.0.{}", number + 2).parse().unwrap();
        agent.network.attach(Attachment { pod: pod.clone(), addresses: vec![address], port: None }).await.unwrap();
    }
    assert_eq!(net.ask("pod1", "10.1.0.2:80"), "silence");
    // Whoever looks at the figures sees which policy it was, once the API shows whose addresses they are.
    for number in [1, 0] {
        let status = json!({"status": {"podIPs": [{"ip": format!("10.1.0.{}", number + 2)}]}});
        api.patch_status::<Pod>("default", &format!("pod{number}"), &Patch::Merge(status)).await.unwrap();
    }
    let denied = || netpol::figures::VERDICTS.value(&["default", "deny", "ingress", "denied"]);
    until(|| net.ask("pod1", "10.1.0.2:80"), |said| said == "silence" && denied() > 0.0);

    let about_it = |event: &Event| {
        event.reason.as_deref() == Some("NetworkPolicyDenied") && event.involved_object.name.as_deref() == Some("pod0")
    };
    let events = testkit::objects::<Event>(&api, "default", "an Event of the pod", |events| {
        events.iter().any(|event| about_it(event))
    });
    let told = events.await.into_iter().find(|event| about_it(event)).and_then(|event| event.message.clone());
    let want =
        "Denied ingress from default/pod1 (10.1.0.3) to default/pod0 (10.1.0.2) port 80/TCP: isolated by default/deny";
    assert_eq!(told.as_deref(), Some(want));

    let mut spec = json!({"podSelector": {"matchLabels": {"app": "app0"}}, "ingress": [
        {"from": [{"podSelector": {"matchLabels": {"app": "app1"}}}], "ports": [{"port": "web"}]}]});
    let begun = Instant::now();
    let made = api.create(&policy("allow", spec.clone())).await.unwrap();
    // Silence takes as long as one is patient: the first answer comes with the first packet that passes.
    let flow = || net.ask("pod1", "10.1.0.2:80");
    until(flow, |said| said == "pod0 10.1.0.3");
    println!("apply to first answer: {:?}", begun.elapsed());
    let allowed = || netpol::figures::VERDICTS.value(&["default", "allow", "ingress", "allowed"]);
    until(flow, |said| said == "pod0 10.1.0.3" && allowed() > 0.0);
    spec["ingress"][0]["ports"] = json!([{"port": 81}]);
    let mut changed = policy("allow", spec);
    changed.metadata = made.metadata;
    api.update(&changed).await.unwrap();
    until(|| net.ask("pod1", "10.1.0.2:81"), |said| said == "pod0 10.1.0.3");
    assert_eq!(net.ask("pod1", "10.1.0.2:80"), "silence");

    // Without the agent all stays in force; the next one takes over, and brings back what somebody else throws away.
    drop(agent);
    assert_eq!(net.ask("pod1", "10.1.0.2:80"), "silence");
    assert_eq!(net.ask("pod1", "10.1.0.2:81"), "pod0 10.1.0.3");
    let agent = Agent::start(&net, cluster.in_process(), kind);
    for (number, pod) in pods.iter().enumerate() {
        let address = format!("10.1.0.{}", number + 2).parse().unwrap();
        agent.network.attach(Attachment { pod: pod.clone(), addresses: vec![address], port: None }).await.unwrap();
    }
    let mut harms = vec!["flush ruleset", "delete table inet trireme-netpol"];
    if kind == Kind::Nftables {
        harms.push("flush map inet trireme-netpol ingress-isolated4");
    }
    for harm in harms {
        net.nft(harm);
        until(|| net.ask("pod1", "10.1.0.2:80"), |said| said == "silence");
        until(|| net.ask("pod1", "10.1.0.2:81"), |said| said == "pod0 10.1.0.3");
    }
    // A pod that is gone leaves nothing behind.
    agent.network.detach(pods[0].metadata.uid.as_deref().unwrap());
    until(|| net.ask("pod1", "10.1.0.2:80"), |said| said == "pod0 10.1.0.3");
    api.delete::<NetworkPolicy>("default", "deny", &DeleteOptions::default()).await.unwrap();
    cluster.stop().await;
}

async fn a_policy_that_comes_and_goes_lets_nothing_through_that_another_forbids(kind: Kind) {
    let cluster = Cluster::start().await;
    let net = bridged(2);
    let _left = Left(&net);
    let api = cluster.in_process();
    begin(&api).await;
    let agent = Agent::start(&net, cluster.in_process(), kind);
    attach(&api, &agent, 2).await;
    // Port 80 is allowed all the time, port 81 never; a third policy about the same pods comes and goes.
    let always = json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]});
    api.create(&policy("always", always)).await.unwrap();
    until(|| net.ask("pod1", "10.1.0.2:81"), |said| said == "silence");
    let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
    let (token, done) = (stop.clone(), stopped.clone());
    let other =
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "nobody"}}}]}]});
    let changer = cluster.in_process();
    let changes = tokio::spawn(async move {
        let mut count = 0;
        while count < 1_000 && !token.is_cancelled() {
            changer.create(&policy("other", other.clone())).await.unwrap();
            changer.delete::<NetworkPolicy>("default", "other", &DeleteOptions::default()).await.unwrap();
            count += 1;
        }
        done.cancel();
        count
    });
    let (mut allowed, mut denied) = (0, 0);
    let limit = Instant::now() + Duration::from_secs(20);
    while !stopped.is_cancelled() && Instant::now() < limit {
        for _ in 0..20 {
            assert_eq!(net.ask("pod1", "10.1.0.2:80"), "pod0 10.1.0.3", "after {allowed}");
            allowed += 1;
        }
        assert_eq!(net.ask("pod1", "10.1.0.2:81"), "silence", "after {denied}");
        denied += 1;
    }
    stop.cancel();
    let count = changes.await.unwrap();
    println!("{count} times made and deleted, {allowed} connections allowed, {denied} denied");
    assert!(count >= 20 && allowed >= 20);
    cluster.stop().await;
}
