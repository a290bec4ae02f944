//! Keeps a node's certificates valid: asks for a new one when most of the old one's life is over.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pki::{Authority, Certificate, Leaf, Pair, PrivateKey, San};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::membership::Membership;
use super::requests::{self, Purpose};
use crate::component::Failure;

const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(300);
/// Timers are set for no longer than this: the machine may sleep, and its clock may be set.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Renews the node's client certificate until it is stopped.
pub async fn keep_client(member: &Membership, stop: CancellationToken) -> Result<(), Failure> {
    let file = member.file(Purpose::Client);
    let mut current = Certificate::from_pem(&std::fs::read_to_string(&file)?)?;
    loop {
        tokio::select! {
            () = due(&current) => {}
            () = member.superseded(&current) => {}
            () = stop.cancelled() => return Ok(()),
        }
        let Some(pair) = obtain(member, Purpose::Client, &[], &stop).await else { return Ok(()) };
        pki::write_private(&file, &pair)?;
        // Connections keep the certificate that they were made with.
        member.client.reconnect();
        current = Certificate::from_pem(&pair)?;
        tracing::info!("the node's certificate was renewed and is good until {}", current.not_after);
    }
}

/// The serving certificate of the kubelet's API, and its successors.
#[derive(Clone)]
pub struct Serving {
    current: Arc<watch::Sender<Pair>>,
}

impl Serving {
    /// Begins with the certificate on disk. Without one, until the cluster has signed one, with one that nobody will believe:
    /// the kubelet's port is open from the beginning.
    pub fn begin(member: &Membership, sans: &[San]) -> Result<Self, Failure> {
        let pair = match usable(&member.file(Purpose::Serving), member, sans) {
            Some((_, pair)) => pair,
            None => unbelieved(&member.node)?,
        };
        Ok(Self { current: Arc::new(watch::channel(pair).0) })
    }

    /// The certificate to serve with.
    pub fn certificate(&self) -> watch::Receiver<Pair> {
        self.current.subscribe()
    }

    /// Asks for the certificate and renews it until it is stopped.
    pub async fn keep(&self, member: &Membership, sans: &[San], stop: CancellationToken) -> Result<(), Failure> {
        let file = member.file(Purpose::Serving);
        loop {
            if let Some((certificate, pair)) = usable(&file, member, sans) {
                self.current.send_replace(pair);
                tokio::select! {
                    () = due(&certificate) => {}
                    () = stop.cancelled() => return Ok(()),
                }
            }
            let Some(pair) = obtain(member, Purpose::Serving, sans, &stop).await else { return Ok(()) };
            pki::write_private(&file, &pair)?;
        }
    }
}

/// Waits until a certificate is to be renewed.
async fn due(certificate: &Certificate) {
    let at = requests::renewal(certificate, rand::random());
    loop {
        let left = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}

/// Asks until there is an answer; nothing if it is stopped before.
async fn obtain(member: &Membership, purpose: Purpose, sans: &[San], stop: &CancellationToken) -> Option<String> {
    let mut delay = FIRST_DELAY;
    loop {
        let asked = tokio::select! {
            asked = requests::obtain(&member.client, purpose, &member.node, sans) => asked,
            () = stop.cancelled() => return None,
        };
        match asked {
            Ok(pair) => return Some(pair),
            Err(error) => tracing::warn!("{error}; trying again in {delay:?}"),
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(LONGEST_DELAY),
            () = stop.cancelled() => return None,
        }
    }
}

/// The serving certificate on disk, if it is valid, the cluster's, and for these names.
fn usable(file: &Path, member: &Membership, sans: &[San]) -> Option<(Certificate, Pair)> {
    let text = std::fs::read_to_string(file).ok()?;
    let certificate = Certificate::from_pem(&text).ok()?;
    let authority = Certificate::from_pem(&member.authority).ok()?;
    let good = certificate.not_after > Timestamp::now()
        && certificate.subject == requests::subject(&member.node)
        && sans.iter().all(|name| certificate.sans.contains(name))
        && certificate.verify_signed_by(&authority.public_key).is_ok();
    // One text holds both; each reader takes what is its own.
    good.then(|| (certificate, Pair { chain_pem: text.clone(), key_pem: text }))
}

fn unbelieved(node: &str) -> Result<Pair, pki::Error> {
    let (now, life) = (Timestamp::now(), Duration::from_secs(86_400));
    let (authority, key) = (Authority::new("nobody", PrivateKey::generate()?, now, life)?, PrivateKey::generate()?);
    let leaf = Leaf::server(requests::subject(node), vec![San::host(node)], life);
    let certificate = authority.issue(&leaf, &key.public(), now)?;
    Ok(Pair { chain_pem: certificate.to_pem(), key_pem: key.to_pem().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_open_before_there_is_a_certificate() {
        let pair = unbelieved("n1").expect("a certificate");
        let again = Pair { chain_pem: format!("{}{}", pair.chain_pem, pair.key_pem), ..pair.clone() };
        for pair in [pair, again] {
            let authority = pair.chain_pem.clone();
            pki::server_config(&pair, &authority).expect("TLS takes it, with the key beside it or not");
        }
    }
}
