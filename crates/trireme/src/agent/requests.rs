//! Asks the cluster for certificates, and knows when to ask again.

use std::time::Duration;

use client::{Client, Event, WatchParams};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pki::{Certificate, Pair, PrivateKey, Request, San, Subject};

/// How long approval and signature may take before another request is made.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused, or could not be asked.
    #[error("certificate request: {0}")]
    Api(#[from] client::Error),
    /// Key or request could not be made, or the certificate cannot be read.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    #[error("certificate request {name} was {verdict}: {message}")]
    Refused {
        name: String,
        /// `denied` or `failed`.
        verdict: &'static str,
        message: String,
    },
    #[error("certificate request {0} was not answered in time")]
    Unanswered(String),
    /// The certificate is for another key.
    #[error("certificate request {0} was answered with a certificate for another key")]
    Foreign(String),
}

/// What a node asks certificates for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be the node towards the API server.
    Client,
    /// To be the kubelet towards the API server's calls.
    Serving,
}

impl Purpose {
    fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Self::Client => "client auth",
            Self::Serving => "server auth",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Client => "node-csr-",
            Self::Serving => "csr-",
        }
    }
}

/// The subject of a node's certificates.
pub fn subject(node: &str) -> Subject {
    Subject::new(format!("system:node:{node}"), ["system:nodes"])
}

/// Asks for a certificate with a new key and waits for it. The answer is certificate and key, in one PEM text. Secret.
pub async fn obtain(client: &Client, purpose: Purpose, node: &str, sans: &[San]) -> Result<String, Error> {
    let subject = subject(node);
    let (prefix, signer, usage) = (purpose.prefix(), purpose.signer(), purpose.usage());
    let wanted = Wanted { prefix, signer, usage, subject: &subject, sans, seconds: None, approve: false };
    let pair = ask(client, &wanted).await?;
    Ok(format!("{}{}", pair.chain_pem, pair.key_pem))
}

/// A certificate that is asked for.
pub struct Wanted<'a> {
    /// What the request's name begins with.
    pub prefix: &'a str,
    pub signer: &'a str,
    pub usage: &'a str,
    pub subject: &'a Subject,
    pub sans: &'a [San],
    /// How long it shall live at most.
    pub seconds: Option<i32>,
    /// Whether whoever asks approves it, too, and therefore has to be allowed to.
    pub approve: bool,
}

/// Asks for a certificate with a new key and waits for it.
pub async fn ask(client: &Client, wanted: &Wanted<'_>) -> Result<Pair, Error> {
    let key = PrivateKey::generate()?;
    let request = Request::new(wanted.subject, wanted.sans, &key)?;
    let made = client
        .create(&CertificateSigningRequest {
            metadata: ObjectMeta { generate_name: Some(wanted.prefix.to_owned()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(request.to_pem().into_bytes()),
                signer_name: wanted.signer.to_owned(),
                usages: Some(vec!["digital signature".to_owned(), wanted.usage.to_owned()]),
                expiration_seconds: wanted.seconds,
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        })
        .await?;
    let name = made.metadata.name.clone().unwrap_or_default();
    if wanted.approve {
        approve(client, &name, made).await?;
    }
    tracing::debug!("certificate request {name} waits for its approval");
    let answer = tokio::time::timeout(PATIENCE, answered(client, &name)).await;
    let chain = answer.map_err(|_| Error::Unanswered(name.clone()))??;
    if Certificate::from_pem(&chain)?.public_key != key.public() {
        return Err(Error::Foreign(name));
    }
    Ok(Pair { chain_pem: chain, key_pem: key.to_pem().to_owned() })
}

async fn approve(client: &Client, name: &str, mut request: CertificateSigningRequest) -> Result<(), Error> {
    request.status.get_or_insert_default().conditions.get_or_insert_default().push(
        CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("TriremeKubeconfigCreate".to_owned()),
            message: Some("Approved by whoever asked for it.".to_owned()),
            ..CertificateSigningRequestCondition::default()
        },
    );
    client
        .update_subresource::<CertificateSigningRequest, _, CertificateSigningRequest>("", name, "approval", &request)
        .await?;
    Ok(())
}

/// Watches a request until it is decided.
async fn answered(client: &Client, name: &str) -> Result<String, Error> {
    loop {
        let params = WatchParams { field_selector: format!("metadata.name={name}"), ..WatchParams::default() };
        let mut changes = client.watch::<CertificateSigningRequest>("", &params).await?;
        while let Some(change) = changes.next().await {
            if let Event::Added(request) | Event::Modified(request) = change?
                && let Some(decided) = decided(&request)
            {
                return decided;
            }
        }
    }
}

/// What became of a request, if anything did.
fn decided(request: &CertificateSigningRequest) -> Option<Result<String, Error>> {
    let status = request.status.as_ref()?;
    for condition in status.conditions.iter().flatten() {
        let verdict = match condition.type_.as_str() {
            "Denied" => "denied",
            "Failed" => "failed",
            _ => continue,
        };
        let name = request.metadata.name.clone().unwrap_or_default();
        let message = condition.message.clone().unwrap_or_default();
        return Some(Err(Error::Refused { name, verdict, message }));
    }
    let chain = status.certificate.as_ref().filter(|chain| !chain.0.is_empty())?;
    Some(Ok(String::from_utf8_lossy(&chain.0).into_owned()))
}

/// When a certificate is to be renewed: after 70 to 90 percent of its life, as `jitter` between 0 and 1 says, so that nodes
/// that joined together do not ask together.
pub fn renewal(certificate: &Certificate, jitter: f64) -> Timestamp {
    let life = certificate.not_after.duration_since(certificate.not_before).as_secs_f64();
    let share = 0.2f64.mul_add(jitter.clamp(0.0, 1.0), 0.7);
    let spent = jiff::SignedDuration::try_from_secs_f64(life * share).unwrap_or_default();
    certificate.not_before.checked_add(spent).unwrap_or(certificate.not_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pki::{Authority, Leaf};
    use serde_json::json;

    #[test]
    fn certificates_are_renewed_well_before_they_end() {
        let day = Duration::from_secs(86_400);
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a timestamp");
        let authority =
            Authority::new("test", PrivateKey::generate().expect("a key"), now, day * 3650).expect("an authority");
        let public = PrivateKey::generate().expect("a key").public();
        let made = authority.issue(&Leaf::client(subject("n1"), day * 100), &public, now).expect("a certificate");
        let days = |jitter| renewal(&made, jitter).duration_since(now).as_hours() / 24;
        assert_eq!((days(0.0), days(0.5), days(1.0), days(9.0)), (69, 79, 89, 89));
    }

    #[test]
    fn a_request_is_decided_by_its_certificate_or_its_refusal() {
        let request = |status: serde_json::Value| -> CertificateSigningRequest {
            let spec = json!({"request": "", "signerName": "x"});
            serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": spec, "status": status}))
                .expect("a request")
        };
        let approved = json!({"type": "Approved", "status": "True"});
        assert!(decided(&request(json!({}))).is_none());
        assert!(decided(&request(json!({"conditions": [approved]}))).is_none());
        let signed = decided(&request(json!({"conditions": [approved], "certificate": "eA=="})));
        assert_eq!(signed.expect("decided").expect("a certificate"), "x");
        let denied = json!({"type": "Denied", "status": "True", "message": "not you"});
        let refused = decided(&request(json!({"conditions": [denied]}))).expect("decided").expect_err("a refusal");
        assert_eq!(refused.to_string(), "certificate request r was denied: not you");
    }
}
