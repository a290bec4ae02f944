//! With whose credentials images came here. A private image that one pod pulled is not every pod's: another one on this node
//! may use it only if it shows credentials that were good for it, or else the registry is asked again.
//!
//! A file per image, in the form of upstream's `ImagePulledRecord`, and one per pull that was begun: an image without either was
//! put here by the administrator, and is everybody's. What holds is on disk, so that a restart forgets no secret.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Secrets that are remembered for an image; more of them are asked about each time.
const SECRETS: usize = 100;

/// A secret whose credentials were good for an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretUse {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Of user name, password and the rest; never those themselves.
    pub credential_hash: String,
}

/// Who may use an image under one of its names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Access {
    /// Every pod of this node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<SecretUse>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    kind: String,
    api_version: String,
    last_updated_time: String,
    image_ref: String,
    /// By the image's name without tag and digest.
    #[serde(default)]
    credential_mapping: BTreeMap<String, Access>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Intent<'a> {
    kind: &'a str,
    api_version: &'a str,
    image: &'a str,
}

/// The records of a node, below a directory.
#[derive(Debug)]
pub(super) struct Records {
    dir: PathBuf,
}

impl Records {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Whether an image that is here must be pulled again for a pod with these secrets.
    pub(super) fn must_pull(&self, image: &str, reference: &str, secrets: impl FnOnce() -> Vec<SecretUse>) -> bool {
        let Some(record) = self.read(reference) else {
            // A record that cannot be read is as good as a pull that did not end.
            return self.pulled(reference).exists() || self.pulling(image).exists();
        };
        let Some(access) = record.credential_mapping.get(plain(image)) else { return true };
        let known = |shown: &SecretUse| access.kubernetes_secrets.iter().any(|known| good(shown, known));
        !access.node_pods_accessible && !secrets().iter().any(known)
    }

    /// A pull begins: until its end is recorded, the image is nobody's.
    pub(super) fn begin(&self, image: &str) -> std::io::Result<()> {
        let intent = Intent { kind: "ImagePullIntent", api_version: API_VERSION, image };
        write(&self.pulling(image), &serde_json::to_vec(&intent)?)
    }

    /// A pull failed. What is here of the image is as it was.
    pub(super) fn failed(&self, image: &str) {
        remove(&self.pulling(image));
    }

    /// A pull succeeded, with these credentials; without any, or with the node's own, the image is every pod's.
    pub(super) fn succeeded(
        &self,
        image: &str,
        reference: &str,
        secret: Option<SecretUse>,
        now: &str,
    ) -> std::io::Result<()> {
        let mut record = self.read(reference).unwrap_or_else(|| Record {
            kind: "ImagePulledRecord".to_owned(),
            api_version: API_VERSION.to_owned(),
            last_updated_time: String::new(),
            image_ref: reference.to_owned(),
            credential_mapping: BTreeMap::new(),
        });
        let access = record.credential_mapping.entry(plain(image).to_owned()).or_default();
        match secret {
            None => *access = Access { node_pods_accessible: true, kubernetes_secrets: Vec::new() },
            Some(_) if access.node_pods_accessible => {}
            Some(secret) => {
                let same = |known: &SecretUse| {
                    (&known.uid, &known.namespace, &known.name) == (&secret.uid, &secret.namespace, &secret.name)
                };
                access.kubernetes_secrets.retain(|known| !same(known));
                access.kubernetes_secrets.push(secret);
                let surplus = access.kubernetes_secrets.len().saturating_sub(SECRETS);
                access.kubernetes_secrets.drain(..surplus);
            }
        }
        record.last_updated_time = now.to_owned();
        write(&self.pulled(reference), &serde_json::to_vec(&record)?)?;
        remove(&self.pulling(image));
        Ok(())
    }

    /// An image is gone, and with it what is known of it.
    pub(super) fn forget(&self, reference: &str) {
        remove(&self.pulled(reference));
    }

    fn read(&self, reference: &str) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(self.pulled(reference)).ok()?).ok()
    }

    fn pulled(&self, reference: &str) -> PathBuf {
        self.dir.join("pulled").join(file(reference))
    }

    fn pulling(&self, image: &str) -> PathBuf {
        self.dir.join("pulling").join(file(image))
    }
}

/// Whether what a pod shows was good before: the same credentials, or the same secret with others by now.
fn good(shown: &SecretUse, known: &SecretUse) -> bool {
    let same_place = (&shown.uid, &shown.namespace, &shown.name) == (&known.uid, &known.namespace, &known.name);
    same_place || shown.credential_hash == known.credential_hash
}

/// The hash of credentials.
pub(super) fn hash(username: &str, password: &str) -> String {
    let digest = node::oci::sha256(format!("{username}\0{password}").as_bytes());
    digest.trim_start_matches("sha256:").to_owned()
}

/// Names hold characters that file names cannot.
fn file(name: &str) -> String {
    node::oci::sha256(name.as_bytes()).replace(':', "-")
}

/// An image's name without its tag and digest.
fn plain(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    let last = name.rfind('/').map_or(0, |at| at + 1);
    name[last..].find(':').map_or(name, |at| &name[..last + at])
}

/// Writes a file as a whole or not at all.
fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    std::fs::create_dir_all(dir)?;
    let draft = path.with_extension("tmp");
    std::fs::write(&draft, text)?;
    std::fs::rename(draft, path)
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "record of an image not removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn secret(name: &str, password: &str) -> SecretUse {
        SecretUse {
            uid: format!("uid-of-{name}"),
            namespace: "n".into(),
            name: name.into(),
            credential_hash: hash("user", password),
        }
    }

    #[test]
    fn a_private_image_is_only_for_those_who_could_pull_it() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().join("image_manager"));
        let must = |secrets: &[SecretUse]| records.must_pull("r.io/private:1", "sha256:a", || secrets.to_vec());
        assert!(!must(&[]), "the administrator put it here");
        records.begin("r.io/private:1").unwrap();
        assert!(must(&[]), "a pull that did not end says nothing");
        records.succeeded("r.io/private:1", "sha256:a", Some(secret("s", "p")), NOW).unwrap();
        assert!(must(&[]));
        assert!(must(&[secret("other", "q")]));
        assert!(!must(&[secret("s", "p")]));
        assert!(!must(&[secret("copy", "p")]), "the same credentials by another name");
        assert!(!must(&[secret("s", "renewed")]), "the same secret with other credentials");
        let own = || vec![secret("s", "p")];
        assert!(!records.must_pull("r.io/private:2", "sha256:a", own), "the tag does not matter");
        assert!(records.must_pull("elsewhere.io/private:1", "sha256:a", own), "the registry does");
        // What somebody got without credentials is everybody's, and stays so.
        records.succeeded("r.io/private:1", "sha256:a", None, NOW).unwrap();
        assert!(!must(&[]));
        records.succeeded("r.io/private:1", "sha256:a", Some(secret("s", "p")), NOW).unwrap();
        assert!(!must(&[]));
        records.forget("sha256:a");
        assert!(!must(&[]));
    }

    #[test]
    fn a_failed_pull_changes_nothing_and_no_password_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        records.begin("i:1").unwrap();
        records.failed("i:1");
        assert!(!records.must_pull("i:1", "sha256:b", Vec::new));
        records.succeeded("i:1", "sha256:b", Some(secret("s", "password")), NOW).unwrap();
        let text = std::fs::read_to_string(records.pulled("sha256:b")).unwrap();
        assert!(text.contains("\"kind\":\"ImagePulledRecord\"") && !text.contains("password"), "{text}");
        std::fs::write(records.pulled("sha256:b"), "{").unwrap();
        let own = || vec![secret("s", "password")];
        assert!(records.must_pull("i:1", "sha256:b", own), "what cannot be read is not believed");
        assert_eq!([plain("a:5000/b"), plain("a:5000/b:1"), plain("b@sha256:0")], ["a:5000/b", "a:5000/b", "b"]);
    }
}
