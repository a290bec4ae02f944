//! `trireme token`: join tokens of nodes and of servers, made, shown without their secrets, and taken back.

use client::{Client, DeleteOptions, ListParams};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use pki::Certificate;
use rules::names::{BOOTSTRAP_TOKEN, BOOTSTRAP_TOKEN_PREFIX, SERVER_BOOTSTRAPPERS};

use crate::agent::token::Token;
use crate::component::Failure;
use crate::parts::joining;
use crate::standalone::connect;

/// What to do with tokens.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a token and print the command that joins a node, or a server, with it.
    Create {
        /// Whom to connect to, and as whom.
        #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
        kubeconfig: std::path::PathBuf,
        /// How long it is good, in hours; 0 for ever.
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        ttl: u32,
        /// Print the token alone.
        #[arg(long)]
        bare: bool,
        /// Make one that a server joins with. It is good for one server, which gets the keys of the whole cluster: keep it as you keep those.
        #[arg(long)]
        server: bool,
    },
    /// Show the tokens that there are, without their secrets.
    List {
        /// Whom to connect to, and as whom.
        #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
        kubeconfig: std::path::PathBuf,
    },
    /// Take a token back: no further node joins with it, and those that did stay.
    ///
    /// The server's own token is made known again at its next start; remove its file, too.
    Delete {
        /// Whom to connect to, and as whom.
        #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
        kubeconfig: std::path::PathBuf,
        /// Its id: what is before the dot.
        #[arg(value_parser = id)]
        id: String,
    },
}

/// The secret behind the dot may be there, too, and is not needed.
fn id(text: &str) -> Result<String, String> {
    let id = text.split_once('.').map_or(text, |(id, _)| id);
    let fits = id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if fits { Ok(id.to_owned()) } else { Err("an id has six lower-case letters or digits".to_owned()) }
}

pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { kubeconfig, ttl, bare, server } => create(&connect(&kubeconfig)?, ttl, bare, server).await,
        Command::List { kubeconfig } => list(&connect(&kubeconfig)?).await,
        Command::Delete { kubeconfig, id } => {
            let name = format!("{}{id}", BOOTSTRAP_TOKEN_PREFIX);
            connect(&kubeconfig)?.delete::<Secret>("kube-system", &name, &DeleteOptions::default()).await?;
            println!("token {id} deleted");
            Ok(())
        }
    }
}

async fn create(client: &Client, ttl: u32, bare: bool, for_server: bool) -> Result<(), Failure> {
    let (token, server) = make(client, ttl, for_server).await?;
    if bare {
        println!("{}", token.reveal());
    } else {
        let joins = if for_server { "server --join" } else { "agent --server" };
        println!("trireme {joins} {server} --token {} --data-dir /var/lib/trireme", token.reveal());
    }
    Ok(())
}

/// Makes a token, good for so many hours; the server that the cluster names to those who join.
pub async fn make(client: &Client, ttl: u32, for_server: bool) -> Result<(Token, String), Failure> {
    let info = client.get::<ConfigMap>("kube-public", joining::CLUSTER_INFO).await?;
    let authority = Certificate::from_pem(&joining::authority_of(&info)?)?;
    let token = Token::generate(authority.public_key.pin());
    let expiration = match ttl {
        0 => None,
        hours => Some(Timestamp::now().checked_add(SignedDuration::from_hours(hours.into()))?),
    };
    // Upstream's times have whole seconds.
    let expiration = expiration.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let (description, groups): (_, &[&str]) = match for_server {
        true => ("Made by trireme token create --server.", &[SERVER_BOOTSTRAPPERS]),
        false => ("Made by trireme token create.", &[]),
    };
    joining::keep_token(client, &token, description, expiration, groups).await?;
    Ok((token, joining::server_of(&info)?))
}

async fn list(client: &Client) -> Result<(), Failure> {
    let params = ListParams { field_selector: format!("type={}", BOOTSTRAP_TOKEN), ..ListParams::default() };
    println!("{:<8} {:<21} DESCRIPTION", "ID", "EXPIRES");
    for secret in client.list::<Secret>("kube-system", &params).await?.items {
        let field = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key))?;
            Some(String::from_utf8_lossy(&bytes.0).into_owned())
        };
        let id = field("token-id").unwrap_or_else(|| "?".to_owned());
        let expires = field("expiration").unwrap_or_else(|| "never".to_owned());
        println!("{id:<8} {expires:<21} {}", field("description").unwrap_or_default());
    }
    Ok(())
}
