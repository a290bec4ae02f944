//! A server's way into a cluster that is there.
//!
//! ```text
//! cluster-info, read without believing it ─► the authority that fits the token's pin, or nobody
//!   ─► over TLS that this authority vouches for: the token, a nonce, the name of the member of etcd to be
//!   ◄─ keys, settings, the members of etcd ─► all of it on disk, the record last
//! ```
//! A crash anywhere leaves a join that is taken up again with the same nonce and name: to everybody else the token is used up.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use client::config::{Credentials, Trust};
use client::{Client, Config};
use rules::names::{SERVERS_PATH, VERSION};
use serde::{Deserialize, Serialize};

use super::member::{Member, Peer};
use super::settings::Settings;
use super::{ENCRYPTION, Encryption, Record};
use crate::agent::membership;
use crate::agent::token::Token;
use crate::cli::{Engine, Server as Options};
use crate::server::Error;

const UNDER_WAY: &str = "join.json";
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// What a server says that wants to join.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Known to this join alone. Who shows the same one again is taken for the same server.
    pub nonce: String,
    pub version: String,
    /// The server's name, for people.
    pub host: String,
    /// The member of etcd that it would look after.
    pub member: Peer,
}

/// What it is told. Secret.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub version: String,
    pub files: BTreeMap<String, String>,
    pub settings: Settings,
    pub encryption: Option<Sealing>,
    /// The members of the managed etcd, this server's among them; none where etcd is the user's own.
    pub etcd: Option<Vec<Peer>>,
}

/// A configuration of encryption. Secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Sealing {
    pub configuration: String,
    pub reload: bool,
}

/// A join that has begun.
#[derive(Debug, Serialize, Deserialize)]
struct UnderWay {
    nonce: String,
    member: Member,
}

/// Joins, however long the other server takes to be there.
pub async fn join(options: &Options, advertise: IpAddr) -> Result<Record, Error> {
    let token = super::token(&options.servers)?;
    let server = options.servers.join.clone().unwrap_or_default();
    let under_way = under_way(options, advertise)?;
    let mut delay = FIRST_DELAY;
    let answer = loop {
        match ask(&server, &token, &under_way).await {
            Ok(answer) => break answer,
            Err(Refusal::Passing(why)) => {
                tracing::warn!("{why}; trying again in {delay:?}");
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LONGEST_DELAY);
            }
            Err(Refusal::Final(why)) => return Err(Error::Joining(why)),
        }
    };
    take(options, &server, &token, under_way, answer)
}

fn under_way(options: &Options, advertise: IpAddr) -> Result<UnderWay, Error> {
    let path = options.data_dir.join(UNDER_WAY);
    if let Some(begun) = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
        return Ok(begun);
    }
    let begun =
        UnderWay { nonce: format!("{:032x}", rand::random::<u128>()), member: Member::new(options, advertise)? };
    let text = serde_json::to_string(&begun).map_err(|error| Error::Joining(error.to_string()))?;
    pki::write_private(&path, &text)?;
    Ok(begun)
}

/// Why there is no answer.
enum Refusal {
    /// Later there may be one.
    Passing(String),
    Final(String),
}

async fn ask(server: &str, token: &Token, under_way: &UnderWay) -> Result<Answer, Refusal> {
    let client = connect(server, token).await?;
    let request = Request {
        nonce: under_way.nonce.clone(),
        version: VERSION.to_owned(),
        host: crate::parts::host_name().unwrap_or_default(),
        member: under_way.member.peer(),
    };
    tracing::info!("joining {server} as a server");
    client.post::<_, Answer>(SERVERS_PATH, &request).await.map_err(|error| {
        let refused = match error.code() {
            Some(401) => {
                format!("{server} does not accept token {}: it is unknown there, taken back, or expired", token.id)
            }
            Some(403) if !error.to_string().contains("was used") => format!(
                "token {} is not for servers: `trireme token create --server` makes one that is ({error})",
                token.id
            ),
            Some(404) => format!("{server} knows nothing of servers that join: it is of an older version"),
            None | Some(429 | 500..) => return Refusal::Passing(format!("{server}: {error}")),
            Some(_) => format!("{server}: {error}"),
        };
        Refusal::Final(refused)
    })
}

/// A client of a server that has shown the authority which the token names. The token is sent to no other.
async fn connect(server: &str, token: &Token) -> Result<Client, Refusal> {
    let wrong = |error: client::Error| Refusal::Final(error.to_string());
    let pin = token.pin.as_deref().ok_or_else(|| {
        Refusal::Final(
            "the token does not name the cluster's authority (…@sha256:…): a server joins with nothing less".into(),
        )
    })?;
    let authority = membership::discover(server, pin).await.map_err(|error| match error {
        error if error.is_passing() => Refusal::Passing(error.to_string()),
        error => Refusal::Final(error.to_string()),
    })?;
    let mut config = Config::new(server);
    config.trust = Trust::bundle(authority.as_bytes()).map_err(|error| wrong(error.into()))?;
    config.credentials = Credentials::token(&token.bearer()).map_err(|error| wrong(error.into()))?;
    Client::https(config).map_err(wrong)
}

/// Puts on disk what came, the record last.
fn take(options: &Options, server: &str, token: &Token, begun: UnderWay, answer: Answer) -> Result<Record, Error> {
    let handover = pki::Handover::of(answer.files)?;
    // TLS has proved it already; whoever has the keys in hand looks again.
    if Some(handover.authority()?.public_key.pin()) != token.pin {
        return Err(Error::Joining(
            "the keys that came are not those of the authority which the token names".to_owned(),
        ));
    }
    if answer.etcd.is_none() && options.store.store != Engine::Etcd {
        let message = "this cluster's etcd is its administrator's own: give --store etcd and --etcd-servers, as its other servers have them";
        return Err(Error::Option { option: "join", message: message.to_owned() });
    }
    handover.install(&options.data_dir.join("pki"))?;
    let encryption = match answer.encryption {
        None => None,
        Some(sealing) => {
            pki::write_private(&options.data_dir.join(ENCRYPTION), &sealing.configuration)?;
            Some(Encryption { reload: sealing.reload })
        }
    };
    let etcd = answer.etcd.map(|others| begun.member.among(others));
    let record = Record { joined: Some(server.to_owned()), settings: Some(answer.settings), encryption, etcd };
    record.write(&options.data_dir)?;
    forget(&options.data_dir.join(UNDER_WAY))?;
    Ok(record)
}

fn forget(path: &Path) -> Result<(), Error> {
    std::fs::remove_file(path).map_err(|source| Error::DataDirectory { path: path.to_owned(), source })
}

/// An address as part of a URL.
pub(super) fn url(address: IpAddr, port: u16) -> String {
    format!("https://{}", SocketAddr::new(address, port))
}
