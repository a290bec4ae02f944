//! Command lines against a real server. What is expected was compared with upstream's kubectl v1.37 on the same server.

mod bad_input;
mod beside;
mod beyond;
mod config;
mod discovery;
mod more;
mod objects;
mod order;
mod past;
mod programs;
mod refusals;
mod streams;
mod transcripts;

use std::path::Path;
use std::sync::Arc;

use kubectl::{Environment, Streams};
use tempfile::TempDir;
use testkit::Cluster;

/// What a command said, and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// kubectl with a kubeconfig and a home of its own.
#[derive(Clone)]
pub struct Shell {
    environment: Environment,
    #[expect(dead_code, reason = "what counts is that it is held: it is removed with the last shell that has it")]
    kept: Option<Arc<TempDir>>,
}

impl Shell {
    pub fn new(kubeconfig: &Path, home: &Path) -> Self {
        let variable = |name: &str, value: &Path| (name.to_owned(), value.display().to_string());
        let variables = [variable("KUBECONFIG", kubeconfig), variable("HOME", home)].into();
        Self { environment: Environment { variables, directory: home.to_owned(), fallback: None }, kept: None }
    }

    /// A cluster, and a shell for it with a new directory for its files.
    pub async fn with_cluster() -> (Cluster, Self) {
        let (cluster, home) = (Cluster::start().await, tempfile::tempdir().expect("a directory"));
        let shell = Self::of(&cluster, home.path());
        (cluster, Self { kept: Some(Arc::new(home)), ..shell })
    }

    /// The directory that commands run in.
    pub fn home(&self) -> &Path {
        &self.environment.directory
    }

    /// For a cluster, in a directory for its files.
    pub fn of(cluster: &Cluster, home: &Path) -> Self {
        Self::new(cluster.kubeconfig(), home)
    }

    /// With another variable in its environment.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// What runs a command with these streams.
    pub fn start(&self, line: &str, streams: Streams) -> impl Future<Output = i32> + use<> {
        self.start_words(split(line), streams)
    }

    /// The same with words, some of which may be empty.
    pub fn start_words(&self, words: Vec<String>, streams: Streams) -> impl Future<Output = i32> + use<> {
        let environment = self.environment.clone();
        async move { kubectl::run(environment, &words, streams).await }
    }

    pub async fn run_with(&self, line: &str, input: &str) -> Said {
        let words = split(line);
        let (streams, out, err) = Streams::memory(input.as_bytes());
        let run = kubectl::run(self.environment.clone(), &words, streams);
        let code = tokio::time::timeout(std::time::Duration::from_secs(60), run).await.expect("the command ends");
        Said { code, out: out.text(), err: err.text() }
    }

    pub async fn run(&self, line: &str) -> Said {
        self.run_with(line, "").await
    }

    /// Runs a command that must succeed, and gives what it wrote.
    pub async fn ok(&self, line: &str) -> String {
        let said = self.run(line).await;
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{line}: {}", said.out);
        said.out
    }

    /// Runs a command that must fail, and gives what it said.
    pub async fn fail(&self, line: &str) -> String {
        let said = self.run(line).await;
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{line}: {}", said.err);
        said.err
    }
}

/// Words of a line; single quotes hold one together.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().expect("there is always a word").push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
