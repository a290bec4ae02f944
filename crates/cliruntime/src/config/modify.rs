//! Writes a changed configuration: an entry into the file it came from, a new one into the default file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use machinery::codec::yaml;

use super::file::{Config, Field, ReadError, Section};
use super::load::{Access, directory_of};
use crate::error::{Failure, Outcome};

/// Writes the difference between two configurations.
pub fn write(access: &Access, before: &Config, after: &Config) -> Outcome {
    let mut touched: BTreeSet<PathBuf> = BTreeSet::new();
    let file_of = |origin: &Path| if origin.as_os_str().is_empty() { access.default_file() } else { origin.to_owned() };
    for section in Section::ALL {
        let (old, new) = (before.section(section), after.section(section));
        for (name, entry) in new.iter().filter(|(name, entry)| old.get(*name) != Some(entry)) {
            let origin = if entry.origin.as_os_str().is_empty() {
                old.get(name).map_or_else(PathBuf::new, |old| old.origin.clone())
            } else {
                entry.origin.clone()
            };
            touched.insert(file_of(&origin));
        }
        for (_, entry) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
            touched.insert(file_of(&entry.origin));
        }
    }
    let mut current_in = None;
    if before.current != after.current {
        current_in = Some(file_with_current(access, after.current.is_empty())?);
        touched.extend(current_in.clone());
    }
    for path in touched {
        let mut config = read(&path)?;
        for section in Section::ALL {
            update(&mut config, before, after, section, &path, &file_of);
        }
        if current_in.as_ref() == Some(&path) {
            config.current.clone_from(&after.current);
        }
        save(&path, &config)?;
    }
    Ok(())
}

fn update(
    config: &mut Config,
    before: &Config,
    after: &Config,
    section: Section,
    path: &Path,
    file_of: &impl Fn(&Path) -> PathBuf,
) {
    let (old, new) = (before.section(section), after.section(section));
    let in_file = config.section_mut(section);
    for (name, entry) in old {
        if !new.contains_key(name) && file_of(&entry.origin) == path {
            in_file.remove(name);
        }
    }
    for (name, entry) in new {
        if old.get(name) == Some(entry) {
            continue;
        }
        let origin = old.get(name).map_or(&entry.origin, |old| &old.origin);
        if file_of(origin) == path {
            let mut entry = entry.clone();
            relative(&mut entry, section, path);
            in_file.insert(name.clone(), entry);
        }
    }
}

/// Paths below the file's own directory are written relative to it.
fn relative(entry: &mut super::Entry, section: Section, path: &Path) {
    let base = directory_of(path);
    for (name, _) in section.fields().iter().filter(|(_, field)| *field == Field::Path) {
        let whole = entry.text(name).to_owned();
        if entry.origin == path
            && let Ok(short) = Path::new(&whole).strip_prefix(&base)
        {
            entry.set(name, short.display().to_string());
        }
    }
}

/// The file whose current context counts: the first one that has one, or the default.
fn file_with_current(access: &Access, unset: bool) -> Outcome<PathBuf> {
    if access.explicit.is_none() {
        for path in &access.files {
            if !read(path)?.current.is_empty() {
                return Ok(path.clone());
            }
        }
    }
    let _ = unset;
    Ok(access.default_file())
}

fn read(path: &Path) -> Outcome<Config> {
    match Config::read(path) {
        Ok(config) => Ok(config),
        Err(ReadError::Missing) => Ok(Config::default()),
        Err(ReadError::Other(why)) => Err(Failure::Message(why)),
    }
}

/// Writes a file whole or not at all, for its owner alone.
fn save(path: &Path, config: &Config) -> Outcome {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed = |operation: &str, error: &std::io::Error| {
        Failure::Message(crate::error::os_error(operation, &path.display().to_string(), error))
    };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(|error| failed("mkdir", &error))?;
    }
    // A link is followed: what it leads to is replaced, not the link.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let lock = target.with_file_name(format!("{}.lock", target.file_name().unwrap_or_default().to_string_lossy()));
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock);
    made.map_err(|error| Failure::Message(crate::error::os_error("open", &lock.display().to_string(), &error)))?;
    let temporary = target.with_file_name(format!(
        ".{}.{}",
        target.file_name().unwrap_or_default().to_string_lossy(),
        std::process::id()
    ));
    let written = (|| {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(yaml::encode(&config.to_value()).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, &target)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    let _ = std::fs::remove_file(&lock);
    written.map_err(|error| failed("open", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Entry;

    #[test]
    fn changes_go_to_the_file_they_came_from() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("a"), "contexts: [{name: x, context: {cluster: c, user: u}}]").expect("a file");
        std::fs::write(path("b"), "contexts: [{name: second, context: {cluster: c, user: u}}]").expect("a file");
        let access = Access { explicit: None, files: vec![path("a"), path("b")], from_environment: true };
        let before = access.load(true).expect("a configuration");
        let mut after = before.clone();
        after.contexts.get_mut("second").expect("it").set("namespace", "team");
        let mut new = Entry::default();
        new.set("server", "https://new");
        after.clusters.insert("new".to_owned(), new);
        after.current = "second".to_owned();
        write(&access, &before, &after).expect("written");
        let read = |name: &str| Config::read(&path(name)).expect("a kubeconfig");
        assert_eq!(read("b").contexts["second"].text("namespace"), "team");
        assert_eq!(read("a").clusters["new"].text("server"), "https://new");
        assert_eq!((read("a").current.as_str(), read("b").current.as_str()), ("second", ""));
        assert!(!path("a.lock").exists());
    }
}
