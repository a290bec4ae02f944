//! The drivers that made themselves known, by name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// A version of the contract: `1.10.0` is higher than `1.9.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(Vec<u64>);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let plain = text.split(['-', '+']).next().unwrap_or_default();
        let parts: Option<Vec<u64>> = plain.split('.').map(|part| part.parse().ok()).collect();
        parts.filter(|parts| parts.len() >= 2).map(Self)
    }

    /// The highest of these that is spoken here: those of the first major version.
    pub(super) fn highest(versions: &[String]) -> Option<Self> {
        versions.iter().filter_map(|text| Self::parse(text)).filter(|version| version.0[0] == 1).max()
    }
}

#[derive(Debug)]
struct Registered {
    driver: csi::Driver,
    version: Version,
    /// The socket by which it made itself known.
    by: PathBuf,
}

/// The drivers of this node.
pub(crate) struct Drivers {
    known: Mutex<HashMap<String, Registered>>,
    on_arrival: Box<dyn Fn() + Send + Sync>,
}

impl Drivers {
    /// `on_arrival` is called when there is one more.
    pub(super) fn new(on_arrival: impl Fn() + Send + Sync + 'static) -> Self {
        Self { known: Mutex::default(), on_arrival: Box::new(on_arrival) }
    }

    pub(crate) fn get(&self, name: &str) -> Option<csi::Driver> {
        self.known.lock().get(name).map(|known| known.driver.clone())
    }

    /// Whether a driver may make itself known by this socket.
    pub(super) fn check(&self, name: &str, versions: &[String], by: &Path) -> Result<Version, String> {
        let begin = format!("kubernetes.io/csi: RegisterPlugin for CSI driver {name:?} failed.");
        if versions.is_empty() {
            return Err(format!("{begin} Plugin returned an empty list for supported versions"));
        }
        let Some(version) = Version::highest(versions) else {
            return Err(format!("{begin} None of the versions specified {versions:?} are supported."));
        };
        match self.known.lock().get(name) {
            Some(other) if other.by != by && other.version >= version => Err(format!(
                "{begin} Another driver with the same name is already registered with a higher supported version: \"{}\"",
                other.version
            )),
            _ => Ok(version),
        }
    }

    pub(super) fn add(&self, name: &str, driver: csi::Driver, version: Version, by: &Path) {
        self.known.lock().insert(name.to_owned(), Registered { driver, version, by: by.to_owned() });
        (self.on_arrival)();
    }

    /// Forgets the driver that made itself known by a socket; its name.
    pub(super) fn remove(&self, by: &Path) -> Option<String> {
        let mut known = self.known.lock();
        let name = known.iter().find(|(_, one)| one.by == by).map(|(name, _)| name.clone())?;
        known.remove(&name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_first_major_are_spoken_and_names_do_not_clash() {
        let drivers = Drivers::new(|| {});
        let (one, other) = (Path::new("/r/one.sock"), Path::new("/r/other.sock"));
        let list = |versions: &[&str]| versions.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let version = drivers.check("d", &list(&["0.3.0", "1.2.0", "1.10.0", "2.0.0"]), one).unwrap();
        assert_eq!(version.to_string(), "1.10.0");
        assert!(drivers.check("d", &[], one).unwrap_err().ends_with("an empty list for supported versions"));
        assert!(drivers.check("d", &list(&["2.0.0", "x"]), one).unwrap_err().contains("are supported"));
        drivers.add("d", csi::Driver::new(Path::new("/d.sock")), version, one);
        let refused = drivers.check("d", &list(&["1.10.0"]), other).unwrap_err();
        assert!(refused.ends_with("with a higher supported version: \"1.10.0\""), "{refused}");
        assert!(drivers.check("d", &list(&["1.11.0"]), other).is_ok());
        assert!(drivers.check("d", &list(&["1.0.0"]), one).is_ok(), "it may come again by its own socket");
        assert_eq!(drivers.remove(other), None);
        assert_eq!(drivers.remove(one).as_deref(), Some("d"));
        assert!(drivers.get("d").is_none());
    }
}
