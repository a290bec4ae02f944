//! Credential plugins: a program that prints an `ExecCredential`. Its answer is kept until it expires or is refused.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use super::Error;

/// A plugin that hangs would hang every call.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);

/// How to run a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plugin {
    pub command: PathBuf,
    pub args: Vec<String>,
    /// What it finds in its environment besides ours.
    pub env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/v1` or `v1beta1`.
    pub api_version: String,
}

/// What a plugin said.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    status: Option<Status>,
}

/// Credentials that a plugin gave.
#[derive(Clone)]
pub(crate) struct Credential {
    pub(crate) token: Option<String>,
    /// Chain and key, in PEM.
    pub(crate) certificate: Option<(String, String)>,
    expires: Option<jiff::Timestamp>,
}

/// Runs a plugin at most once at a time.
pub(crate) struct Runner {
    plugin: Plugin,
    running: tokio::sync::Mutex<()>,
    current: Mutex<Option<Credential>>,
}

impl Runner {
    pub(crate) fn new(plugin: Plugin) -> Self {
        Self { plugin, running: tokio::sync::Mutex::default(), current: Mutex::default() }
    }

    /// What is known, or what the plugin says now.
    pub(crate) async fn credential(&self) -> Result<Credential, Error> {
        let _one_at_a_time = self.running.lock().await;
        if let Some(current) = &*self.current.lock()
            && current.expires.is_none_or(|expires| expires > jiff::Timestamp::now())
        {
            return Ok(current.clone());
        }
        let credential = self.run().await?;
        *self.current.lock() = Some(credential.clone());
        Ok(credential)
    }

    pub(crate) fn forget(&self) {
        *self.current.lock() = None;
    }

    async fn run(&self) -> Result<Credential, Error> {
        let info = json!({
            "apiVersion": self.plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": false},
        });
        let mut command = Command::new(&self.plugin.command);
        command
            .args(&self.plugin.args)
            .envs(self.plugin.env.iter().cloned())
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        let output = tokio::time::timeout(PLUGIN_TIMEOUT, command.output()).await;
        let output = output.map_err(|_| self.failed("no answer within a minute"))?;
        let output = output.map_err(|error| self.failed(error))?;
        if !output.status.success() {
            return Err(self.failed(output.status));
        }
        self.parse(&output.stdout)
    }

    fn parse(&self, stdout: &[u8]) -> Result<Credential, Error> {
        let credential: ExecCredential = serde_json::from_slice(stdout).map_err(|error| self.failed(error))?;
        if credential.api_version != self.plugin.api_version {
            return Err(self.failed(format_args!("answered in {}", credential.api_version)));
        }
        let status = credential.status.unwrap_or_default();
        let certificate = match (status.client_certificate_data, status.client_key_data) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            _ => return Err(self.failed("gave a certificate or a key, not both")),
        };
        if status.token.is_none() && certificate.is_none() {
            return Err(self.failed("gave neither a token nor a certificate"));
        }
        let expires = match status.expiration_timestamp {
            None => None,
            Some(text) => Some(text.parse().map_err(|error| self.failed(error))?),
        };
        Ok(Credential { token: status.token, certificate, expires })
    }

    fn failed(&self, why: impl std::fmt::Display) -> Error {
        Error::Plugin { command: self.plugin.command.display().to_string(), message: why.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(script: &str) -> Runner {
        Runner::new(Plugin {
            command: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("GREETING".to_owned(), "hello".to_owned())],
            api_version: "client.authentication.k8s.io/v1".to_owned(),
        })
    }

    #[tokio::test]
    async fn a_plugins_answer_is_kept_until_it_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let count = directory.path().join("count");
        let runner = runner(&format!(
            "echo x >> {0}; n=$(wc -l < {0}); echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{{\"token\":\"'$GREETING-$n'\"}}}}'",
            count.display()
        ));
        let token = async || runner.credential().await.expect("a credential").token.expect("a token");
        assert_eq!(token().await, "hello-1");
        assert_eq!(token().await, "hello-1");
        runner.forget();
        assert_eq!(token().await, "hello-2");
    }

    #[tokio::test]
    async fn failures_name_the_plugin() {
        for script in ["exit 3", "echo nonsense", "echo '{\"apiVersion\":\"other/v1\"}'"] {
            let error = runner(script).credential().await.err().expect("an error");
            assert!(error.to_string().starts_with("credential plugin /bin/sh: "), "{error}");
        }
    }
}
