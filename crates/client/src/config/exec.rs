//! Credential plugins: a program that prints an `ExecCredential`. Its answer is kept until it expires or is refused.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::Stdio;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::Error;

/// How to run a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plugin {
    pub command: PathBuf,
    pub args: Vec<String>,
    /// What it finds in its environment besides ours.
    pub env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/v1` or `v1beta1`.
    pub api_version: String,
    pub interactive: Interactive,
    /// What it is told of the cluster, where it wants to know.
    pub cluster: Option<Value>,
    /// How it is installed, for whoever does not have it.
    pub install_hint: String,
    /// Who reads standard input, where somebody else does.
    pub input_taken: Option<&'static str>,
}

/// Whether a plugin may talk to the user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Interactive {
    #[default]
    Never,
    /// Where standard input is a terminal.
    IfAvailable,
    /// It cannot do without.
    Always,
}

/// More than any credential is.
const MOST_SAID: u64 = 1 << 20;

/// Runs a program and gives what it printed. One that does not stop printing is stopped.
async fn heard(command: &mut Command) -> std::io::Result<(std::process::ExitStatus, Vec<u8>)> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MOST_SAID + 1).read_to_end(&mut said).await?;
    }
    if said.len() as u64 > MOST_SAID {
        child.start_kill()?;
    }
    Ok((child.wait().await?, said))
}

/// What is said of a plugin that is not there.
const NOT_INSTALLED: &str = "It looks like you are trying to use a client-go credential plugin that is not installed.

To learn more about this feature, consult the documentation available at:
      https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins";

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
        let terminal = self.plugin.input_taken.is_none() && std::io::stdin().is_terminal();
        if self.plugin.interactive == Interactive::Always && !terminal {
            let why = match self.plugin.input_taken {
                Some(reader) => format!("unavailable: {reader}"),
                None => "not a terminal".to_owned(),
            };
            return Err(failed(format_args!("exec plugin cannot support interactive mode: standard input is {why}")));
        }
        let interactive = terminal && self.plugin.interactive != Interactive::Never;
        let mut spec = json!({"interactive": interactive});
        if let Some(cluster) = &self.plugin.cluster {
            spec["cluster"] = cluster.clone();
        }
        let info = json!({"apiVersion": self.plugin.api_version, "kind": "ExecCredential", "spec": spec});
        let mut command = Command::new(&self.plugin.command);
        command
            .args(&self.plugin.args)
            .envs(self.plugin.env.iter().cloned())
            .env("KUBERNETES_EXEC_INFO", info.to_string())
            .stdin(if interactive { Stdio::inherit() } else { Stdio::null() })
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        let name = self.plugin.command.display();
        // It may ask somebody, in a browser if not here, and that takes as long as it takes: the limit is the request's.
        let (status, said) = heard(&mut command).await.map_err(|error| self.not_run(&error))?;
        if said.len() as u64 > MOST_SAID {
            return Err(failed(format_args!("exec: executable {name} printed more than {MOST_SAID} bytes")));
        }
        match status.code() {
            Some(0) => self.parse(&said),
            Some(code) => Err(failed(format_args!("exec: executable {name} failed with exit code {code}"))),
            None => Err(failed(format_args!("exec: {status}"))),
        }
    }

    fn not_run(&self, error: &std::io::Error) -> Error {
        let name = self.plugin.command.display();
        if error.kind() != std::io::ErrorKind::NotFound {
            return failed(format_args!("exec: {error}"));
        }
        let hint = &self.plugin.install_hint;
        let hint = if hint.is_empty() { String::new() } else { format!("\n\n{hint}") };
        failed(format_args!("exec: executable {name} not found\n\n{NOT_INSTALLED}{hint}"))
    }

    fn parse(&self, stdout: &[u8]) -> Result<Credential, Error> {
        let credential: ExecCredential = serde_json::from_slice(stdout).map_err(|error| {
            failed(format_args!("decoding stdout: couldn't get version/kind; json parse error: {error}"))
        })?;
        if credential.api_version != self.plugin.api_version {
            return Err(failed(format_args!(
                "exec plugin is configured to use API version {}, plugin returned version {}",
                self.plugin.api_version, credential.api_version
            )));
        }
        let status = credential.status.unwrap_or_default();
        let certificate = match (status.client_certificate_data, status.client_key_data) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            _ => return Err(failed("exec plugin returned only certificate or key, not both")),
        };
        if status.token.is_none() && certificate.is_none() {
            return Err(failed("exec plugin didn't return a token or cert/key pair"));
        }
        let expires = match status.expiration_timestamp {
            None => None,
            Some(text) => Some(text.parse().map_err(failed::<jiff::Error>)?),
        };
        Ok(Credential { token: status.token, certificate, expires })
    }
}

fn failed<T: std::fmt::Display>(why: T) -> Error {
    Error::Plugin { message: why.to_string() }
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
            ..Plugin::default()
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
    async fn failures_are_told_as_kubectl_tells_them() {
        let error_of = async |runner: Runner| runner.credential().await.err().expect("an error").to_string();
        for (script, expected) in [
            ("exit 3", "getting credentials: exec: executable /bin/sh failed with exit code 3"),
            (
                "echo '{\"apiVersion\":\"other/v1\"}'",
                "getting credentials: exec plugin is configured to use API version client.authentication.k8s.io/v1, plugin returned version other/v1",
            ),
        ] {
            assert_eq!(error_of(runner(script)).await, expected);
        }
        assert!(error_of(runner("yes")).await.ends_with(" printed more than 1048576 bytes"));
        assert!(error_of(runner("echo nonsense")).await.starts_with("getting credentials: decoding stdout: "));
        let plugin = Plugin { command: "/no/such".into(), install_hint: "Get it.".to_owned(), ..Plugin::default() };
        let missing = error_of(Runner::new(plugin)).await;
        assert!(missing.starts_with("getting credentials: exec: executable /no/such not found\n\n"), "{missing}");
        assert!(missing.ends_with("\n\nGet it."), "{missing}");
    }

    #[tokio::test]
    async fn a_plugin_learns_of_the_cluster_and_whether_it_may_ask() {
        let script = "echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":'\"$(echo \"$KUBERNETES_EXEC_INFO\" | sed 's/\"/\\\\\"/g; s/^/\"/; s/$/\"/')\"'}}'";
        let mut runner = runner(script);
        runner.plugin.cluster = Some(json!({"server": "https://h"}));
        let token = runner.credential().await.expect("a credential").token.expect("what it was told");
        let info: Value = serde_json::from_str(&token).expect("JSON");
        assert_eq!(info["spec"], json!({"interactive": false, "cluster": {"server": "https://h"}}));
    }
}
