//! Control groups: the tree in which pods are limited and counted, on cgroup v1 and v2, made by us or by systemd.
//!
//! A [`Name`] is a path of plain words (`kubepods`, `burstable`, `pod<uid>`). How it is spelled on disk depends on the
//! driver: directories for `cgroupfs`, slices for `systemd`. Container runtimes make the groups of single containers below.

mod details;
mod systemd;
mod v1;
mod v2;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use details::{Details, Disk};
use threads::heavy::blocking;

/// Who makes cgroups on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// We do, in the file system.
    Cgroupfs,
    /// systemd does, on request.
    Systemd,
}

impl Driver {
    /// systemd where it is the init system: two masters in one tree would undo each other's settings.
    pub fn detect() -> Self {
        if Path::new("/run/systemd/system").is_dir() { Self::Systemd } else { Self::Cgroupfs }
    }
}

/// Which of the kernel's two interfaces is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// One tree per controller; `unified` is the controller-less v2 tree beside them, where there is one.
    V1(BTreeMap<String, PathBuf>),
    V2(PathBuf),
}

/// Why a cgroup is not as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{operation} {path}: {source}", path = path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    #[error("ask systemd for {unit}: {source}")]
    Systemd {
        unit: String,
        /// What `busctl` said.
        source: crate::run::Error,
    },
    /// No cgroup file system is mounted.
    #[error("no cgroup file system is mounted")]
    Absent,
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { operation, path, source }
}

/// A cgroup's place in the tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Vec<String>);

impl Name {
    /// A name from its words, outermost first.
    pub fn new<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Self {
        Self(words.into_iter().map(Into::into).collect())
    }

    /// The group `word` in this one.
    #[must_use]
    pub fn child(&self, word: &str) -> Self {
        let mut words = self.0.clone();
        words.push(word.to_owned());
        Self(words)
    }

    /// What a container runtime gets as the parent of a container's group.
    pub fn parent_for_runtime(&self, driver: Driver) -> String {
        match driver {
            Driver::Cgroupfs => format!("/{}", self.0.join("/")),
            Driver::Systemd => self.slice(),
        }
    }

    /// The path below the root of a hierarchy.
    pub fn path(&self, driver: Driver) -> PathBuf {
        match driver {
            Driver::Cgroupfs => self.0.iter().collect(),
            // Every slice lies in the slice its name says: a-b.slice is a.slice/a-b.slice.
            Driver::Systemd => (1..=self.0.len()).map(|n| Self(self.0[..n].to_vec()).slice()).collect(),
        }
    }

    fn slice(&self) -> String {
        // A dash separates levels, so a word's own dashes are written otherwise.
        let words: Vec<String> = self.0.iter().map(|word| word.replace('-', "_")).collect();
        format!("{}.slice", words.join("-"))
    }

    fn ancestors(&self) -> impl Iterator<Item = Self> + '_ {
        (1..self.0.len()).map(|n| Self(self.0[..n].to_vec()))
    }
}

/// Limits of a cgroup. What is not given is left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Relative weight in cgroup v1's scale, 2 to 262144.
    pub cpu_shares: Option<u64>,
    /// Microseconds of processor time per period; negative for no limit.
    pub cpu_quota: Option<i64>,
    /// Microseconds of a period.
    pub cpu_period: Option<u64>,
    /// Bytes of memory; negative for no limit.
    pub memory: Option<i64>,
    /// Number of processes; negative for no limit.
    pub pids: Option<i64>,
}

/// What a cgroup used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time since it was made.
    pub cpu_nanos: u64,
    /// Bytes of memory, caches included.
    pub memory: u64,
    /// Bytes that cannot be had back without pain.
    pub working_set: u64,
    /// Bytes of anonymous memory.
    pub rss: u64,
    pub page_faults: u64,
    /// Page faults that had to wait for a disk.
    pub major_page_faults: u64,
    pub pids: u64,
}

/// The machine's control groups.
#[derive(Debug, Clone)]
pub struct Cgroups {
    hierarchy: Hierarchy,
    driver: Driver,
}

impl Cgroups {
    /// Looks at what is mounted.
    pub fn detect(driver: Driver) -> Result<Self, Error> {
        let table = crate::mounts::list().map_err(failed("read mounts of", Path::new("/sys/fs/cgroup")))?;
        let mut v1 = BTreeMap::new();
        let mut v2 = None;
        let mut hybrid = None;
        let info = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for mount in &table {
            match mount.kind.as_str() {
                "cgroup2" if mount.target == Path::new("/sys/fs/cgroup") => v2 = Some(mount.target.clone()),
                "cgroup2" => hybrid = Some(mount.target.clone()),
                "cgroup" => {
                    for controller in v1::controllers_of(&info, &mount.target) {
                        v1.entry(controller).or_insert_with(|| mount.target.clone());
                    }
                }
                _ => {}
            }
        }
        // Runtimes make a group there too, which has to go with the others.
        v1.extend(hybrid.map(|root| ("unified".to_owned(), root)));
        let hierarchy = match v2 {
            Some(root) => Hierarchy::V2(root),
            None if v1.contains_key("memory") || v1.contains_key("cpu") => Hierarchy::V1(v1),
            None => return Err(Error::Absent),
        };
        Ok(Self { hierarchy, driver })
    }

    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Which interface the kernel offers.
    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Makes a cgroup, with its ancestors, and sets its limits. Existing is no error.
    pub async fn create(&self, name: &Name, limits: &Limits) -> Result<(), Error> {
        if self.driver == Driver::Systemd {
            for slice in name.ancestors() {
                systemd::ensure(&slice, &Limits::default(), &self.hierarchy).await?;
            }
            return systemd::ensure(name, limits, &self.hierarchy).await;
        }
        // While runtimes make and end containers, the kernel's lock on cgroups is waited for, tens of milliseconds at times.
        blocking(|| match &self.hierarchy {
            Hierarchy::V1(trees) => v1::create(trees, &name.path(self.driver)),
            Hierarchy::V2(root) => v2::create(root, &name.path(self.driver)),
        })
        .await?;
        self.update(name, limits).await
    }

    /// Changes limits in place.
    pub async fn update(&self, name: &Name, limits: &Limits) -> Result<(), Error> {
        if self.driver == Driver::Systemd {
            return systemd::update(name, limits, &self.hierarchy).await;
        }
        blocking(|| match &self.hierarchy {
            Hierarchy::V1(trees) => v1::limit(trees, &name.path(self.driver), limits),
            Hierarchy::V2(root) => v2::limit(&root.join(name.path(self.driver)), limits),
        })
        .await
    }

    /// Removes a cgroup and those below it, killing what is still in them. Not there is no error.
    pub async fn remove(&self, name: &Name) -> Result<(), Error> {
        let path = name.path(self.driver);
        for dir in self.directories(&path) {
            if dir.exists() {
                empty(&dir).await?;
            }
        }
        if self.driver == Driver::Systemd {
            return systemd::stop(name).await;
        }
        for dir in self.directories(&path) {
            blocking(|| remove_tree(&dir)).await.map_err(failed("remove", &dir))?;
        }
        Ok(())
    }

    /// What a cgroup used, or nothing when there is no such cgroup.
    pub fn usage(&self, name: &Name) -> Option<Usage> {
        self.usage_at(&name.path(self.driver))
    }

    /// What the whole machine used, as far as the root group counts it.
    pub fn usage_of_root(&self) -> Option<Usage> {
        self.usage_at(Path::new(""))
    }

    /// Everything that is counted of the group at a path below the root, or nothing when there is no such group.
    pub fn details(&self, path: &Path) -> Option<Details> {
        self.usage_at(path).map(|usage| details::read(&self.hierarchy, path, usage))
    }

    /// The path of the group that the runtime made for a container in its pod's. Runtimes name it differently, but the
    /// container's id is in every name.
    pub fn of_container(&self, pod: &Name, id: &str) -> Option<PathBuf> {
        let word = self.children(pod).into_iter().find(|word| word.contains(id))?;
        Some(pod.path(self.driver).join(word))
    }

    /// The processes in the group at a path below the root, and in those below it.
    pub fn processes(&self, path: &Path) -> Vec<i32> {
        let mut dirs = self.directories(path).into_iter().map(|dir| processes_below(&dir));
        dirs.find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn usage_at(&self, path: &Path) -> Option<Usage> {
        match &self.hierarchy {
            Hierarchy::V1(trees) => v1::usage(trees, path),
            Hierarchy::V2(root) => v2::usage(&root.join(path)),
        }
    }

    /// Any process in a cgroup or below it.
    pub fn process(&self, name: &Name) -> Option<i32> {
        self.processes(&name.path(self.driver)).into_iter().next()
    }

    /// Names of the groups right below one.
    pub fn children(&self, name: &Name) -> Vec<String> {
        let mut names: Vec<String> = self
            .directories(&name.path(self.driver))
            .iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flat_map(|listing| listing.flatten())
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Where a cgroup is on disk: one directory, or one per controller.
    fn directories(&self, path: &Path) -> Vec<PathBuf> {
        match &self.hierarchy {
            Hierarchy::V1(trees) => {
                let mut dirs: Vec<PathBuf> = trees.values().map(|root| root.join(path)).collect();
                dirs.sort();
                dirs.dedup();
                dirs
            }
            Hierarchy::V2(root) => vec![root.join(path)],
        }
    }
}

/// Kills every process in a group and below it, and waits until they are gone.
async fn empty(dir: &Path) -> Result<(), Error> {
    let mut pause = std::time::Duration::from_millis(1);
    for _ in 0..12 {
        let processes = processes_below(dir);
        if processes.is_empty() {
            return Ok(());
        }
        for pid in processes {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        // The kernel announces no end of a foreign process here; it is near, and the number of looks is bounded.
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Ok(())
}

fn processes_below(dir: &Path) -> Vec<i32> {
    let own = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(processes_below(&entry.path()));
        }
    }
    found
}

/// A cgroup is removed by removing its directory; its files vanish by themselves.
fn remove_tree(dir: &Path) -> std::io::Result<()> {
    let listing = match std::fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    for entry in listing.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    match std::fs::remove_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A number alone in a file.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number after a word in a file of `word number` lines.
fn field(text: &str, word: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == word)
        .map_or(0, |(_, value)| value.trim().parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_each_driver_wants_them() {
        let pod = Name::new(["kubepods", "burstable"]).child("podab-cd");
        assert_eq!(pod.parent_for_runtime(Driver::Cgroupfs), "/kubepods/burstable/podab-cd");
        assert_eq!(pod.parent_for_runtime(Driver::Systemd), "kubepods-burstable-podab_cd.slice");
        assert_eq!(
            pod.path(Driver::Systemd),
            Path::new("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice")
        );
    }

    /// The kernel of a machine with the old interface often has a unified tree beside it, without controllers: groups can be
    /// made there all the same, one level after the other, and are removed with what runs in them.
    #[tokio::test]
    async fn groups_of_the_unified_tree_are_made_and_removed() {
        let mounts = crate::mounts::list().unwrap();
        let Some(root) = mounts.into_iter().find(|mount| mount.kind == "cgroup2").map(|mount| mount.target) else {
            panic!("no unified tree is mounted on this machine: mount -t cgroup2 none /sys/fs/cgroup/unified")
        };
        let cgroups = Cgroups { hierarchy: Hierarchy::V2(root.clone()), driver: Driver::Cgroupfs };
        let top = Name::new([format!("trireme-unified-{}", std::process::id())]);
        let name = top.child("burstable").child("pod1");
        cgroups.create(&name, &Limits::default()).await.unwrap();
        let dir = root.join(name.path(Driver::Cgroupfs));
        let mut child = tokio::process::Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        std::fs::write(dir.join("cgroup.procs"), child.id().unwrap().to_string()).unwrap();
        assert_eq!(cgroups.children(&top), ["burstable"]);
        assert_eq!(cgroups.process(&name).map(|id| id.unsigned_abs()), child.id());
        assert!(cgroups.usage(&name).is_some());
        let (removed, ended) = tokio::join!(cgroups.remove(&top), child.wait());
        removed.unwrap();
        assert!(!ended.unwrap().success() && !dir.exists());
    }

    #[tokio::test]
    async fn a_group_is_made_limited_counted_and_removed_with_what_runs_in_it() {
        let cgroups = Cgroups::detect(Driver::Cgroupfs).unwrap();
        let top = Name::new([format!("trireme-test-{}", std::process::id())]);
        let name = top.child("pod1");
        let limits = Limits {
            cpu_shares: Some(512),
            cpu_quota: Some(50_000),
            cpu_period: Some(100_000),
            memory: Some(64 << 20),
            pids: Some(32),
        };
        cgroups.create(&name, &limits).await.unwrap();
        cgroups.create(&name, &limits).await.unwrap();
        let mut child = tokio::process::Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let pid = child.id().unwrap().to_string();
        for dir in cgroups.directories(&name.path(Driver::Cgroupfs)) {
            if dir.exists() && !dir.starts_with("/sys/fs/cgroup/cpuset") {
                std::fs::write(dir.join("cgroup.procs"), &pid).unwrap();
            }
        }
        assert_eq!(cgroups.usage(&name).unwrap().pids, 1);
        assert_eq!(cgroups.children(&top), ["pod1"]);
        let path = cgroups.of_container(&top, "od1").unwrap();
        assert_eq!(path, name.path(Driver::Cgroupfs));
        let details = cgroups.details(&path).unwrap();
        assert_eq!((details.usage.pids, details.most_pids), (1, Some(32)));
        assert_eq!(cgroups.processes(&path).len(), 1);
        assert_eq!(cgroups.process(&top).map(|found| found.to_string()), Some(pid));
        let (removed, ended) = tokio::join!(cgroups.remove(&top), child.wait());
        removed.unwrap();
        assert!(!ended.unwrap().success());
        assert!(cgroups.usage(&name).is_none());
        cgroups.remove(&top).await.unwrap();
    }
}
