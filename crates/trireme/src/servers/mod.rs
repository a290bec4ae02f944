//! Several servers of one cluster: how the first begins, how others join it, and the etcd that they share.
//!
//! ```text
//! DIR/server.json       what this server is: where it joined, which member of etcd it looks after, what all servers have alike
//! DIR/join.json         a join under way, so that it can be taken up after a crash
//! DIR/encryption.yaml   the EncryptionConfiguration that came with the join
//! DIR/etcd/             the member of etcd: its data, log and pid file, and the members that were last seen
//! ```
//! A server joins once, with a token that is made for just that. It believes nobody before the server has shown the authority that the token names,
//! and sends the token only then. What it gets is what makes it the same cluster: the authorities, the key of service accounts, the configuration of
//! encryption, and the settings that must not differ. Later starts need neither token nor `--join`.

mod admit;
mod join;
mod member;
mod settings;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::server::Error;

pub use admit::Admission;
pub use member::{Directory, Managed, Member, follow};
pub use settings::Settings;

const RECORD: &str = "server.json";
const ENCRYPTION: &str = "encryption.yaml";

/// How servers of one cluster come together.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Several servers")]
pub struct Options {
    /// Begin a cluster whose servers share an etcd, which this and every server that joins starts and looks after.
    #[arg(long, conflicts_with = "join")]
    pub cluster_init: bool,
    /// Join the cluster of this server, for example https://10.0.0.1:6443. Needed only once.
    #[arg(long, value_name = "URL")]
    pub join: Option<String>,
    /// The token to join with, of `trireme token create --server`. Needed only once.
    #[arg(long, value_name = "TOKEN", env = "TRIREME_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with the token.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The etcd to start: a path, or a name to be looked for.
    #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
    pub etcd_binary: PathBuf,
    /// Where that etcd answers API servers.
    #[arg(long, value_name = "PORT", default_value_t = 2379)]
    pub etcd_client_port: u16,
    /// Where it talks with its peers.
    #[arg(long, value_name = "PORT", default_value_t = 2380)]
    pub etcd_peer_port: u16,
    /// Who writes the endpoints of the `kubernetes` Service: `lease`, all servers that are alive, or `none`, somebody else
    /// [default: lease, where the store can be shared].
    #[arg(long, value_name = "TYPE")]
    pub endpoint_reconciler_type: Option<Reconciler>,
}

/// Who writes the endpoints of the `kubernetes` Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Reconciler {
    Lease,
    None,
}

/// What a server knows of itself from earlier starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Whom it joined; nobody, if it began the cluster.
    pub joined: Option<String>,
    /// What it must have as the others do.
    pub settings: Option<Settings>,
    /// Whether a configuration of encryption came with the join, and whether it is followed.
    pub encryption: Option<Encryption>,
    /// The member of etcd that it looks after.
    pub etcd: Option<Member>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    pub reload: bool,
}

impl Record {
    pub fn read(data_dir: &Path) -> Result<Option<Self>, Error> {
        let path = data_dir.join(RECORD);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| Error::Joining(format!("{} cannot be read: {error}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::DataDirectory { path, source }),
        }
    }

    pub fn write(&self, data_dir: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Joining(error.to_string()))?;
        Ok(pki::write_private(&data_dir.join(RECORD), &text)?)
    }
}

/// Makes this server what it is to be: one that begins a cluster, one that joins, or what it was before. The options become what the cluster demands.
pub async fn prepare(options: &mut crate::cli::Server, advertise: std::net::IpAddr) -> Result<Option<Record>, Error> {
    let data_dir = options.data_dir.clone();
    let record = match Record::read(&data_dir)? {
        Some(record) => record,
        None if options.servers.join.is_some() => join::join(options, advertise).await?,
        None if options.servers.cluster_init => begin(options, advertise)?,
        None => return Ok(None),
    };
    if let Some(settings) = &record.settings {
        settings.adopt(options)?;
    }
    if let Some(encryption) = record.encryption {
        let given = &mut options.gates.encryption;
        if given.encryption_provider_config.is_none() {
            given.encryption_provider_config = Some(data_dir.join(ENCRYPTION));
            given.encryption_provider_config_automatic_reload = encryption.reload;
        }
    }
    Ok(Some(record))
}

/// The first server of a cluster with an etcd of its own.
fn begin(options: &crate::cli::Server, advertise: std::net::IpAddr) -> Result<Record, Error> {
    let store = crate::store::directory(&options.data_dir);
    if std::fs::read_dir(&store).is_ok_and(|mut files| files.next().is_some()) {
        let message = format!(
            "{} has a store already, which one server alone can use: `trireme store move --to etcd` makes one of it that several share",
            store.display()
        );
        return Err(Error::Option { option: "cluster-init", message });
    }
    let etcd = Some(Member::new(options, advertise)?);
    let record = Record { joined: None, settings: None, encryption: None, etcd };
    record.write(&options.data_dir)?;
    Ok(record)
}

/// The token that the options name.
fn token(options: &Options) -> Result<crate::agent::token::Token, Error> {
    let text = match (&options.token, &options.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(file)) => std::fs::read_to_string(file)
            .map_err(|error| Error::Option { option: "token-file", message: format!("{}: {error}", file.display()) })?,
        (None, None) => {
            let message =
                "a server joins with a token of `trireme token create --server`: give --token or --token-file";
            return Err(Error::Option { option: "join", message: message.to_owned() });
        }
    };
    text.parse()
        .map_err(|error: crate::agent::token::Malformed| Error::Option { option: "token", message: error.to_string() })
}
