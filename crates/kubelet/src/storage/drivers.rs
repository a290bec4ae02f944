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
    fn parse(text: &str) -> Result<Self, String> {
        let plain = text.trim_start();
        let plain = plain.strip_prefix('v').unwrap_or(plain);
        let end = plain.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(plain.len());
        let numbers = plain[..end].trim_end_matches('.');
        let parts: Option<Vec<u64>> = numbers.split('.').map(|part| part.parse().ok()).collect();
        match parts {
            None => Err(format!("could not parse {text:?} as version")),
            Some(parts) if parts.len() < 2 => Err(format!("illegal version string {text:?}")),
            Some(parts) => Ok(Self(parts)),
        }
    }

    /// The highest of these that is spoken here: those of the first major version.
    pub(super) fn highest(versions: &[String]) -> Result<Self, String> {
        let (mut highest, mut wrong): (Option<Self>, String) = (None, "<nil>".to_owned());
        for text in versions.iter().rev() {
            match Self::parse(text) {
                Ok(version) if version.0[0] <= 1 => highest = highest.max(Some(version)),
                Ok(_) => {}
                Err(why) => wrong = why,
            }
        }
        match highest {
            None => Err(format!(
                "could not find a highest supported version from versions ([{}]) reported: {wrong}",
                versions.join(" ")
            )),
            Some(version) if version.0[0] != 1 => {
                Err(format!("highest supported version reported is {version}, must be v1.x"))
            }
            Some(version) => Ok(version),
        }
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
        let begin = format!("kubernetes.io/csi: ValidatePlugin for CSI driver {name:?} failed.");
        if versions.is_empty() {
            return Err(format!("{begin} Plugin returned an empty list for supported versions"));
        }
        let version = Version::highest(versions).map_err(|why| {
            let shown: Vec<String> = versions.iter().map(|version| format!("{version:?}")).collect();
            format!("{begin} None of the versions specified [{}] are supported. err={why}", shown.join(" "))
        })?;
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
        let wrong = |versions: &[&str]| {
            let why = drivers.check("d", &list(versions), one).unwrap_err();
            why.split_once(" failed. ").unwrap().1.to_owned()
        };
        assert_eq!(
            wrong(&["2.0.0", "x"]),
            "None of the versions specified [\"2.0.0\" \"x\"] are supported. err=could not find a highest supported version from versions ([2.0.0 x]) reported: could not parse \"x\" as version"
        );
        assert!(wrong(&["0.3.0"]).ends_with("err=highest supported version reported is 0.3.0, must be v1.x"));
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
