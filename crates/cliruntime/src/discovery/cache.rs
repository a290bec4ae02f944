//! What a server was found to serve, on disk, in the layout that upstream's kubectl reads and writes: both may share it.

use std::fs::{File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Discovery, Entry, Group, Mapping, Resources, or_default};
use crate::command::Environment;
use crate::config::Connection;
use crate::flags::Given;

/// How long an answer is believed.
const LIFETIME: Duration = Duration::from_secs(6 * 3600);

/// The directory of one server.
#[derive(Debug, Clone)]
pub struct Place(PathBuf);

impl Place {
    pub fn new(environment: &Environment, flags: &Given, connection: &Connection) -> Self {
        let server = connection.client.server.split_once("://").map_or(&*connection.client.server, |(_, rest)| rest);
        Self(root(environment, flags).join("discovery").join(safe(server)))
    }

    /// For tests and tools.
    pub fn at(directory: &Path) -> Self {
        Self(directory.to_owned())
    }
}

/// The directory of everything that is remembered of servers.
pub(crate) fn root(environment: &Environment, flags: &Given) -> PathBuf {
    match (flags.given("cache-dir"), environment.variable("KUBECACHEDIR")) {
        (Some(given), _) => environment.path(given),
        (None, Some(variable)) => PathBuf::from(variable),
        (None, None) => environment.home().join(".kube/cache"),
    }
}

/// A server's address as the name of a directory.
fn safe(server: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '/' | '.' | '(' | ')');
    server.chars().map(|letter| if fits(letter) { letter } else { '_' }).collect()
}

/// An `APIGroupList`.
#[derive(Deserialize)]
struct Groups {
    groups: Vec<Named>,
}

/// An `APIGroup`.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Named {
    name: String,
    #[serde(deserialize_with = "or_default")]
    versions: Vec<Version>,
    #[serde(deserialize_with = "or_default")]
    preferred_version: Version,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Version {
    version: String,
}

impl From<Named> for Group {
    fn from(group: Named) -> Self {
        let versions = group.versions.into_iter().map(|entry| entry.version).collect();
        Self { name: group.name, versions, preferred: group.preferred_version.version }
    }
}

/// What is remembered; nothing where a part of it is missing or too old.
pub fn read(place: &Place) -> Option<Discovery> {
    let list: Groups = fresh(&place.0.join("servergroups.json"))?;
    let mut found = Discovery::default();
    for group in list.groups.into_iter().map(Group::from) {
        for version in &group.versions {
            let file = place.0.join(facts::api_version(&group.name, version)).join("serverresources.json");
            let list: Resources = fresh(&file)?;
            found.resources.extend(list.resources.into_iter().map(|one| Entry::mapping(one, &group.name, version)));
        }
        found.groups.push(group);
    }
    Some(found)
}

/// What a plural or a singular means in the first group, which comes before all others: what else there is need not be read. Nothing where it means
/// nothing there, or where it is not remembered.
pub fn in_first_group(place: &Place, word: &str) -> Option<Mapping> {
    let name = word.to_lowercase();
    let list: Groups = fresh(&place.0.join("servergroups.json"))?;
    let group = Group::from(list.groups.into_iter().next()?);
    let file = place.0.join(facts::api_version(&group.name, &group.preferred)).join("serverresources.json");
    let list: Resources = fresh(&file)?;
    let mut mappings = list.resources.into_iter().map(|one| one.mapping(&group.name, &group.preferred));
    mappings.find(|mapping| mapping.is_called(&name))
}

fn fresh<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut file = File::open(path).ok()?;
    let known = file.metadata().ok()?;
    // A clock that was set back makes a file of the future, which is fresh.
    let age = SystemTime::now().duration_since(known.modified().ok()?).unwrap_or_default();
    if age > LIFETIME {
        return None;
    }
    // At once: there are as many files as versions of groups, and a file is only ever replaced as a whole.
    let mut text = vec![0; usize::try_from(known.len()).ok()?];
    file.read_exact(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Remembers what was found. A cache that cannot be written is no failure: the next command asks again.
pub fn write(place: &Place, found: &Discovery) {
    // A server behind the server that does not answer is asked again next time.
    if !found.failed.is_empty() {
        return;
    }
    for group in &found.groups {
        for version in &group.versions {
            let api_version = facts::api_version(&group.name, version);
            let resources: Vec<Value> = found
                .resources
                .iter()
                .filter(|mapping| mapping.group == group.name && mapping.version == *version)
                .map(entry)
                .collect();
            let list = json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources,
            });
            let _ = put(&place.0.join(&api_version).join("serverresources.json"), list.to_string().as_bytes());
        }
    }
    let groups: Vec<Value> = found.groups.iter().map(group).collect();
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups});
    let _ = put(&place.0.join("servergroups.json"), list.to_string().as_bytes());
}

fn group(group: &Group) -> Value {
    let version =
        |version: &String| json!({"groupVersion": facts::api_version(&group.name, version), "version": version});
    json!({
        "name": group.name,
        "versions": group.versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": version(&group.preferred),
    })
}

fn entry(mapping: &Mapping) -> Value {
    let mut entry = json!({
        "name": mapping.resource,
        "singularName": mapping.singular,
        "namespaced": mapping.namespaced,
        "kind": mapping.kind,
        "verbs": mapping.verbs,
    });
    if !mapping.short_names.is_empty() {
        entry["shortNames"] = json!(mapping.short_names);
    }
    if !mapping.categories.is_empty() {
        entry["categories"] = json!(mapping.categories);
    }
    entry
}

/// Writes a file whole or not at all, for its owner and group alone: headers of answers may have secrets.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    }
    // Containers that share a home have processes of the same number.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let temporary = path.with_extension(format!("{}-{now}.tmp", std::process::id()));
    let written = write_new(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(0o660))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_found_again_until_it_is_old() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::at(directory.path());
        assert!(read(&place).is_none());
        let pods = Mapping {
            version: "v1".to_owned(),
            resource: "pods".to_owned(),
            singular: "pod".to_owned(),
            kind: "Pod".to_owned(),
            namespaced: true,
            short_names: vec!["po".to_owned()],
            categories: vec!["all".to_owned()],
            verbs: vec!["get".to_owned()],
            ..Mapping::default()
        };
        let core = Group { name: String::new(), versions: vec!["v1".to_owned()], preferred: "v1".to_owned() };
        let found = Discovery { groups: vec![core], resources: vec![pods], ..Discovery::default() };
        write(&place, &found);
        let pods = found.resources[0].clone();
        assert_eq!(read(&place), Some(found));
        for (word, expected) in [("pods", Some(&pods)), ("Pod", Some(&pods)), ("po", None), ("pods.v1.", None)] {
            assert_eq!(in_first_group(&place, word).as_ref(), expected, "{word}");
        }
        let file = directory.path().join("v1/serverresources.json");
        let old = SystemTime::now() - LIFETIME - Duration::from_secs(60);
        let opened = File::options().write(true).open(file).expect("the file");
        opened.set_modified(old).expect("an older file");
        assert!(read(&place).is_none() && in_first_group(&place, "pods").is_none());
    }

    #[test]
    fn files_are_for_nobody_else_and_nothing_is_left_beside_them() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("http");
        let mode = |path: &Path| std::fs::metadata(path).expect("what was written").permissions().mode() & 0o777;
        put(&folder.join("a"), b"1").expect("written");
        put(&folder.join("a"), b"2").expect("written again");
        assert_eq!((mode(&folder) & 0o027, mode(&folder.join("a"))), (0, 0o660));
        // A directory is in the way.
        std::fs::create_dir_all(folder.join("b/c")).expect("a directory");
        put(&folder.join("b"), b"3").expect_err("refused");
        assert_eq!(std::fs::read_dir(&folder).expect("a directory").count(), 2);
    }

    #[test]
    fn directories_are_named_as_upstream_names_them() {
        assert_eq!(safe("127.0.0.1:6443"), "127.0.0.1_6443");
        assert_eq!(safe("a-b.c:1/base"), "a_b.c_1/base");
    }
}
