//! Upstream's side: on each machine a member of etcd, an API server that asks this one first, a controller manager and a scheduler.

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use devnet::Machine;
use tokio::process::Child;

use super::{LOOK, PATIENCE, PORT, on};
use crate::Failure;
use crate::versus::upstream::{api_server_arguments, client_arguments};

const CLIENT: u16 = 2379;
const PEER: u16 = 2380;

pub struct Theirs {
    home: PathBuf,
    /// By machine.
    children: Vec<Vec<(&'static str, Child)>>,
}

impl Theirs {
    pub async fn start(programs: &Path, machines: &[Machine], home: &Path) -> Result<Self, Failure> {
        let mut own = Self { home: home.to_owned(), children: machines.iter().map(|_| Vec::new()).collect() };
        own.certificates(machines)?;
        for number in 0..machines.len() {
            own.start_etcd(programs, machines, number)?;
        }
        for (number, machine) in machines.iter().enumerate() {
            own.start_api_server(programs, machines, number)?;
            own.ready(number).await?;
            // The first of them leads.
            for name in ["kube-controller-manager", "kube-scheduler"] {
                let kubeconfig = own.path(&format!("{number}-{name}.kubeconfig"));
                let mut arguments = client_arguments(name, &kubeconfig, &own.path("pki"));
                arguments.push("--bind-address=127.0.0.1".to_owned());
                own.spawn(programs.join(name), machine, number, name, &arguments)?;
            }
            if number == 0 {
                own.leads().await?;
            }
        }
        Ok(own)
    }

    pub fn kubeconfig(&self, number: usize) -> PathBuf {
        self.path(&format!("{number}-admin.kubeconfig"))
    }

    pub fn processes(&self, number: usize) -> Vec<(&'static str, u32)> {
        self.children[number].iter().filter_map(|(name, child)| Some((*name, child.id()?))).collect()
    }

    pub async fn stop(&mut self) {
        for (_, child) in self.children.iter_mut().flatten().rev() {
            let _ = child.kill().await;
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// One set for all machines.
    fn certificates(&self, machines: &[Machine]) -> Result<(), Failure> {
        let hosts: Vec<String> = machines.iter().map(|machine| machine.address.to_string()).collect();
        let options = pki::Options {
            now: jiff::Timestamp::now(),
            service_address: IpAddr::from([10, 96, 0, 1]),
            cluster_domain: "cluster.local".to_owned(),
            hosts: hosts.clone(),
        };
        let cluster = pki::Cluster::ensure(&self.path("pki"), &options)?;
        pki::Etcd::ensure(&self.path("pki"), "member", &hosts, options.now)?;
        let users = [
            ("admin", "kubernetes-admin", &cluster.admin),
            ("kube-controller-manager", "system:kube-controller-manager", &cluster.controller_manager),
            ("kube-scheduler", "system:kube-scheduler", &cluster.scheduler),
        ];
        for (number, machine) in machines.iter().enumerate() {
            let server = format!("https://{}:{PORT}", machine.address);
            for (file, user, pair) in &users {
                let text = pki::kubeconfig(&server, &cluster.authority_pem(), user, pair);
                pki::write_private(&self.path(&format!("{number}-{file}.kubeconfig")), &text)?;
            }
        }
        Ok(())
    }

    fn start_etcd(&mut self, programs: &Path, machines: &[Machine], number: usize) -> Result<(), Failure> {
        let url = |machine: &Machine, port: u16| format!("https://{}:{port}", machine.address);
        let file = |name: &str| self.path("pki").join(name).display().to_string();
        let machine = &machines[number];
        let (client, peer) = (url(machine, CLIENT), url(machine, PEER));
        let all: Vec<String> =
            machines.iter().enumerate().map(|(at, machine)| format!("m{at}={}", url(machine, PEER))).collect();
        let arguments = [
            format!("--name=m{number}"),
            format!("--data-dir={}", self.path(&format!("{number}-etcd")).display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}", all.join(",")),
            "--client-cert-auth=true".to_owned(),
            format!("--trusted-ca-file={}", file("etcd-ca.crt")),
            format!("--cert-file={}", file("etcd-server.crt")),
            format!("--key-file={}", file("etcd-server.key")),
            "--peer-client-cert-auth=true".to_owned(),
            format!("--peer-trusted-ca-file={}", file("etcd-ca.crt")),
            format!("--peer-cert-file={}", file("etcd-peer.crt")),
            format!("--peer-key-file={}", file("etcd-peer.key")),
            // As ours: etcd's own would find out a third later that a leader is gone.
            "--heartbeat-interval=100".to_owned(),
            "--election-timeout=700".to_owned(),
            "--logger=zap".to_owned(),
            "--log-level=error".to_owned(),
        ];
        let own = programs.join("etcd");
        // The last resort is the one on PATH.
        let program = if own.exists() { own } else { PathBuf::from("etcd") };
        self.spawn(program, machine, number, "etcd", &arguments)
    }

    fn start_api_server(&mut self, programs: &Path, machines: &[Machine], number: usize) -> Result<(), Failure> {
        let (machine, file) = (&machines[number], |name: &str| self.path("pki").join(name).display().to_string());
        let mut arguments = api_server_arguments(&self.home, &self.path("pki"), PORT);
        // As kubeadm has it: the member on its own machine.
        arguments.extend([
            format!("--etcd-servers=https://{}:{CLIENT}", machine.address),
            format!("--etcd-cafile={}", file("etcd-ca.crt")),
            format!("--etcd-certfile={}", file("etcd-client.crt")),
            format!("--etcd-keyfile={}", file("etcd-client.key")),
            format!("--bind-address={}", machine.address),
            format!("--advertise-address={}", machine.address),
        ]);
        self.spawn(programs.join("kube-apiserver"), machine, number, "kube-apiserver", &arguments)
    }

    fn spawn(
        &mut self,
        program: PathBuf,
        machine: &Machine,
        number: usize,
        name: &'static str,
        arguments: &[String],
    ) -> Result<(), Failure> {
        let log = File::create(self.path(&format!("{number}-{name}.log")))?;
        let mut command = on(machine, &program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.children[number].push((name, command.spawn().map_err(|error| format!("{name}: {error}"))?));
        Ok(())
    }

    async fn ready(&self, number: usize) -> Result<(), Failure> {
        let client = client::Client::https(client::Config::from_kubeconfig(self.kubeconfig(number))?)?;
        let ready = async {
            while client.raw("/readyz").await.is_err() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, ready).await;
        Ok(waited.map_err(|_| format!("upstream's server {number} did not become ready: {}", self.log(number)))?)
    }

    fn log(&self, number: usize) -> String {
        std::fs::read_to_string(self.path(&format!("{number}-kube-apiserver.log"))).unwrap_or_default()
    }

    /// Waits until somebody schedules.
    async fn leads(&self) -> Result<(), Failure> {
        use k8s_openapi::api::coordination::v1::Lease;
        let client = client::Client::https(client::Config::from_kubeconfig(self.kubeconfig(0))?)?;
        let led = async {
            while client.get::<Lease>("kube-system", "kube-scheduler").await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, led).await.map_err(|_| "upstream's scheduler does not begin".into())
    }
}
