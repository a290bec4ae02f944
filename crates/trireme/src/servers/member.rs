//! The member of etcd that a server looks after: what it is told, how it comes into the cluster, and whom else there is.
//!
//! Members trust certificates of an authority that signs nothing else, and speak TLS with each other and with API servers only. A new one has no vote
//! until it has caught up. Which members there are is kept on disk, so that a server finds another one while its own is away.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use node::etcd as supervised;
use serde::{Deserialize, Serialize};
use store::etcd::{Etcd as Store, Members, Options as StoreOptions};

use super::join::url;
use crate::cli::Server as Options;
use crate::component::Failure;
use crate::parts::host_name;
use crate::server::Error;

/// The members that were last seen.
const SEEN: &str = "members.json";
/// Before another try where nobody could say.
const AGAIN: Duration = Duration::from_millis(800);
/// Between two looks whether a new member has caught up.
const LOOK: Duration = Duration::from_millis(50);

/// A member as others have to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    pub name: String,
    pub peer_url: String,
    /// Where it answers API servers; empty for one that has not started.
    pub client_url: String,
}

/// The member of this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// It has the host's name in it, and is never given again: a machine that is replaced is another member.
    pub name: String,
    pub address: IpAddr,
    pub client_port: u16,
    pub peer_port: u16,
    /// Whom it found when it joined; nobody, if it is the first.
    pub others: Vec<Peer>,
}

impl Member {
    /// One that has not been anywhere yet.
    pub fn new(options: &Options, address: IpAddr) -> Result<Self, Error> {
        if address.is_unspecified() {
            let message = "the other servers must reach this one at an address".to_owned();
            return Err(Error::Option { option: "advertise-address", message });
        }
        Ok(Self::at(address, options.servers.etcd_client_port, options.servers.etcd_peer_port))
    }

    /// One at an address and ports.
    pub fn at(address: IpAddr, client_port: u16, peer_port: u16) -> Self {
        let host = host_name().unwrap_or_else(|| "server".to_owned());
        let name = format!("{host}-{:08x}", rand::random::<u32>());
        Self { name, address, client_port, peer_port, others: Vec::new() }
    }

    /// As others know it.
    pub fn peer(&self) -> Peer {
        Peer { name: self.name.clone(), peer_url: self.peer_url(), client_url: self.client_url() }
    }

    /// The same among these.
    pub fn among(self, all: Vec<Peer>) -> Self {
        let others = all.into_iter().filter(|peer| peer.name != self.name).collect();
        Self { others, ..self }
    }

    fn peer_url(&self) -> String {
        url(self.address, self.peer_port)
    }

    fn client_url(&self) -> String {
        url(self.address, self.client_port)
    }

    /// What etcd is told. Which members there are counts only while it has no data.
    fn arguments(&self, data: &Path, keys: &pki::Etcd) -> Vec<String> {
        let (client, peer) = (self.client_url(), self.peer_url());
        let local = url(IpAddr::from([127, 0, 0, 1]), self.client_port);
        let listen = if self.address.is_loopback() { client.clone() } else { format!("{client},{local}") };
        let state = if self.others.is_empty() { "new" } else { "existing" };
        let cluster: Vec<String> = self
            .others
            .iter()
            .map(|other| format!("{}={}", other.name, other.peer_url))
            .chain([format!("{}={peer}", self.name)])
            .collect();
        let path = |path: &Path| path.display().to_string();
        [
            ("--name", self.name.clone()),
            ("--data-dir", path(data)),
            ("--listen-client-urls", listen),
            ("--advertise-client-urls", client),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer),
            ("--initial-cluster", cluster.join(",")),
            ("--initial-cluster-state", state.to_owned()),
            ("--initial-cluster-token", "trireme".to_owned()),
            ("--client-cert-auth", "true".to_owned()),
            ("--trusted-ca-file", path(&keys.authority)),
            ("--cert-file", path(&keys.server.certificate)),
            ("--key-file", path(&keys.server.key)),
            ("--peer-client-cert-auth", "true".to_owned()),
            ("--peer-trusted-ca-file", path(&keys.authority)),
            ("--peer-cert-file", path(&keys.peer.certificate)),
            ("--peer-key-file", path(&keys.peer.key)),
            // A leader that is lost is missed after 0.7 to 1.4 s, where etcd's own 1 to 2 s are the most that writers may have to wait in all.
            ("--heartbeat-interval", "100".to_owned()),
            ("--election-timeout", "700".to_owned()),
            // One that was away does not depose the leader when it comes back.
            ("--pre-vote", "true".to_owned()),
            // History is given up by the API servers; a snapshot now and then keeps the log of a small machine short.
            ("--snapshot-count", "10000".to_owned()),
            ("--logger", "zap".to_owned()),
            ("--log-level", "warn".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
    }
}

/// What is in a server's directory of etcd, for whoever works on it.
#[derive(Debug, Clone)]
pub struct Directory {
    pub path: PathBuf,
    pub member: Member,
    pub keys: pki::Etcd,
}

impl Directory {
    /// Makes or renews the certificates.
    pub fn open(data_dir: &Path, member: &Member) -> Result<Self, pki::Error> {
        let hosts = [member.address.to_string()].into_iter().chain(host_name()).collect::<Vec<_>>();
        let keys = pki::Etcd::ensure(&data_dir.join("pki"), &member.name, &hosts, Timestamp::now())?;
        Ok(Self { path: data_dir.join("etcd"), member: member.clone(), keys })
    }

    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub fn program(&self, program: &Path, further: &[&str]) -> supervised::Config {
        let mut arguments = self.member.arguments(&self.data(), &self.keys);
        arguments.extend(further.iter().map(|&word| word.to_owned()));
        supervised::Config { program: program.to_owned(), directory: self.path.clone(), arguments }
    }

    /// How to reach these members.
    pub fn reach(&self, endpoints: Vec<String>) -> StoreOptions {
        StoreOptions {
            endpoints,
            ca_file: Some(self.keys.authority.clone()),
            cert_file: Some(self.keys.client.certificate.clone()),
            key_file: Some(self.keys.client.key.clone()),
            ..StoreOptions::default()
        }
    }

    /// Where the member on this machine answers.
    pub fn own_endpoint(&self) -> String {
        let local = if self.member.address.is_loopback() { self.member.address } else { IpAddr::from([127, 0, 0, 1]) };
        url(local, self.member.client_port)
    }

    /// The member on this machine first, then all others that were last seen.
    pub fn endpoints(&self) -> Vec<String> {
        let seen: Vec<String> = std::fs::read(self.path.join(SEEN))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_else(|| self.member.others.iter().map(|other| other.client_url.clone()).collect());
        let own = self.member.client_url();
        let others = seen.into_iter().filter(|url| *url != own && !url.is_empty());
        [self.own_endpoint()].into_iter().chain(others).collect()
    }

    /// Forgets whom it saw: it is alone.
    pub fn forget_others(&self) -> std::io::Result<()> {
        node::private::write(&self.path.join(SEEN), "[]")
    }

    fn see(&self, members: &[store::etcd::Member]) -> Result<(), Failure> {
        let urls: Vec<&String> =
            members.iter().filter(|member| !member.learner).filter_map(|member| member.client_urls.first()).collect();
        Ok(node::private::write(&self.path.join(SEEN), serde_json::to_vec(&urls)?)?)
    }
}

/// A member under this server's supervision.
pub struct Managed {
    pub directory: Directory,
    process: supervised::Etcd,
}

impl Managed {
    /// Starts it, or adopts the one that runs, and waits until it has a vote.
    pub async fn start(options: &Options, member: &Member) -> Result<Self, Error> {
        let (data_dir, own) = (options.data_dir.clone(), member.clone());
        let directory = tokio::task::spawn_blocking(move || Directory::open(&data_dir, &own));
        let directory = directory.await.map_err(|_| Error::Panicked)??;
        let program = directory.program(&options.servers.etcd_binary, &[]);
        let process = supervised::Etcd::start(program).await.map_err(|error| Error::Joining(error.to_string()))?;
        let managed = Self { directory, process };
        if !member.others.is_empty() {
            managed.promoted().await?;
        }
        Ok(managed)
    }

    /// Waits until this member has a vote. Others are asked: one without a vote answers nobody.
    async fn promoted(&self) -> Result<(), Error> {
        let others: Vec<String> = self.directory.endpoints().into_iter().skip(1).collect();
        if others.is_empty() {
            return Ok(());
        }
        let members = Members::open(&self.directory.reach(others))?;
        let (mut is_logged, own) = (false, &self.directory.member);
        loop {
            match promote(&members, own).await {
                Ok(Some(true)) => return Ok(()),
                Ok(Some(false)) if !is_logged => {
                    tracing::info!("this server's etcd catches up with the others");
                    is_logged = true;
                }
                Ok(Some(false)) => {}
                // Without a majority nobody can say so; then this one waits for it as everybody does.
                Err(error) => {
                    tracing::warn!("etcd: {error}; trying again");
                    tokio::time::sleep(AGAIN).await;
                }
                Ok(None) => {
                    let message = format!(
                        "member {} was removed from etcd: to join again, begin with an empty data directory",
                        own.name
                    );
                    return Err(Error::Joining(message));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub async fn stop(self) {
        if let Err(error) = self.process.stop().await {
            tracing::warn!("etcd was not stopped: {error}");
        }
    }
}

/// Takes in the members as they are now.
async fn look(directory: &Directory, store: &Store) -> Result<(), Failure> {
    let members = store.members().list(true).await?;
    directory.see(&members)?;
    Ok(store.set_endpoints(&directory.endpoints())?)
}

/// Whether the member has a vote by now; nothing if there is no such member.
async fn promote(members: &Members, own: &Member) -> Result<Option<bool>, store::Error> {
    let url = own.peer_url();
    let all = members.list(true).await?;
    let Some(found) = all.iter().find(|member| member.name == own.name || member.peer_urls.contains(&url)) else {
        return Ok(None);
    };
    if !found.learner { Ok(Some(true)) } else { members.promote(found.id).await.map(Some) }
}

/// Follows the members for as long as the server runs: whenever servers come or go, members may have.
pub async fn follow(
    directory: Directory,
    store: Arc<Store>,
    client: client::Client,
    stop: tokio_util::sync::CancellationToken,
) -> Result<(), Failure> {
    use futures::StreamExt as _;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    let params = client::WatchParams { field_selector: "metadata.name=kubernetes".to_owned(), ..Default::default() };
    loop {
        let mut changes = client.watch::<EndpointSlice>("default", &params).await?;
        loop {
            look(&directory, &store).await?;
            tokio::select! {
                change = changes.next() => if !matches!(change, Some(Ok(_))) { break },
                () = stop.cancelled() => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_joins_names_the_others_and_the_first_names_itself() {
        let first = Member {
            name: "a-1".to_owned(),
            address: IpAddr::from([192, 0, 2, 1]),
            client_port: 2379,
            peer_port: 2380,
            others: Vec::new(),
        };
        let directory = tempfile::tempdir().expect("a directory");
        let keys = Directory::open(directory.path(), &first).expect("certificates").keys;
        let arguments = first.arguments(Path::new("/data"), &keys).join(" ");
        assert!(
            arguments.contains("--initial-cluster=a-1=https://192.0.2.1:2380 --initial-cluster-state=new"),
            "{arguments}"
        );
        assert!(
            arguments.contains("--listen-client-urls=https://192.0.2.1:2379,https://127.0.0.1:2379"),
            "{arguments}"
        );
        assert!(!arguments.contains("http://"), "{arguments}");
        assert!(arguments.contains("--heartbeat-interval=100 --election-timeout=700"), "{arguments}");
        let second =
            Member { name: "b-2".to_owned(), address: "fd00::2".parse().expect("an address"), ..first.clone() };
        let second = second.clone().among(vec![first.peer(), second.peer()]);
        let arguments = second.arguments(Path::new("/data"), &keys).join(" ");
        let cluster = "--initial-cluster=a-1=https://192.0.2.1:2380,b-2=https://[fd00::2]:2380";
        assert!(arguments.contains(cluster) && arguments.contains("--initial-cluster-state=existing"), "{arguments}");
        let opened = Directory { path: directory.path().to_owned(), member: second, keys };
        assert_eq!(opened.endpoints(), ["https://127.0.0.1:2379", "https://192.0.2.1:2379"]);
    }
}
