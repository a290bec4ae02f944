//! Which files count, and how they are merged: the first file that says something wins.

use std::path::{Path, PathBuf};

use super::file::{Config, Field, ReadError, Section};
use crate::command::Environment;
use crate::error::Failure;
use crate::flags::Given;

/// Where the configuration is.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// `--kubeconfig`: this file alone, and it must be there.
    pub explicit: Option<PathBuf>,
    /// The files to merge, those named first win.
    pub files: Vec<PathBuf>,
    /// Whether `KUBECONFIG` named them.
    pub from_environment: bool,
}

impl Access {
    pub fn new(environment: &Environment, flags: &Given) -> Self {
        if let Some(path) = flags.given("kubeconfig") {
            return Self { explicit: Some(environment.path(path)), ..Self::default() };
        }
        let home = environment.home().join(".kube/config");
        match environment.variable("KUBECONFIG") {
            Some(list) => {
                let mut files: Vec<PathBuf> = Vec::new();
                for path in list.split(':').filter(|path| !path.is_empty()) {
                    let path = environment.path(path);
                    if !files.contains(&path) {
                        files.push(path);
                    }
                }
                Self { explicit: None, files, from_environment: true }
            }
            None if home.exists() => Self { explicit: None, files: vec![home], from_environment: false },
            None => match environment.fallback.as_ref().filter(|path| path.exists()) {
                Some(fallback) => Self { explicit: None, files: vec![fallback.clone()], from_environment: false },
                None => Self { explicit: None, files: vec![home], from_environment: false },
            },
        }
    }

    /// The configuration to begin with; missing files are empty ones, but for one that was named by a flag, where `must` says so.
    pub fn load(&self, must: bool) -> Result<Config, Failure> {
        let mut merged = Config::default();
        let (files, explicit) = match &self.explicit {
            Some(path) => (std::slice::from_ref(path), true),
            None => (self.files.as_slice(), false),
        };
        let mut errors = Vec::new();
        for path in files {
            match Config::read(path) {
                Ok(config) => merge(&mut merged, config),
                Err(ReadError::Missing) if explicit && must => {
                    return Err(Failure::Message(format!("stat {}: no such file or directory", path.display())));
                }
                Err(ReadError::Missing) => {}
                Err(ReadError::Other(why)) => errors.push(Failure::Message(why)),
            }
        }
        Failure::all(errors)?;
        resolve(&mut merged);
        Ok(merged)
    }

    /// The file that new entries go to.
    pub fn default_file(&self) -> PathBuf {
        if let Some(path) = &self.explicit {
            return path.clone();
        }
        let existing = self.files.iter().find(|path| path.exists());
        existing.or(self.files.last()).cloned().unwrap_or_default()
    }
}

fn merge(into: &mut Config, from: Config) {
    for section in Section::ALL {
        for (name, entry) in from.section(section).clone() {
            into.section_mut(section).entry(name).or_insert(entry);
        }
    }
    if into.current.is_empty() {
        into.current = from.current;
    }
    into.extensions.extend(from.extensions);
}

/// Paths are meant from where their file lies.
fn resolve(config: &mut Config) {
    for section in Section::ALL {
        for entry in config.section_mut(section).values_mut() {
            let base = directory_of(&entry.origin);
            for (name, _) in section.fields().iter().filter(|(_, field)| *field == Field::Path) {
                let path = entry.text(name).to_owned();
                if !path.is_empty() && Path::new(&path).is_relative() {
                    let whole = clean(&base.join(&path));
                    entry.set(name, whole);
                }
            }
        }
    }
}

/// The whole path of the directory that a file is in.
pub(super) fn directory_of(file: &Path) -> PathBuf {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned())
}

/// A path without `.`, and `..` taken literally, as Go cleans paths.
pub fn clean(path: &Path) -> String {
    let mut parts: Vec<std::path::Component<'_>> = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir if matches!(parts.last(), Some(std::path::Component::Normal(_))) => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.iter().collect::<PathBuf>().display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(directory: &Path, list: &str) -> Environment {
        let variables = [("KUBECONFIG".to_owned(), list.to_owned()), ("HOME".to_owned(), "/nowhere".to_owned())];
        Environment { variables: variables.into(), directory: directory.to_owned(), fallback: None }
    }

    #[test]
    fn the_first_file_that_says_something_wins() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file");
        write("a", "clusters: [{name: c, cluster: {server: 'https://first', certificate-authority: pki/../ca.crt}}]");
        write(
            "b",
            "current-context: x\nclusters: [{name: c, cluster: {server: 'https://second'}}, {name: d, cluster: {server: 'https://d'}}]",
        );
        let access = Access::new(&environment(directory.path(), "a:missing:b"), &Given::default());
        let config = access.load(true).expect("a configuration");
        assert_eq!(config.clusters["c"].text("server"), "https://first");
        assert_eq!(config.clusters["d"].text("server"), "https://d");
        assert_eq!(config.current, "x");
        let authority = config.clusters["c"].text("certificate-authority").to_owned();
        assert_eq!(authority, directory.path().join("ca.crt").display().to_string());
        assert_eq!(access.default_file(), directory.path().join("a"));
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let access = Access { explicit: Some("/nowhere/x".into()), ..Access::default() };
        let error = access.load(true).expect_err("no file");
        assert_eq!(error.render(), "error: stat /nowhere/x: no such file or directory");
        assert!(access.load(false).is_ok());
    }
}
