//! The certificates of a managed etcd, in the same directory as the cluster's.
//!
//! ```text
//! DIR/etcd-ca.{crt,key}        signs these and nothing else: whoever has a certificate of it reads every Secret
//! DIR/etcd-server.{crt,key}    shown to clients
//! DIR/etcd-peer.{crt,key}      shown to other members, who are clients and servers of each other
//! DIR/etcd-client.{crt,key}    the API server's
//! ```

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::authority::Leaf;
use crate::cluster::{LEAF_LIFETIME, ensure_authority, ensure_leaf, files};
use crate::disk;
use crate::error::Error;
use crate::subject::{San, Subject};
use crate::usage::Usage;

/// A certificate and its key, where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Where they are: etcd reads files, and reads them again for every connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    pub authority: PathBuf,
    pub server: EtcdFiles,
    pub peer: EtcdFiles,
    pub client: EtcdFiles,
}

impl Etcd {
    /// Makes what is missing in `directory` and renews what is about to expire. `hosts` are the names and addresses of this member.
    pub fn ensure(directory: &Path, member: &str, hosts: &[String], now: Timestamp) -> Result<Self, Error> {
        disk::directory(directory)?;
        let authority = ensure_authority(directory, "etcd-ca", "etcd-ca", now)?;
        let mut sans: Vec<San> =
            hosts.iter().map(String::as_str).chain(["localhost", "127.0.0.1", "::1"]).map(San::host).collect();
        sans.sort();
        sans.dedup();
        let pair = |name: &str, leaf: Leaf| -> Result<EtcdFiles, Error> {
            ensure_leaf(directory, name, &authority, &leaf, now)?;
            let (certificate, key) = files(directory, name);
            Ok(EtcdFiles { certificate, key })
        };
        // A member calls others, and its own gateway calls itself, with the certificate that it serves with.
        let both = |sans: Vec<San>| Leaf {
            subject: Subject::new(member, []),
            sans,
            usages: vec![Usage::DIGITAL_SIGNATURE, Usage::SERVER_AUTH, Usage::CLIENT_AUTH],
            lifetime: LEAF_LIFETIME,
        };
        Ok(Self {
            server: pair("etcd-server", both(sans.clone()))?,
            peer: pair("etcd-peer", both(sans))?,
            client: pair("etcd-client", Leaf::client(Subject::new("kube-apiserver-etcd-client", []), LEAF_LIFETIME))?,
            authority: files(directory, "etcd-ca").0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Certificate;

    #[test]
    fn members_have_an_authority_of_their_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let now = "2026-01-01T00:00:00Z".parse().expect("a time");
        let made = Etcd::ensure(directory.path(), "m1", &["192.0.2.1".to_owned()], now).expect("certificates");
        let read = |path: &Path| Certificate::from_pem(&std::fs::read_to_string(path).expect("a file")).expect("a PEM");
        let (authority, peer) = (read(&made.authority), read(&made.peer.certificate));
        peer.verify_signed_by(&authority.public_key).expect("signed by it");
        assert!(peer.sans.contains(&San::host("192.0.2.1")));
        for usage in [Usage::SERVER_AUTH, Usage::CLIENT_AUTH] {
            assert!(peer.extended_usages.contains(&usage), "{usage:?}");
        }
        assert!(!read(&made.client.certificate).extended_usages.contains(&Usage::SERVER_AUTH));
        assert_eq!(Etcd::ensure(directory.path(), "m1", &["192.0.2.1".to_owned()], now).expect("the same"), made);
    }
}
