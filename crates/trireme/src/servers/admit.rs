//! The other side of a join: a server that is in lets another one in.
//!
//! A token is good for one server. The first who shows it leaves a hash of its nonce in the token's Secret; whoever comes with another nonce is refused, so that a
//! token which was read somewhere after its use is worth nothing, and two who share one find out.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apiserver::joining::Joining;
use client::Client;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use machinery::status::{ApiError, Reason};
use rules::names::{BOOTSTRAP_TOKEN_PREFIX, VERSION};
use serde_json::Value;
use store::etcd::{Etcd, Member, Members};

use super::join::{Answer, Request, Sealing};
use super::member::Peer;
use super::settings::Settings;

/// Where a token's Secret says who used it.
const USED: &str = "trireme-server";
/// Between two looks whether etcd takes in another member.
const LOOK: Duration = Duration::from_millis(100);
/// After so long it is not the last member's coming that it waits for.
const HEALTHY: Duration = Duration::from_secs(15);

pub struct Admission {
    pub pki: PathBuf,
    pub settings: Settings,
    /// The configuration of encryption, and whether it is followed.
    pub encryption: Option<(PathBuf, bool)>,
    /// The etcd, where it is managed.
    pub etcd: Option<Arc<Etcd>>,
    /// Who may change the token's Secret; known once the server runs.
    pub client: OnceLock<Client>,
}

impl Joining for Admission {
    fn admit<'a>(&'a self, token: &'a str, request: Value) -> BoxFuture<'a, Result<Value, ApiError>> {
        async move {
            let request: Request = serde_json::from_value(request)
                .map_err(|error| ApiError::bad_request(format!("the request cannot be read: {error}")))?;
            if request.nonce.len() < 32 {
                return Err(ApiError::bad_request("the nonce is too short to be one"));
            }
            self.claim(token, &request.nonce).await?;
            let answer = self.answer(&request).await?;
            tracing::info!("server {} joins with token {token}", request.host);
            serde_json::to_value(answer).map_err(ApiError::internal)
        }
        .boxed()
    }
}

impl Admission {
    /// Makes the token this join's own.
    async fn claim(&self, token: &str, nonce: &str) -> Result<(), ApiError> {
        let client = self.client.get().ok_or_else(|| ApiError::unavailable("the server is starting"))?;
        let name = format!("{BOOTSTRAP_TOKEN_PREFIX}{token}");
        let mut secret = client.get::<Secret>("kube-system", &name).await.map_err(refused)?;
        let own = pki::fingerprint(nonce.as_bytes());
        let data = secret.data.get_or_insert_default();
        match data.get(USED) {
            Some(used) if used.0 == own.as_bytes() => return Ok(()),
            Some(_) => return Err(used(token)),
            None => data.insert(USED.to_owned(), ByteString(own.into_bytes())),
        };
        match client.update(&secret).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_conflict() => Err(used(token)),
            Err(error) => Err(refused(error)),
        }
    }

    async fn answer(&self, request: &Request) -> Result<Answer, ApiError> {
        let handover = pki::Handover::read(&self.pki).map_err(ApiError::internal)?;
        let encryption = match &self.encryption {
            None => None,
            Some((path, reload)) => {
                let configuration = std::fs::read_to_string(path).map_err(ApiError::internal)?;
                Some(Sealing { configuration, reload: *reload })
            }
        };
        let etcd = match &self.etcd {
            None => None,
            Some(etcd) => Some(enrol(&etcd.members(), &request.member).await?),
        };
        Ok(Answer {
            version: VERSION.to_owned(),
            files: handover.files().clone(),
            settings: self.settings.clone(),
            encryption,
            etcd,
        })
    }
}

/// Lets the member into etcd, without a vote. The answer is all that there are then. Once more for the same one changes nothing.
async fn enrol(members: &Members, new: &Peer) -> Result<Vec<Peer>, ApiError> {
    let mut all = members.list(true).await.map_err(unavailable)?;
    let found = all.iter().find(|member| member.peer_urls.contains(&new.peer_url));
    match found {
        // Let in before, and not started yet.
        Some(member) if member.name.is_empty() || member.name == new.name => {}
        Some(member) => {
            let (url, name) = (&new.peer_url, &member.name);
            let message = format!(
                "etcd has a member {name} at {url} already; if that machine was lost, `trireme etcd remove {name}` first"
            );
            return Err(ApiError::new(Reason::Conflict, message));
        }
        None => all = added(members, &new.peer_url).await?,
    }
    let peer = |member: store::etcd::Member| {
        let first = |urls: Vec<String>| urls.into_iter().next().unwrap_or_default();
        let (peer_url, client_url) = (first(member.peer_urls), first(member.client_urls));
        let name = if peer_url == new.peer_url { new.name.clone() } else { member.name };
        Peer { name, peer_url, client_url }
    };
    // Another one that was let in and has not started has no name, by which alone it could be told of.
    Ok(all.into_iter().map(peer).filter(|peer| !peer.name.is_empty()).collect())
}

/// Lets a member in, as soon as etcd takes anybody in: whoever asked would have to ask again and again, later each time.
async fn added(members: &Members, peer_url: &str) -> Result<Vec<Member>, ApiError> {
    let adding = async {
        loop {
            match members.add_learner(peer_url).await.map_err(unavailable)? {
                Some(all) => return Ok(all),
                None => tokio::time::sleep(LOOK).await,
            }
        }
    };
    let unhealthy = |_| Err(ApiError::unavailable("etcd: its members are not in touch with each other").retry_after(1));
    tokio::time::timeout(HEALTHY, adding).await.unwrap_or_else(unhealthy)
}

fn unavailable(error: store::Error) -> ApiError {
    ApiError::unavailable(format!("etcd: {error}")).retry_after(1)
}

fn used(token: &str) -> ApiError {
    let message = format!(
        "token {token} was used by another server already; each one has its own: `trireme token create --server`"
    );
    ApiError::new(Reason::Forbidden, message)
}

fn refused(error: client::Error) -> ApiError {
    match error {
        client::Error::Api(error) => error,
        error => ApiError::unavailable(error.to_string()),
    }
}
