//! What makes a server one of a cluster's: the keys that all of its servers share. Everything else a server signs for itself.
//!
//! All of it is secret: whoever has it *is* the cluster. It never shows in a `Debug`, and is written for its owner's eyes only.

use std::collections::BTreeMap;
use std::path::Path;

use crate::certificate::Certificate;
use crate::disk::{self, Readers};
use crate::error::Error;
use crate::key::PrivateKey;

/// Authorities, each a certificate and its key. The last one is there where etcd is managed.
const AUTHORITIES: [&str; 3] = ["ca", "front-proxy-ca", "etcd-ca"];
/// The key of service accounts.
const SERVICE_ACCOUNTS: &str = "sa.key";

/// The shared files, by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Handover {
    files: BTreeMap<String, String>,
}

impl std::fmt::Debug for Handover {
    /// Says which files there are, and never what is in them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.files.keys()).finish()
    }
}

fn names() -> impl Iterator<Item = String> {
    let pairs = AUTHORITIES.iter().flat_map(|name| [format!("{name}.key"), format!("{name}.crt")]);
    pairs.chain([SERVICE_ACCOUNTS.to_owned()])
}

impl Handover {
    /// As it lies in the directory of a server.
    pub fn read(directory: &Path) -> Result<Self, Error> {
        let mut files = BTreeMap::new();
        for name in names() {
            if let Some(text) = disk::read(&directory.join(&name))? {
                files.insert(name, text);
            }
        }
        let handover = Self { files };
        handover.check()?;
        Ok(handover)
    }

    /// As it came from a server: only files that there should be, which have to fit together.
    pub fn of(files: BTreeMap<String, String>) -> Result<Self, Error> {
        let known: Vec<String> = names().collect();
        let files = files.into_iter().filter(|(name, _)| known.contains(name)).collect();
        let handover = Self { files };
        handover.check()?;
        Ok(handover)
    }

    /// The files. Secret.
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    pub fn authority(&self) -> Result<Certificate, Error> {
        Certificate::from_pem(self.files.get("ca.crt").map_or("", String::as_str))
    }

    /// Every authority has its key, and the first two and the key of service accounts are there.
    fn check(&self) -> Result<(), Error> {
        let text = |name: &str| self.files.get(name).map_or("", String::as_str);
        PrivateKey::from_pem(text(SERVICE_ACCOUNTS))?;
        for (place, name) in AUTHORITIES.iter().enumerate() {
            let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
            if place == 2 && !self.files.contains_key(&certificate) && !self.files.contains_key(&key) {
                continue;
            }
            if Certificate::from_pem(text(&certificate))?.public_key != PrivateKey::from_pem(text(&key))?.public() {
                return Err(Error::Mismatch { certificate: certificate.into(), key: key.into() });
            }
        }
        Ok(())
    }

    /// Writes it into the directory of a new server. One that has an authority of its own stays what it is: that is another cluster's.
    pub fn install(&self, directory: &Path) -> Result<(), Error> {
        disk::directory(directory)?;
        for (name, text) in &self.files {
            let path = directory.join(name);
            if disk::read(&path)?.is_some_and(|present| present != *text) {
                return Err(Error::Foreign(path));
            }
        }
        // Keys come before certificates, as everywhere: `names` has that order.
        for name in names() {
            let Some(text) = self.files.get(&name) else { continue };
            let readers = if name.ends_with(".crt") { Readers::Everybody } else { Readers::Owner };
            disk::write(&directory.join(&name), text, readers)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Etcd, Options};

    fn options() -> Options {
        Options {
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
            service_address: [10, 96, 0, 1].into(),
            cluster_domain: "cluster.local".to_owned(),
            hosts: Vec::new(),
        }
    }

    #[test]
    fn a_second_server_has_the_first_ones_authorities_and_certificates_of_its_own() {
        let (first, second) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let one = Cluster::ensure(first.path(), &options()).expect("a PKI");
        Etcd::ensure(first.path(), "m1", &[], options().now).expect("etcd's");
        let handover = Handover::read(first.path()).expect("all of it");
        assert_eq!(handover.files().len(), 7);
        let sent = Handover::of(handover.files().clone()).expect("it fits together");
        sent.install(&second.path().join("pki")).expect("installed");
        sent.install(&second.path().join("pki")).expect("installed again, after a crash");
        let other = Cluster::ensure(&second.path().join("pki"), &options()).expect("a PKI");
        assert_eq!(one.authority_pem(), other.authority_pem());
        assert_eq!(one.service_account_key.to_pem(), other.service_account_key.to_pem());
        assert_ne!(one.server, other.server);
        let shown = format!("{handover:?}");
        assert!(shown.contains("ca.key") && !shown.contains("PRIVATE"), "{shown}");
    }

    #[test]
    fn what_does_not_fit_together_and_what_is_another_clusters_is_refused() {
        let (first, second) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        Cluster::ensure(first.path(), &options()).expect("a PKI");
        Cluster::ensure(second.path(), &options()).expect("another PKI");
        let (one, other) = (Handover::read(first.path()).expect("one"), Handover::read(second.path()).expect("other"));
        assert!(matches!(one.install(second.path()), Err(Error::Foreign(_))));
        let mut mixed = one.files().clone();
        mixed.insert("ca.key".to_owned(), other.files()["ca.key"].clone());
        assert!(Handover::of(mixed).is_err());
        let mut more = one.files().clone();
        more.insert("../../etc/passwd".to_owned(), "x".to_owned());
        assert_eq!(Handover::of(more).expect("the rest"), one);
        assert!(Handover::of(BTreeMap::new()).is_err());
    }
}
