//! `--use-service-account-credentials`: a controller manager elsewhere has one kubeconfig, and each of its controllers acts as an account of its own, by a
//! token that is asked for in time and kept in a file that only this process's user can read.

use std::path::PathBuf;
use std::time::Duration;

use client::config::Credentials;
use client::{Client, Config};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::component::Failure;

const NAMESPACE: &str = "kube-system";
/// How long a token is good.
const SECONDS: i64 = 3600;
/// How long before its end another is asked for, and how soon again after that failed.
const BEFORE: Duration = Duration::from_secs(600);
const AGAIN: Duration = Duration::from_secs(10);
/// Tokens that are asked for at once.
const AT_ONCE: usize = 8;

/// The accounts of controllers.
#[derive(Clone)]
pub struct Accounts {
    /// Asks for tokens.
    client: Client,
    /// Where the API server is.
    config: Config,
    directory: PathBuf,
}

impl Accounts {
    /// Gets tokens for all of these accounts, and keeps them good until it is stopped.
    pub async fn begin(config: Config, names: Vec<&'static str>, stop: CancellationToken) -> Result<Self, Failure> {
        let directory = std::env::temp_dir().join(format!("trireme-controllers-{}", uuid::Uuid::new_v4()));
        node::private::directory(&directory)?;
        let accounts = Self { client: Client::https(config.clone())?, config, directory };
        // The server may be a moment behind this process: it is asked until it answers.
        while let Err(error) = accounts.renew(&names).await {
            tracing::warn!("tokens of controllers: {error}; trying again in {AGAIN:?}");
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = stop.cancelled() => return Err("stopped before there were tokens".into()),
            }
        }
        let kept = accounts.clone();
        tokio::spawn(async move {
            let mut wait = Duration::from_secs(SECONDS.unsigned_abs()) - BEFORE;
            loop {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = stop.cancelled() => break,
                }
                wait = match kept.renew(&names).await {
                    Ok(()) => Duration::from_secs(SECONDS.unsigned_abs()) - BEFORE,
                    Err(error) => {
                        tracing::warn!("tokens of controllers: {error}; trying again in {AGAIN:?}");
                        AGAIN
                    }
                };
            }
            let _ = std::fs::remove_dir_all(&kept.directory);
        });
        Ok(accounts)
    }

    /// A client that is one of them.
    pub fn client(&self, name: &str) -> Result<Client, client::Error> {
        let credentials = Credentials::token_file(self.directory.join(name));
        Client::https(Config { credentials, ..self.config.clone() })
    }

    async fn renew(&self, names: &[&'static str]) -> Result<(), Failure> {
        for some in names.chunks(AT_ONCE) {
            let mut asked = Vec::new();
            for name in some {
                asked.push(self.renew_one(name));
            }
            futures::future::try_join_all(asked).await?;
        }
        Ok(())
    }

    async fn renew_one(&self, name: &str) -> Result<(), Failure> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(SECONDS), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let ask =
            || self.client.create_subresource::<ServiceAccount, _, TokenRequest>(NAMESPACE, name, "token", &request);
        let answer = match ask().await {
            Err(error) if error.is_not_found() => {
                let account = json!({"metadata": {"name": name, "namespace": NAMESPACE}});
                super::addons::made(self.client.create::<ServiceAccount>(&serde_json::from_value(account)?).await)?;
                ask().await
            }
            answer => answer,
        };
        let status = answer?.status.ok_or("a token request without an answer")?;
        let token = status.token.filter(|token| !token.is_empty()).ok_or("a token request without a token")?;
        Ok(pki::write_private(&self.directory.join(name), &token)?)
    }
}
