//! Our side: the first begins a cluster, the others join it with a token.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use devnet::Machine;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use testkit::{Place, Server};

use super::{LOOK, PATIENCE, PORT, on};
use crate::report::Line;
use crate::versus::outside::{Outside, eventually};
use crate::{Failure, binary, start};

pub struct Ours {
    servers: Vec<Server>,
    /// Where the first one is.
    url: String,
    joined: Duration,
}

impl Ours {
    /// `programs` may have an etcd, which both sides take then.
    pub async fn start(machines: &[Machine], programs: Option<&Path>) -> Result<Self, Failure> {
        let etcd = programs.map(|programs| programs.join("etcd")).filter(|etcd| etcd.exists());
        let etcd = etcd.unwrap_or_else(|| PathBuf::from("etcd")).display().to_string();
        let url = format!("https://{}:{PORT}", machines[0].address);
        let mut own = Self { servers: Vec::new(), url, joined: Duration::ZERO };
        for machine in machines {
            let place =
                Place { namespace: machine.namespace.clone(), address: machine.address.into(), port: Some(PORT) };
            let (url, token) = (own.url.clone(), own.token().await?);
            let mut arguments = vec!["--disable-agent", "--etcd-binary", &etcd];
            match &token {
                None => arguments.push("--cluster-init"),
                Some(token) => arguments.extend(["--join", &url, "--token", token]),
            }
            let begun = Instant::now();
            let server = Server::start_in(start(&arguments), place).await;
            own.joined = begun.elapsed();
            own.servers.push(server);
        }
        Ok(own)
    }

    /// A token to join with, once there is something to join.
    async fn token(&self) -> Result<Option<String>, Failure> {
        let Some(first) = self.servers.first() else { return Ok(None) };
        let making = async {
            loop {
                let mut command = first.command(binary());
                command.args(["token", "create", "--server", "--bare", "--kubeconfig"]).arg(first.kubeconfig());
                let output = command.output().await?;
                if output.status.success() {
                    return Ok::<_, Failure>(Some(String::from_utf8(output.stdout)?.trim().to_owned()));
                }
                // A cluster that has just begun says a moment later how it is joined.
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, making).await.map_err(|_| "no token could be made")?
    }

    pub fn kubeconfig(&self, number: usize) -> PathBuf {
        self.servers[number].kubeconfig()
    }

    pub fn processes(&self, number: usize) -> Vec<(&'static str, u32)> {
        let server = &self.servers[number];
        let etcd = std::fs::read_to_string(server.data_dir().join("etcd/pid")).ok();
        let etcd = etcd.and_then(|text| text.split_whitespace().next()?.parse().ok());
        server.id().map(|id| ("trireme", id)).into_iter().chain(etcd.map(|id| ("etcd", id))).collect()
    }

    /// How long the third server took, and how long a node takes until it is ready.
    pub async fn joins(&self, machine: &Machine, home: &Path) -> Result<(), Failure> {
        let line = |figure: &str, took: Duration| {
            Line::new("servers").text("side", "trireme").text("figure", figure).figure("ms", took.as_secs_f64() * 1e3)
        };
        line("join_of_a_server", self.joined).at_most("ms", 5_000.0).print();
        let outside = Outside::connect(&self.kubeconfig(2)).await?;
        let nodes: Api<Node> = Api::all(outside.client());
        let (data, group) = (home.join("node"), format!("/trireme-bench-{}", std::process::id()));
        let begun = Instant::now();
        let mut agent = on(machine, &binary());
        let token = self.servers[0].data_dir().join("token");
        agent.args(["agent", "--node-name", "joined", "--cgroup-root", &group, "--server"]);
        agent.arg(&self.url).arg("--token-file").arg(token).arg("--node-ip").arg(machine.address.to_string());
        agent.arg("--data-dir").arg(&data).stdout(Stdio::null()).stderr(Stdio::null());
        let mut agent = agent.spawn()?;
        let ready = async || Ok(nodes.get_opt("joined").await?.is_some_and(|node| rules::pods::is_node_ready(&node)));
        let joined = eventually("the node is ready", LOOK, ready).await;
        let took = begun.elapsed();
        agent.kill().await?;
        let mut clean = on(machine, &binary());
        clean.args(["node", "clean", "--cgroup-root", &group, "--data-dir"]).arg(&data);
        clean.stdout(Stdio::null()).status().await?;
        joined?;
        line("join_of_a_node", took).at_most("ms", 1_000.0).print();
        nodes.delete("joined", &kube::api::DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn stop(&mut self) {
        let members: Vec<u32> = (0..self.servers.len())
            .flat_map(|number| self.processes(number))
            .filter(|(name, _)| *name == "etcd")
            .map(|(_, id)| id)
            .collect();
        for server in &mut self.servers {
            server.kill().await;
        }
        // They outlive servers that are killed.
        for id in members {
            let _ = tokio::process::Command::new("kill").args(["-KILL", &id.to_string()]).output().await;
        }
    }
}
