//! `trireme token`: join tokens that are good for a while.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use pki::Certificate;

use crate::agent::token::Token;
use crate::component::Failure;
use crate::parts::joining;
use crate::standalone::connect;

/// What to do with tokens.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a token and print the command that joins a node with it.
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
    },
}

/// Runs the command.
pub async fn run(command: Command) -> Result<(), Failure> {
    let Command::Create { kubeconfig, ttl, bare } = command;
    let client = connect(&kubeconfig)?;
    let info = client.get::<ConfigMap>("kube-public", joining::CLUSTER_INFO).await?;
    let authority = Certificate::from_pem(&joining::authority_of(&info)?)?;
    let token = Token::generate(authority.public_key.pin());
    let expiration = match ttl {
        0 => None,
        hours => Some(Timestamp::now().checked_add(SignedDuration::from_hours(hours.into()))?),
    };
    // Upstream's times have whole seconds.
    let expiration = expiration.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    joining::keep_token(&client, &token, "Made by trireme token create.", expiration).await?;
    if bare {
        println!("{}", token.reveal());
    } else {
        let server = joining::server_of(&info)?;
        println!("trireme agent --server {server} --token {} --data-dir /var/lib/trireme", token.reveal());
    }
    Ok(())
}
