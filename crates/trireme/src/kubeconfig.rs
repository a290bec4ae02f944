//! `trireme kubeconfig`: credentials for people, by the way that the API has for it. A CertificateSigningRequest is made, approved by whoever
//! runs the command, and signed by the cluster; the key never leaves this machine.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::ConfigMap;
use pki::Subject;

use crate::agent::requests::{self, Wanted};
use crate::component::Failure;
use crate::parts::joining;
use crate::standalone::connect;

const DAY: i32 = 86_400;

/// What to do with kubeconfigs.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Make a kubeconfig for a user, and print it.
    ///
    /// What the user may do is said by RBAC: bind a role to the user or to one of the groups. A certificate cannot be taken back, so
    /// one for a person should not live long.
    Create {
        /// Whom to connect to, and as whom.
        #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
        kubeconfig: PathBuf,
        /// A group that the user is in; may be given several times.
        #[arg(long = "group", value_name = "GROUP", value_parser = name)]
        groups: Vec<String>,
        /// How long it is good, in days.
        #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=365))]
        ttl: u16,
        /// Write it into this file instead, for its owner alone.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// The user's name.
        #[arg(value_parser = name)]
        user: String,
    },
}

/// What can be in a certificate and in a kubeconfig without being misread.
fn name(text: &str) -> Result<String, String> {
    let odd = |character: char| character.is_control() || matches!(character, '"' | '\\');
    if text.is_empty() || text.len() > 64 || text.contains(odd) {
        return Err("a name has 1 to 64 characters and neither quotes nor backslashes".to_owned());
    }
    Ok(text.to_owned())
}

pub async fn run(command: Command) -> Result<(), Failure> {
    let Command::Create { kubeconfig, groups, ttl, output, user } = command;
    let client = connect(&kubeconfig)?;
    let info = client.get::<ConfigMap>("kube-public", joining::CLUSTER_INFO).await?;
    let (server, authority) = (joining::server_of(&info)?, joining::authority_of(&info)?);
    let subject = Subject::new(user.clone(), groups.iter().map(String::as_str));
    let wanted = Wanted {
        prefix: "user-csr-",
        signer: "kubernetes.io/kube-apiserver-client",
        usage: "client auth",
        subject: &subject,
        sans: &[],
        seconds: Some(i32::from(ttl) * DAY),
        approve: true,
    };
    let pair = requests::ask(&client, &wanted).await?;
    let text = pki::kubeconfig(&server, &authority, &user, &pair);
    match output {
        Some(file) => Ok(pki::write_private(&file, &text)?),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names_that_would_be_misread_are_refused() {
        for good in ["jane", "jane@example.com", "oidc:jane", "system:masters", "Jos\u{e9} a: b"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "a\"b", "a\\b", "a\nb", &"x".repeat(65)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
