//! The cluster's PKI on disk: made at first start, renewed at later ones, never silently replaced.
//!
//! ```text
//! DIR/ca.{crt,key}                       signs everything but what the next one signs
//! DIR/front-proxy-ca.{crt,key}           signs the aggregation layer's client certificate
//! DIR/sa.{key,pub}                       signs service account tokens
//! DIR/<name>.{crt,key}                   serving and client certificates
//! ```
//! A key is written before its certificate. So a crash in between leaves a key without a certificate, or with one for the
//! key before it; both are noticed at the next start, and a new certificate is made. Only an authority whose two files do
//! not fit is an error: replacing it would lock everybody out who trusts the old one.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::authority::{Authority, Leaf};
use crate::certificate::Certificate;
use crate::disk::{self, Readers};
use crate::error::Error;
use crate::key::PrivateKey;
use crate::rotation;
use crate::subject::{San, Subject};

const DAY: Duration = Duration::from_secs(86_400);
pub(crate) const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3650);
pub(crate) const LEAF_LIFETIME: Duration = DAY.saturating_mul(365);
/// What has less than this left is renewed at start.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 90);

/// A certificate chain and its key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub chain_pem: String,
    /// PKCS#8. Secret.
    pub key_pem: String,
}

impl std::fmt::Debug for Pair {
    /// Never shows the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// What the certificates must say.
#[derive(Debug, Clone)]
pub struct Options {
    pub now: Timestamp,
    /// The address of the `kubernetes` Service.
    pub service_address: IpAddr,
    /// For example `cluster.local`.
    pub cluster_domain: String,
    /// Host names and addresses, besides the usual ones, at which clients reach the server.
    pub hosts: Vec<String>,
}

/// All keys and certificates of a control plane.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    now: Timestamp,
    /// Signs serving and client certificates.
    pub authority: Authority,
    /// Whom to believe besides, in PEM, while one authority follows another.
    others: String,
    /// Signs the aggregation layer's client certificate.
    pub front_proxy_authority: Authority,
    /// Signs service account tokens.
    pub service_account_key: PrivateKey,
    /// The API server's serving certificate.
    pub server: Pair,
    /// The API server's identity towards kubelets.
    pub kubelet_client: Pair,
    /// The aggregation layer's identity towards extension API servers.
    pub front_proxy_client: Pair,
    /// `kubernetes-admin`, of `system:masters`.
    pub admin: Pair,
    /// `system:kube-controller-manager`.
    pub controller_manager: Pair,
    /// `system:kube-scheduler`.
    pub scheduler: Pair,
    /// `system:kube-proxy`.
    pub proxy: Pair,
}

impl Cluster {
    /// Makes what is missing in `directory` and renews what is about to expire.
    pub fn ensure(directory: &Path, options: &Options) -> Result<Self, Error> {
        disk::directory(directory)?;
        let now = options.now;
        let authority = ensure_authority(directory, "ca", "kubernetes", now)?;
        let front_proxy = ensure_authority(directory, "front-proxy-ca", "front-proxy-ca", now)?;
        let service_account_key = ensure_signing_key(directory)?;
        let pair = |name: &str, leaf: Leaf| ensure_leaf(directory, name, &authority, &leaf, now);
        let client = |name: &str, user: &str, group: Option<&str>| {
            pair(name, Leaf::client(Subject::new(user, group), LEAF_LIFETIME))
        };
        let server = Leaf::server(Subject::new("kube-apiserver", []), server_names(options), LEAF_LIFETIME);
        let front_proxy_leaf = Leaf::client(Subject::new("front-proxy-client", []), LEAF_LIFETIME);
        Ok(Self {
            server: pair("apiserver", server)?,
            kubelet_client: client(
                "apiserver-kubelet-client",
                "kube-apiserver-kubelet-client",
                Some("system:masters"),
            )?,
            front_proxy_client: ensure_leaf(directory, "front-proxy-client", &front_proxy, &front_proxy_leaf, now)?,
            admin: client("admin", "kubernetes-admin", Some("system:masters"))?,
            controller_manager: client("kube-controller-manager", "system:kube-controller-manager", None)?,
            scheduler: client("kube-scheduler", "system:kube-scheduler", None)?,
            proxy: client("kube-proxy", "system:kube-proxy", None)?,
            directory: directory.to_owned(),
            now,
            authority,
            others: rotation::others(directory)?,
            front_proxy_authority: front_proxy,
            service_account_key,
        })
    }

    /// A node's identity towards the API server.
    pub fn node_client(&self, node: &str) -> Result<Pair, Error> {
        let subject = Subject::new(format!("system:node:{node}"), ["system:nodes"]);
        self.leaf(&format!("node-{node}-client"), Leaf::client(subject, LEAF_LIFETIME))
    }

    /// A node's serving certificate.
    pub fn node_server(&self, node: &str, hosts: &[String]) -> Result<Pair, Error> {
        let subject = Subject::new(format!("system:node:{node}"), ["system:nodes"]);
        let mut sans: Vec<San> = hosts.iter().map(|host| San::host(host)).chain([San::host(node)]).collect();
        sans.sort();
        sans.dedup();
        self.leaf(&format!("node-{node}-server"), Leaf::server(subject, sans, LEAF_LIFETIME))
    }

    fn leaf(&self, name: &str, leaf: Leaf) -> Result<Pair, Error> {
        ensure_leaf(&self.directory, name, &self.authority, &leaf, self.now)
    }

    /// Where all of it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The authority's certificate in PEM, as `kube-root-ca.crt` and kubeconfigs carry it; while another one follows it, both, the one that signs first.
    pub fn authority_pem(&self) -> String {
        format!("{}{}", self.authority.certificate().to_pem(), self.others)
    }
}

/// All names under which clients inside and outside reach the API server.
fn server_names(options: &Options) -> Vec<San> {
    let service = format!("kubernetes.default.svc.{}", options.cluster_domain);
    let mut names: Vec<San> =
        ["localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc", &service]
            .into_iter()
            .chain(options.hosts.iter().map(String::as_str))
            .map(San::host)
            .chain([San::Ip(options.service_address)])
            .collect();
    names.sort();
    names.dedup();
    names
}

pub(crate) fn files(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")))
}

fn about<T>(path: &Path, result: Result<T, Error>) -> Result<T, Error> {
    result.map_err(|source| Error::Content { path: path.to_owned(), source: Box::new(source) })
}

pub(crate) fn ensure_authority(directory: &Path, file: &str, name: &str, now: Timestamp) -> Result<Authority, Error> {
    let (certificate_file, key_file) = files(directory, file);
    let certificate = match disk::read(&certificate_file)? {
        None => None,
        Some(text) => Some(about(&certificate_file, Certificate::from_pem(&text))?),
    };
    let key = match (disk::read(&key_file)?, &certificate) {
        (Some(text), _) => about(&key_file, PrivateKey::from_pem(&text))?,
        // An authority whose key is kept elsewhere cannot sign what is needed here.
        (None, Some(_)) => return Err(Error::Mismatch { certificate: certificate_file, key: key_file }),
        (None, None) => {
            let key = PrivateKey::generate()?;
            disk::write(&key_file, key.to_pem(), Readers::Owner)?;
            key
        }
    };
    match certificate {
        Some(certificate) if certificate.public_key != key.public() => {
            Err(Error::Mismatch { certificate: certificate_file, key: key_file })
        }
        Some(certificate) if lasts(&certificate, now) => Ok(Authority::from_parts(certificate, key)),
        // A renewed authority keeps its name and key: whoever trusts the old certificate still trusts what it signs.
        previous => {
            let name = previous.map_or_else(|| name.to_owned(), |previous| previous.subject.common_name);
            let authority = Authority::new(&name, key, now, AUTHORITY_LIFETIME)?;
            disk::write(&certificate_file, &authority.certificate().to_pem(), Readers::Everybody)?;
            Ok(authority)
        }
    }
}

pub(crate) fn ensure_leaf(
    directory: &Path,
    name: &str,
    authority: &Authority,
    leaf: &Leaf,
    now: Timestamp,
) -> Result<Pair, Error> {
    let (certificate_file, key_file) = files(directory, name);
    if let (Some(chain_pem), Some(key_pem)) = (disk::read(&certificate_file)?, disk::read(&key_file)?)
        && still_good(&chain_pem, &key_pem, authority, leaf, now)
    {
        return Ok(Pair { chain_pem, key_pem });
    }
    let key = PrivateKey::generate()?;
    disk::write(&key_file, key.to_pem(), Readers::Owner)?;
    let certificate = authority.issue(leaf, &key.public(), now)?;
    let chain_pem = certificate.to_pem();
    disk::write(&certificate_file, &chain_pem, Readers::Everybody)?;
    Ok(Pair { chain_pem, key_pem: key.to_pem().to_owned() })
}

/// Whether what is on disk says what is wanted, will for a while, and was signed by this authority.
fn still_good(chain: &str, key: &str, authority: &Authority, leaf: &Leaf, now: Timestamp) -> bool {
    let (Ok(certificate), Ok(key)) = (Certificate::from_pem(chain), PrivateKey::from_pem(key)) else { return false };
    certificate.public_key == key.public()
        && lasts(&certificate, now)
        && certificate.subject == leaf.subject
        && leaf.sans.iter().all(|name| certificate.sans.contains(name))
        && certificate.verify_signed_by(&authority.key().public()).is_ok()
}

fn lasts(certificate: &Certificate, now: Timestamp) -> bool {
    certificate.not_before <= now && certificate.not_after.duration_since(now) > RENEW_BEFORE
}

fn ensure_signing_key(directory: &Path) -> Result<PrivateKey, Error> {
    let (key_file, public_file) = (directory.join("sa.key"), directory.join("sa.pub"));
    let key = match disk::read(&key_file)? {
        Some(text) => about(&key_file, PrivateKey::from_pem(&text))?,
        None => {
            let key = PrivateKey::generate()?;
            disk::write(&key_file, key.to_pem(), Readers::Owner)?;
            key
        }
    };
    let public = key.public().to_pem();
    if disk::read(&public_file)?.as_deref() != Some(&public) {
        disk::write(&public_file, &public, Readers::Everybody)?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn options(now: &str) -> Options {
        Options {
            now: now.parse().expect("a timestamp"),
            service_address: IpAddr::from([10, 96, 0, 1]),
            cluster_domain: "cluster.local".to_owned(),
            hosts: vec!["host-1".to_owned(), "192.0.2.7".to_owned()],
        }
    }

    fn serial(pair: &Pair) -> Vec<u8> {
        Certificate::from_pem(&pair.chain_pem).expect("a certificate").serial
    }

    #[test]
    fn everything_is_made_once_and_renewed_near_its_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let ensure = |now: &str| Cluster::ensure(directory.path(), &options(now)).expect("a PKI");
        let first = ensure("2026-01-01T00:00:00Z");
        let second = ensure("2026-06-01T00:00:00Z");
        assert_eq!(first.server, second.server);
        assert_eq!(first.authority_pem(), second.authority_pem());
        assert_eq!(first.service_account_key.to_pem(), second.service_account_key.to_pem());
        let third = ensure("2026-11-01T00:00:00Z");
        assert_ne!(serial(&second.server), serial(&third.server));
        assert_ne!(serial(&second.admin), serial(&third.admin));
        assert_eq!(second.authority_pem(), third.authority_pem());
        let late = ensure("2035-12-01T00:00:00Z");
        assert_ne!(third.authority_pem(), late.authority_pem());
        assert_eq!(third.authority.key().public(), late.authority.key().public());
    }

    #[test]
    fn the_servers_certificate_covers_every_name_and_follows_new_ones() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut options = options("2026-01-01T00:00:00Z");
        let first = Cluster::ensure(directory.path(), &options).expect("a PKI");
        let names = Certificate::from_pem(&first.server.chain_pem).expect("a certificate").sans;
        for name in
            ["localhost", "127.0.0.1", "kubernetes.default.svc.cluster.local", "10.96.0.1", "host-1", "192.0.2.7"]
        {
            assert!(names.contains(&San::host(name)), "{name}");
        }
        options.hosts.push("other".to_owned());
        let second = Cluster::ensure(directory.path(), &options).expect("a PKI");
        assert_ne!(serial(&first.server), serial(&second.server));
        assert_eq!(first.admin, second.admin);
    }

    #[test]
    fn a_crash_between_key_and_certificate_heals() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options("2026-01-01T00:00:00Z");
        let first = Cluster::ensure(directory.path(), &options).expect("a PKI");
        let other = PrivateKey::generate().expect("a key");
        fs::write(directory.path().join("admin.key"), other.to_pem()).expect("a file");
        fs::remove_file(directory.path().join("ca.crt")).expect("removed");
        let second = Cluster::ensure(directory.path(), &options).expect("a PKI");
        assert_ne!(first.admin, second.admin);
        assert_eq!(first.authority.key().public(), second.authority.key().public());
        assert_eq!(first.server, second.server);
    }

    #[test]
    fn an_authority_that_does_not_fit_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = options("2026-01-01T00:00:00Z");
        Cluster::ensure(directory.path(), &options).expect("a PKI");
        fs::write(directory.path().join("ca.key"), PrivateKey::generate().expect("a key").to_pem()).expect("a file");
        assert!(matches!(Cluster::ensure(directory.path(), &options), Err(Error::Mismatch { .. })));
        fs::write(directory.path().join("ca.key"), "nonsense").expect("a file");
        let error = Cluster::ensure(directory.path(), &options).expect_err("no key");
        assert!(error.to_string().ends_with("ca.key: no private key in PEM"), "{error}");
    }

    #[test]
    fn nodes_have_identities_of_their_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let cluster = Cluster::ensure(directory.path(), &options("2026-01-01T00:00:00Z")).expect("a PKI");
        let pair = cluster.node_client("n1").expect("a certificate");
        let subject = Certificate::from_pem(&pair.chain_pem).expect("a certificate").subject;
        assert_eq!(subject, Subject::new("system:node:n1", ["system:nodes"]));
        let hosts = ["10.0.0.5".to_owned()];
        let server = cluster.node_server("n1", &hosts).expect("a certificate");
        assert_eq!(server, cluster.node_server("n1", &hosts).expect("the same certificate"));
    }
}
