//! What a command is: its names, its flags, its children, and the function that runs it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures::future::LocalBoxFuture;

use crate::error::{Failure, Outcome};
use crate::flags::{Flag, Given};
use crate::session::Session;
use crate::streams::Streams;

/// Runs a command whose flags were read.
pub type Run = for<'a> fn(&'a mut Invocation) -> LocalBoxFuture<'a, Outcome>;

/// One command, or a family of them.
pub struct Command {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// What follows the name in `Usage:`.
    pub usage: &'static str,
    /// One sentence for lists of commands.
    pub short: &'static str,
    /// Groups of flags; commands share some.
    pub flags: &'static [&'static [Flag]],
    pub children: &'static [&'static Command],
    /// What it does; a family without this prints its help.
    pub run: Option<Run>,
}

impl Command {
    pub fn child(&self, name: &str) -> Option<&'static Command> {
        self.children.iter().copied().find(|child| child.name == name || child.aliases.contains(&name))
    }
}

/// The variables and directories of whoever calls.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub variables: BTreeMap<String, String>,
    /// Where relative paths begin; empty is the process' own directory.
    pub directory: PathBuf,
    /// The configuration that is taken when no other is given: that of the server beside which the program lies.
    pub fallback: Option<PathBuf>,
}

impl Environment {
    /// That of the process.
    pub fn of_process() -> Self {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { variables: variables.collect(), directory: PathBuf::new(), fallback: None }
    }

    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn home(&self) -> PathBuf {
        self.variable("HOME").map(PathBuf::from).unwrap_or_default()
    }

    /// A path that a user gave, from where the user is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }
}

/// A command under way.
pub struct Invocation {
    /// `kubectl create deployment`, for messages.
    pub path: String,
    pub command: &'static Command,
    pub flags: Given,
    pub streams: Streams,
    pub session: Session,
}

impl Invocation {
    /// The arguments that are no flags.
    pub fn arguments(&self) -> Vec<String> {
        self.flags.arguments.clone()
    }

    /// Whether exactly one name is given; what follows the dashes is none.
    pub fn names_one(&self) -> bool {
        self.flags.dash.unwrap_or(self.flags.arguments.len()) == 1
    }

    pub fn usage(&self, text: impl std::fmt::Display) -> Failure {
        Failure::usage(&self.path, text)
    }

    /// A command that was called with the wrong arguments: its help, and then why.
    pub fn misused(&self, text: impl std::fmt::Display) -> Failure {
        Failure::Message(text.to_string()).after(crate::help::of(self.command, &self.path))
    }

    pub fn print(&mut self, text: &str) -> Outcome {
        Ok(self.streams.text(text)?)
    }

    pub fn say(&mut self, text: &str) -> Outcome {
        Ok(self.streams.line(text)?)
    }

    /// Says on standard error what the server warned of since the last time.
    pub fn warn(&mut self) {
        for warning in self.session.take_warnings() {
            self.streams.error(&format!("Warning: {warning}"));
        }
    }
}
