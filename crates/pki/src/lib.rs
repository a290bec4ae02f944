//! Keys and certificates: the cluster's authorities, what they sign, and how all of it lies on disk.
//!
//! [`Cluster::ensure`] is the whole story at start-up: it makes what is missing, renews what is about to expire and keeps the
//! rest. Below it, [`Authority`] signs, [`Certificate`] reads, [`Request`] is a certificate signing request and
//! [`PrivateKey`] is a key. Chains are verified by rustls, on every connection.
//!
//! Groups are repeated `O` attributes of a subject, in the order they were given; every signature is made by ring, but
//! those of keys that pods ask for ([`PodKey`]).

mod authority;
mod certificate;
mod cluster;
mod disk;
mod error;
mod etcd;
mod handover;
mod handshake;
mod key;
mod kubeconfig;
mod pod_key;
mod reception;
mod request;
mod rotation;
mod subject;
mod tls;
mod trust;
mod usage;

pub use self::trust::{trusting, trusting_everybody};
pub use authority::{Authority, Leaf};
pub use certificate::{Certificate, certificate_pem, certificates_in};
pub use cluster::{Cluster, Options, Pair};
pub use disk::write_private;
pub use error::Error;
pub use etcd::{Etcd, EtcdFiles};
pub use handover::Handover;
pub use handshake::Handshake;
pub use key::{PrivateKey, PublicKey, fingerprint};
pub use kubeconfig::kubeconfig;
pub use pod_key::{KeyType, PodKey};
pub use reception::{Clients, Reception};
pub use request::Request;
pub use rotation::Rotation;
pub use subject::{San, Subject};
pub use tls::{Believed, careless_client_config, client_config, outgoing_config, server_config, system_roots};
pub use usage::{UnknownUsage, Usage};
