//! The data directory of a server or an agent: what lies in it, and who may enter what.
//!
//! ```text
//! DIR/                     0711 where containers are below it, otherwise 0700
//!   store/ pki/ images/ backups/ manifests/ .kube/  0700, and their files 0600
//!   etcd/                  0700; what is in it is that of a process which may be running
//!   admin.kubeconfig token server.json join.json encryption.yaml 0600, as is what `make up` writes beside them: log, pid
//!   agent/                 0711, the node
//!     containerd/          0711, as is `state` in it, where containers' file systems are mounted; the rest is 0700 and 0600
//!     everything else      0700: keys, static pods, volumes, logs of pods, leases, registry credentials
//! ```
//! The kubelet's root, with the volumes, is one of them or outside ([`crate::kubelet_root`]), and is as private.
//! Every start makes it so, whatever an earlier version or a careless hand left.

use std::path::Path;

use node::private;

const SERVER: [&str; 13] = [
    ".kube",
    "manifests",
    "store",
    "pki",
    "images",
    "backups",
    "admin.kubeconfig",
    "token",
    "server.json",
    "join.json",
    "encryption.yaml",
    "log",
    "pid",
];
const NODE: [&str; 7] = ["pki", "cni", "manifests", "registries", "logs", "ipam", "seccomp"];

/// Makes a data directory, or closes the one that is there for other users.
pub fn prepare(dir: &Path, with_node: bool) -> std::io::Result<()> {
    if with_node { private::passage(dir) } else { private::directory(dir) }?;
    for name in SERVER {
        private::close(&dir.join(name))?;
    }
    if !with_node {
        return Ok(());
    }
    let node = dir.join("agent");
    private::passage(&node)?;
    // What is below these is not looked at: it belongs to pods, and nobody gets there.
    for name in NODE {
        private::directory(&node.join(name))?;
    }
    // The kubelet makes its root, if it is to be here; one that is here is closed now, before the server reports that it is ready.
    let root = node.join("kubelet");
    if root.exists() {
        private::directory(&root)?;
    }
    private::close(&node.join("cluster.json"))?;
    private::close(&node.join("pki"))
}
