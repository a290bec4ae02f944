//! A real, unmodified kubectl with a kubeconfig and a cache of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// No command that ends by itself takes this long.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

/// Runs kubectl against one server.
#[derive(Debug, Clone)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    home: PathBuf,
    environment: Vec<(String, String)>,
}

impl Kubectl {
    /// With this kubeconfig, keeping its cache in `home`.
    pub fn new(kubeconfig: &Path, home: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), home: home.to_owned(), environment: Vec::new() }
    }

    /// With one more variable in its environment, such as `KUBE_EDITOR`.
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs a command that must succeed; its standard output.
    pub async fn run(&self, arguments: &[&str]) -> String {
        self.run_with(arguments, "").await
    }

    /// Runs a command that must succeed, with something on its standard input.
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> String {
        let output = self.output(arguments, input).await;
        assert!(output.success, "kubectl {}: {}{}", arguments.join(" "), output.stdout, output.stderr);
        output.stdout
    }

    /// Runs a command that must fail; its standard error.
    pub async fn fail(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments, "").await;
        assert!(!output.success, "kubectl {} succeeded: {}", arguments.join(" "), output.stdout);
        output.stderr
    }

    /// Runs a command, however it ends.
    pub async fn output(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl on PATH");
        let mut stdin = child.stdin.take().expect("stdin was piped");
        let exchange = async {
            stdin.write_all(input.as_bytes()).await.ok();
            drop(stdin);
            child.wait_with_output().await.expect("kubectl's output")
        };
        let output = tokio::time::timeout(DEADLINE, exchange).await;
        let output = output.unwrap_or_else(|_| panic!("kubectl {} did not end", arguments.join(" ")));
        Output {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts a command that goes on, such as `get -w`. It is killed when dropped.
    pub fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("kubectl on PATH")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env("KUBECACHEDIR", self.home.join("kubectl-cache"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .kill_on_drop(true);
        command
    }
}
