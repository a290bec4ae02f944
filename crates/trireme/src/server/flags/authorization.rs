//! Options of authorization.

use std::path::PathBuf;
use std::time::Duration;

use apiserver::gates::authorization::{Settings, settings::Remoteness, structured};
use clap::Args;

use super::super::Error;
use super::{duration, wrong};

/// Who decides when nothing is said.
const MODES: &str = "Node,RBAC";

/// Who may do what.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Authorization")]
pub struct Options {
    /// Who decides, in this order: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node [default: Node,RBAC].
    #[arg(long, value_name = "NAMES", conflicts_with = "authorization_config")]
    pub authorization_mode: Option<String>,
    /// An AuthorizationConfiguration, which names who decides.
    #[arg(long, value_name = "FILE")]
    pub authorization_config: Option<PathBuf>,
    /// The policies of ABAC, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub authorization_policy_file: Option<PathBuf>,
    /// A kubeconfig that says where the webhook is.
    #[arg(long, value_name = "FILE", requires = "authorization_mode")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// The version of authorization.k8s.io that the webhook speaks.
    #[arg(long, value_name = "VERSION", default_value = "v1beta1", value_parser = ["v1", "v1beta1"],
        requires = "authorization_webhook_config_file")]
    pub authorization_webhook_version: String,
    /// How long the webhook's permissions are remembered.
    #[arg(long, value_name = "DURATION", default_value = "5m0s", value_parser = duration,
        requires = "authorization_webhook_config_file")]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long the webhook's refusals are remembered.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration,
        requires = "authorization_webhook_config_file")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
}

impl Options {
    /// Checks the options and reads the files that they name.
    pub fn read(&self) -> Result<Settings, Error> {
        if let Some(path) = &self.authorization_config {
            let policy = self.authorization_policy_file.as_deref();
            return structured::load(path, policy).map_err(|error| wrong("authorization-config", error));
        }
        let modes = self.authorization_mode.as_deref().unwrap_or(MODES);
        let webhook = self.authorization_webhook_config_file.clone().map(|kubeconfig| Remoteness {
            version: self.authorization_webhook_version.clone(),
            authorized_ttl: self.authorization_webhook_cache_authorized_ttl,
            unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl,
            ..Remoteness::at(kubeconfig)
        });
        for (mode, option, given) in [
            ("ABAC", "authorization-policy-file", self.authorization_policy_file.is_some()),
            ("Webhook", "authorization-webhook-config-file", webhook.is_some()),
        ] {
            if given && !modes.split(',').any(|named| named == mode) {
                return Err(wrong(option, format!("cannot specify --{option} without mode {mode}")));
            }
        }
        let settings = Settings::parse(modes, self.authorization_policy_file.as_deref(), webhook.as_ref());
        settings.map_err(|error| wrong("authorization-mode", error))
    }
}
