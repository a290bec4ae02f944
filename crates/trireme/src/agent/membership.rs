//! A node's membership in a cluster, on disk: whom to trust, and who we are.
//!
//! ```text
//! DIR/ca.crt         the cluster's authority
//! DIR/client.pem     certificate and key of the node, in one file so that they are replaced together
//! DIR/serving.pem    certificate and key of the kubelet's API, likewise
//! ```
//! A node joins with a token once. Later starts use what is here; a certificate that has ended, is another node's or is of
//! another cluster is replaced by joining again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::config::{Credentials, Trust};
use client::{Client, Config};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use pki::Certificate;

use super::requests::{self, Purpose};
use super::token::Token;
use crate::parts::joining;

const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// When a node that runs asks again who signs: so soon after its start, and then less and less often.
const FIRST_LOOK: Duration = Duration::from_secs(10);
const LONGEST_LOOK: Duration = Duration::from_secs(3600);
/// How long a server may take to say whom it believes; a node that starts does not depend on it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a node is not a member.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A file cannot be written, or holds no certificate.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// There is no way in.
    #[error("this machine is not a member of the cluster yet: give --token (and for a token without a pin, --ca-file)")]
    NoToken,
    /// The server shows another authority than the token names.
    #[error(
        "the server's authority is not the one that the token names: either the token is another cluster's, or somebody is in between"
    )]
    Pin,
    /// The server's address or the credentials are unusable.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// Settings of the client are unusable.
    #[error(transparent)]
    Config(#[from] client::config::Error),
    /// The cluster tells nobody how to join.
    #[error("the server does not say how to join it: {0}")]
    Discovery(String),
    /// The token does not open the door.
    #[error("the cluster does not accept the token: {0}")]
    Token(client::Error),
    /// No certificate was given.
    #[error(transparent)]
    Request(#[from] requests::Error),
}

impl Error {
    /// Whether trying again may help: the server may not be up yet.
    pub fn is_passing(&self) -> bool {
        let passing = |error: &client::Error| match error {
            client::Error::Transport(_) | client::Error::Timeout(_) => true,
            other => other.code().is_some_and(|code| code >= 500 || code == 429),
        };
        match self {
            Self::Client(error) | Self::Request(requests::Error::Api(error)) => passing(error),
            // A server that has just begun says so a moment later.
            Self::Discovery(_) | Self::Request(requests::Error::Unanswered(_)) => true,
            _ => false,
        }
    }
}

/// How to get in.
#[derive(Debug, Clone)]
pub struct Invitation {
    pub server: String,
    /// Proves that we may join.
    pub token: Option<Token>,
    /// The cluster's authority, where it was brought along.
    pub authority: Option<String>,
}

#[derive(Clone)]
pub struct Membership {
    directory: PathBuf,
    pub node: String,
    /// The cluster's authority, in PEM.
    pub authority: String,
    /// The node towards the API server.
    pub client: Client,
    server: String,
}

impl Membership {
    /// Continues as the member that we are, or joins. A server that is not there yet is waited for.
    pub async fn ensure(directory: PathBuf, node: &str, invitation: &Invitation) -> Result<Self, Error> {
        let mut delay = FIRST_DELAY;
        loop {
            match Self::ensure_once(&directory, node, invitation).await {
                Err(error) if error.is_passing() => {
                    tracing::warn!("{error}; trying again in {delay:?}");
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(LONGEST_DELAY);
                }
                outcome => return outcome,
            }
        }
    }

    async fn ensure_once(directory: &Path, node: &str, invitation: &Invitation) -> Result<Self, Error> {
        if let Some(authority) = usable(directory, node, invitation)? {
            let member = Self::of(directory, node, authority, &invitation.server)?;
            return member.with_latest_authority().await;
        }
        let token = invitation.token.as_ref().ok_or(Error::NoToken)?;
        let authority = match &invitation.authority {
            Some(authority) => authority.clone(),
            None => discover(&invitation.server, token.pin.as_deref().ok_or(Error::NoToken)?).await?,
        };
        let mut config = Config::new(&invitation.server);
        config.trust = Trust::bundle(authority.as_bytes())?;
        config.credentials = Credentials::token(&token.bearer())?;
        let client = Client::https(config)?;
        tracing::info!("joining {} as node {node}", invitation.server);
        let pair = requests::obtain(&client, Purpose::Client, node, &[]).await.map_err(|error| match error {
            requests::Error::Api(error) if matches!(error.code(), Some(401 | 403)) => Error::Token(error),
            other => other.into(),
        })?;
        ::node::private::directory(directory).map_err(|source| Error::File { path: directory.to_owned(), source })?;
        pki::write_private(&directory.join("ca.crt"), &authority)?;
        pki::write_private(&client_file(directory), &pair)?;
        Self::of(directory, node, authority, &invitation.server)
    }

    fn of(directory: &Path, node: &str, authority: String, server: &str) -> Result<Self, Error> {
        let mut config = Config::new(server);
        config.trust = Trust::bundle(authority.as_bytes())?;
        let file = client_file(directory);
        config.credentials = Credentials::certificate_files(&file, &file)?;
        let client = Client::https(config)?;
        let (directory, node, server) = (directory.to_owned(), node.to_owned(), server.to_owned());
        Ok(Self { directory, node, authority, client, server })
    }

    /// Learns whom the cluster believes now: another authority may be about to follow.
    async fn with_latest_authority(self) -> Result<Self, Error> {
        match self.latest_authority().await {
            Some(authority) if authority != self.authority => {
                tracing::info!("the cluster believes another authority, or one more");
                pki::write_private(&self.directory.join("ca.crt"), &authority)?;
                Self::of(&self.directory, &self.node, authority, &self.server)
            }
            _ => Ok(self),
        }
    }

    /// Whom the cluster believes now, the one that signs first, from a server that is believed already. Who cannot be asked has said before what there is to know.
    async fn latest_authority(&self) -> Option<String> {
        // Everybody may read it who shows nothing, and nobody else has to.
        let mut config = Config::new(&self.server);
        config.trust = Trust::bundle(self.authority.as_bytes()).ok()?;
        let unknown = Client::https(config).ok()?;
        let asked = unknown.get::<ConfigMap>("kube-public", joining::CLUSTER_INFO);
        let info = tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()?;
        joining::authority_of(&info).ok().filter(|authority| Certificate::from_pem(authority).is_ok())
    }

    /// Waits until another authority signs than the one that signed this certificate: then it is worth nothing soon. A server that has just started may say so some
    /// seconds late, and a node that goes on for months was not asked to start again.
    pub async fn superseded(&self, certificate: &Certificate) {
        let (mut present, mut delay) = (self.authority.clone(), FIRST_LOOK);
        while signed_by_first(certificate, &present) {
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LONGEST_LOOK);
            let Some(latest) = self.latest_authority().await.filter(|latest| *latest != present) else { continue };
            // Connections believe whom they believed; the next start believes these.
            match pki::write_private(&self.directory.join("ca.crt"), &latest) {
                Ok(()) => present = latest,
                Err(error) => tracing::warn!("the cluster's authorities are not written down: {error}"),
            }
        }
    }

    /// The file with certificate and key for a purpose.
    pub fn file(&self, purpose: Purpose) -> PathBuf {
        match purpose {
            Purpose::Client => client_file(&self.directory),
            Purpose::Serving => self.directory.join("serving.pem"),
        }
    }
}

/// Whether the first of these authorities, which is the one that signs, signed a certificate.
fn signed_by_first(certificate: &Certificate, authorities: &str) -> bool {
    let present = Certificate::from_pem(authorities);
    present.is_ok_and(|present| certificate.verify_signed_by(&present.public_key).is_ok())
}

fn client_file(directory: &Path) -> PathBuf {
    directory.join("client.pem")
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File { path: path.to_owned(), source }),
    }
}

/// The authority of the membership on disk, if that is still one of this node in the cluster that is meant.
fn usable(directory: &Path, node: &str, invitation: &Invitation) -> Result<Option<String>, Error> {
    let (Some(authority), Some(pair)) = (read(&directory.join("ca.crt"))?, read(&client_file(directory))?) else {
        return Ok(None);
    };
    let roots: Vec<Certificate> =
        pki::certificates_in(&authority).iter().filter_map(|der| Certificate::from_der(der).ok()).collect();
    let Ok(own) = Certificate::from_pem(&pair) else { return Ok(None) };
    let pin = invitation.token.as_ref().and_then(|token| token.pin.as_ref());
    let has = |is: &dyn Fn(&pki::PublicKey) -> bool| roots.iter().any(|root| is(&root.public_key));
    let same_cluster = pin.is_none_or(|pin| has(&|key| *pin == key.pin()))
        && invitation
            .authority
            .as_ref()
            .is_none_or(|given| Certificate::from_pem(given).is_ok_and(|given| has(&|key| given.public_key == *key)));
    let same_node = own.subject == requests::subject(node);
    let signed = has(&|key| own.verify_signed_by(key).is_ok());
    Ok((same_cluster && same_node && signed && own.not_after > Timestamp::now()).then_some(authority))
}

/// The cluster's authority, as anybody may read it, if it is the one that is pinned. Nothing secret is sent for it.
pub async fn discover(server: &str, pin: &str) -> Result<String, Error> {
    let mut config = Config::new(server);
    config.trust = Trust::Insecure;
    let answer = Client::https(config)?.get::<ConfigMap>("kube-public", joining::CLUSTER_INFO).await;
    let info = answer.map_err(|error| match error.code() {
        Some(code) if code < 500 => Error::Discovery(error.to_string()),
        _ => Error::Client(error),
    })?;
    let authority = joining::authority_of(&info).map_err(Error::Discovery)?;
    let certificate = Certificate::from_pem(&authority)?;
    // What is believed from here on is this certificate alone, whatever else came with it.
    if certificate.public_key.pin() == pin { Ok(certificate.to_pem()) } else { Err(Error::Pin) }
}
