//! Mounts of volumes: memory file systems, bind mounts, and paths inside volumes that a container could have bent.
//!
//! A volume's content belongs to its containers, which may replace any directory by a link to somewhere else while we
//! look at it. So nothing below a volume's root is ever opened by its path: [`open_beneath`] lets the kernel resolve it
//! with the promise never to leave the root, and what was opened is mounted by its descriptor.

use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// Why something is not mounted, or not opened.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {path}: {source}", path = path.display())]
pub struct Error {
    pub operation: &'static str,
    pub path: PathBuf,
    /// What the system said.
    pub source: std::io::Error,
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> Error {
    let path = path.to_owned();
    move |errno| Error { operation, path, source: errno.into() }
}

/// One line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub target: PathBuf,
    /// What kind of file system.
    pub kind: String,
    pub source: String,
    /// Whether mounts below it are seen by other namespaces.
    pub shared: bool,
    /// Whether each of its files has an SELinux label of its own.
    pub labelled: bool,
}

/// The mount table of this process, oldest first.
pub fn list() -> std::io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read_to_string("/proc/self/mountinfo")?))
}

/// Whether something is mounted exactly at `target`, whichever links lead there. One that `target` itself is, is not followed: what it leads
/// to is another place.
pub fn is_mounted(target: &Path) -> std::io::Result<bool> {
    let Some(target) = in_table(target)? else { return Ok(false) };
    Ok(list()?.iter().any(|mount| mount.target == target))
}

/// A path as the table of mounts knows it; nothing if no directory holds it.
fn in_table(path: &Path) -> std::io::Result<Option<PathBuf>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Some(path.to_owned())) };
    match parent.canonicalize() {
        Ok(parent) => Ok(Some(parent.join(name))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is mounted at or below `dir`, oldest first.
pub fn below(dir: &Path) -> std::io::Result<Vec<Mount>> {
    let Some(dir) = in_table(dir)? else { return Ok(Vec::new()) };
    Ok(list()?.into_iter().filter(|mount| mount.target.starts_with(&dir)).collect())
}

fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut left = left.split(' ');
            let target = PathBuf::from(unescape(left.nth(4)?));
            let shared = left.skip(1).any(|field| field.starts_with("shared:"));
            let mut right = right.split(' ');
            let (kind, source) = (right.next()?.to_owned(), unescape(right.next()?));
            let labelled = right.flat_map(|options| options.split(',')).any(|option| option == "seclabel");
            Some(Mount { target, kind, source, shared, labelled })
        })
        .collect()
}

/// The table writes blanks and backslashes as octal numbers.
fn unescape(field: &str) -> String {
    let mut out = Vec::with_capacity(field.len());
    let mut bytes = field.as_bytes();
    while let Some((&byte, rest)) = bytes.split_first() {
        let code = (byte == b'\\' && rest.len() >= 3)
            .then(|| std::str::from_utf8(&rest[..3]).ok().and_then(|octal| u8::from_str_radix(octal, 8).ok()))
            .flatten();
        out.push(code.unwrap_or(byte));
        bytes = if code.is_some() { &rest[3..] } else { rest };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Mounts a file system in memory. `size` is its limit in bytes, if any.
pub fn tmpfs(target: &Path, size: Option<u64>, mode: u32) -> Result<(), Error> {
    let size = size.map_or(String::new(), |bytes| format!(",size={bytes}"));
    let options = std::ffi::CString::new(format!("mode={mode:o}{size}")).expect("numbers hold no zero byte");
    rustix::mount::mount("tmpfs", target, "tmpfs", MountFlags::empty(), Some(options.as_c_str()))
        .map_err(failed("mount tmpfs on", target))
}

/// Mounts a file system in memory whose pages have `page` bytes, of those that the machine sets aside for that.
pub fn huge_pages(target: &Path, page: u64) -> Result<(), Error> {
    let options = std::ffi::CString::new(format!("pagesize={page}")).expect("numbers hold no zero byte");
    rustix::mount::mount("nodev", target, "hugetlbfs", MountFlags::empty(), Some(options.as_c_str()))
        .map_err(failed("mount hugetlbfs on", target))
}

/// Shows `source` at `target` too, with everything mounted below it.
pub fn bind(source: &Path, target: &Path) -> Result<(), Error> {
    rustix::mount::mount_bind_recursive(source, target).map_err(failed("bind to", target))
}

/// Shows an opened file or directory at `target` too, wherever its name points by now.
pub fn bind_fd(source: impl AsFd, target: &Path) -> Result<(), Error> {
    let name = format!("/proc/self/fd/{}", source.as_fd().as_raw_fd());
    rustix::mount::mount_bind_recursive(name.as_str(), target).map_err(failed("bind to", target))
}

/// The files of an image, as a runtime keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    Empty,
    /// In directories that lie over each other.
    Layers {
        lowest_last: Vec<PathBuf>,
        /// Further options of the file system that puts them together.
        options: Vec<String>,
    },
}

/// Shows the files of an image at `target`, for reading only. Shown already is fine.
pub fn show(view: &View, target: &Path) -> Result<(), Error> {
    let io = |source| Error { operation: "prepare", path: target.to_owned(), source };
    std::fs::create_dir_all(target).map_err(io)?;
    let View::Layers { lowest_last, options } = view else { return Ok(()) };
    if is_mounted(target).map_err(io)? {
        return Ok(());
    }
    if let [only] = &lowest_last[..] {
        bind(only, target)?;
        return rustix::mount::mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "").map_err(|errno| {
            let _ = unmount(target);
            failed("make read-only", target)(errno)
        });
    }
    // The kernel takes a page of options and images have more layers than fit into it by their full names.
    let common = lowest_last.iter().skip(1).fold(lowest_last.first().cloned().unwrap_or_default(), |sofar, path| {
        sofar.components().zip(path.components()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    });
    let base = open_root(&common)?;
    let short = |path: &PathBuf| {
        let rest = path.strip_prefix(&common).unwrap_or(path);
        format!("/proc/self/fd/{}/{}", base.as_raw_fd(), rest.display())
    };
    let lower: Vec<String> = lowest_last.iter().map(short).collect();
    let all: Vec<String> =
        [format!("lowerdir={}", lower.join(":"))].into_iter().chain(options.iter().cloned()).collect();
    let all = std::ffi::CString::new(all.join(",")).map_err(|error| io(std::io::Error::other(error)))?;
    rustix::mount::mount("overlay", target, "overlay", MountFlags::RDONLY, Some(all.as_c_str()))
        .map_err(failed("show an image at", target))
}

/// Makes mounts at and below `target` visible in both directions.
pub fn make_shared(target: &Path) -> Result<(), Error> {
    rustix::mount::mount_change(
        target,
        rustix::mount::MountPropagationFlags::SHARED | rustix::mount::MountPropagationFlags::REC,
    )
    .map_err(failed("share", target))
}

/// Makes `dir` a place whose mounts containers can share in both directions, if what it lies on is not. Says whether it is one now: a directory
/// with mounts in it is left as it is, since they would be hidden.
pub fn share(dir: &Path) -> Result<bool, Error> {
    let io = |source| Error { operation: "share", path: dir.to_owned(), source };
    let dir = dir.canonicalize().map_err(io)?;
    let table = list().map_err(io)?;
    // Of mounts at one place the last one is seen.
    let lies_on = table
        .iter()
        .filter(|mount| dir.starts_with(&mount.target))
        .max_by_key(|mount| mount.target.components().count());
    if lies_on.is_some_and(|mount| mount.shared) {
        return Ok(true);
    }
    if table.iter().any(|mount| mount.target != dir && mount.target.starts_with(&dir)) {
        return Ok(false);
    }
    if lies_on.is_none_or(|mount| mount.target != dir) {
        bind(&dir, &dir)?;
    }
    make_shared(&dir)?;
    Ok(true)
}

/// Takes a mount away, at once from view and for good when the last user lets go. Not mounted is no error.
pub fn unmount(target: &Path) -> Result<(), Error> {
    match rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("unmount", target)(errno)),
    }
}

/// Takes away every mount at or below `dir`, deepest first.
pub fn unmount_below(dir: &Path) -> Result<(), Error> {
    let table = below(dir).map_err(|source| Error { operation: "list mounts of", path: dir.to_owned(), source })?;
    for mount in table.iter().rev() {
        unmount(&mount.target)?;
    }
    Ok(())
}

/// Tries an overlay mount in `dir`.
pub fn overlay_works(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let trial = dir.join(format!(".overlay-trial-{}", std::process::id()));
    let part = |name: &str| trial.join(name);
    let result = (|| {
        for name in ["lower", "upper", "work", "merged"] {
            std::fs::create_dir_all(part(name))?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            part("lower").display(),
            part("upper").display(),
            part("work").display()
        );
        let options = std::ffi::CString::new(options).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        rustix::mount::mount("overlay", part("merged"), "overlay", MountFlags::empty(), Some(options.as_c_str()))?;
        rustix::mount::unmount(part("merged"), UnmountFlags::DETACH)?;
        Ok(())
    })();
    std::fs::remove_dir_all(&trial)?;
    result
}

/// Opens `path` below `root` without ever leaving it, by links or by `..`. The descriptor is good for mounting only.
pub fn open_beneath(root: &Path, path: &Path) -> Result<OwnedFd, Error> {
    let base = open_root(root)?;
    resolve(&base, path).map_err(failed("open", &root.join(path)))
}

/// As [`open_beneath`], making the directories that are missing with `mode`. A link on the way is followed only as long
/// as it stays below `root`.
pub fn make_beneath(root: &Path, path: &Path, mode: u32) -> Result<OwnedFd, Error> {
    let base = open_root(root)?;
    let full = root.join(path);
    let mut sofar = PathBuf::new();
    for component in path.components() {
        let Component::Normal(name) = component else {
            if component == Component::CurDir {
                continue;
            }
            return Err(failed("make", &full)(Errno::INVAL));
        };
        let parent = resolve(&base, &sofar).map_err(failed("open", &full))?;
        sofar.push(name);
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode)) {
            // The mode is set again because mkdir takes the process's mask away from it.
            Ok(()) => {
                let made = resolve(&base, &sofar).map_err(failed("open", &full))?;
                let name = format!("/proc/self/fd/{}", made.as_raw_fd());
                rustix::fs::chmodat(CWD, name.as_str(), Mode::from_raw_mode(mode), AtFlags::empty())
                    .map_err(failed("change mode of", &full))?;
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("make", &full)(errno)),
        }
    }
    resolve(&base, &sofar).map_err(failed("open", &full))
}

/// Opens a file or directory in `root` for reading, as somebody would see it whose root directory that is: links lead nowhere else.
pub fn open_inside(root: &Path, path: &Path) -> Result<std::fs::File, Error> {
    let base = open_root(root)?;
    // Not waiting for a writer matters when the file turns out to be a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open_at(&base, path, flags, ResolveFlags::IN_ROOT);
    opened.map(std::fs::File::from).map_err(failed("open", &root.join(path)))
}

/// The entries of an open directory, as far as they can be read.
pub fn list_dir(dir: &std::fs::File) -> std::io::Result<impl Iterator<Item = std::fs::DirEntry>> {
    Ok(std::fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))?.flatten())
}

/// The content of a regular file in `root`, opened as [`open_inside`] does. A file of more than `limit` bytes is an error.
pub fn read_inside(root: &Path, path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let full = root.join(path);
    let file = open_inside(root, path)?;
    let read = || -> std::io::Result<Vec<u8>> {
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        let mut content = Vec::new();
        (&file).take(limit + 1).read_to_end(&mut content)?;
        if content.len() as u64 > limit {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        Ok(content)
    };
    read().map_err(|source| Error { operation: "read", path: full, source })
}

fn open_root(root: &Path) -> Result<OwnedFd, Error> {
    rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed("open", root))
}

fn resolve(base: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    open_at(base, path, OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::BENEATH)
}

fn open_at(base: &OwnedFd, path: &Path, flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Errno> {
    loop {
        match rustix::fs::openat2(base, path, flags, Mode::empty(), how | ResolveFlags::NO_MAGICLINKS) {
            // The tree was renamed under the kernel's feet; it says so instead of guessing.
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
}

/// Capacity of the file system that holds `path`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    pub bytes: u64,
    pub free: u64,
    /// Bytes free for everybody.
    pub available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

/// How full the file system that holds `path` is.
pub fn capacity(path: &Path) -> Result<Capacity, Error> {
    let stat = rustix::fs::statvfs(path).map_err(failed("stat file system of", path))?;
    Ok(Capacity {
        bytes: stat.f_blocks * stat.f_frsize,
        free: stat.f_bfree * stat.f_frsize,
        available: stat.f_bavail * stat.f_frsize,
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        let table = "36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - ext4 /dev/root rw\n\
                     37 35 98:0 / /mnt/c rw - tmpfs tmpfs rw,seclabel,size=1k\n";
        let mounts = parse(table);
        assert_eq!(mounts[0].target, Path::new("/mnt/a b"));
        assert!(mounts[0].shared && !mounts[1].shared);
        assert!(!mounts[0].labelled && mounts[1].labelled);
        assert_eq!((mounts[1].kind.as_str(), mounts[1].source.as_str()), ("tmpfs", "tmpfs"));
    }

    #[test]
    fn a_mount_is_found_behind_a_link_and_a_link_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir_all(real.join("volume")).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let through = link.join("volume");
        assert!(!is_mounted(&through).unwrap() && !is_mounted(&link.join("none/at/all")).unwrap());
        tmpfs(&through, None, 0o755).unwrap();
        assert!(is_mounted(&through).unwrap() && is_mounted(&real.join("volume")).unwrap());
        std::os::unix::fs::symlink(&through, dir.path().join("shortcut")).unwrap();
        assert!(!is_mounted(&dir.path().join("shortcut")).unwrap());
        assert_eq!(below(&link.join("volume")).unwrap().len(), 1);
        unmount_below(&through).unwrap();
        assert!(!is_mounted(&through).unwrap());
    }

    #[test]
    fn a_directory_is_shared_once_and_not_over_what_is_mounted_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        // Whatever the machine's own mounts are.
        tmpfs(&dir, None, 0o755).unwrap();
        rustix::mount::mount_change(&dir, rustix::mount::MountPropagationFlags::PRIVATE).unwrap();
        let (root, busy) = (dir.join("root"), dir.join("busy"));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir_all(busy.join("in")).unwrap();
        let at = |path: &Path| list().unwrap().into_iter().filter(|mount| mount.target == path).collect::<Vec<_>>();
        for _ in 0..2 {
            assert!(share(&root).unwrap());
            assert!(matches!(&at(&root)[..], [one] if one.shared), "{:?}", at(&root));
        }
        tmpfs(&busy.join("in"), None, 0o755).unwrap();
        assert!(!share(&busy).unwrap());
        assert_eq!(at(&busy), []);
        unmount_below(&dir).unwrap();
    }

    #[test]
    fn a_path_in_a_volume_cannot_leave_it() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir_all(volume.join("real/deep")).unwrap();
        std::fs::create_dir(dir.path().join("secret")).unwrap();
        std::os::unix::fs::symlink("../secret", volume.join("up")).unwrap();
        std::os::unix::fs::symlink("/etc", volume.join("absolute")).unwrap();
        std::os::unix::fs::symlink("real", volume.join("inside")).unwrap();
        for bad in ["up", "absolute/passwd", "../secret", "inside/../../secret"] {
            assert!(open_beneath(&volume, Path::new(bad)).is_err(), "{bad}");
            assert!(make_beneath(&volume, Path::new(bad), 0o750).is_err(), "{bad}");
        }
        open_beneath(&volume, Path::new("inside/deep")).unwrap();
        make_beneath(&volume, Path::new("inside/new/dir"), 0o777).unwrap();
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&volume.join("real/new/dir").metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o777);
        make_beneath(&volume, Path::new("grouped/deep"), 0o2770).unwrap();
        for path in ["grouped", "grouped/deep"] {
            let found = volume.join(path).metadata().unwrap().permissions();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&found) & 0o7777, 0o2770, "{path}");
        }
    }

    #[test]
    fn an_image_is_shown_with_its_layers_over_each_other_and_cannot_be_changed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        // More layers than their full names would leave room for.
        let layers: Vec<PathBuf> =
            (0..100).rev().map(|n| dir.join(format!("a-rather-long-name-of-layers/{n}/fs"))).collect();
        for (index, layer) in layers.iter().enumerate() {
            std::fs::create_dir_all(layer).unwrap();
            std::fs::write(layer.join("top"), index.to_string()).unwrap();
        }
        std::fs::write(layers[99].join("lowest"), "x").unwrap();
        let view = |paths: &[PathBuf]| View::Layers { lowest_last: paths.to_vec(), options: vec![] };
        for (name, view, lowest) in [("all", view(&layers), true), ("one", view(&layers[..1]), false)] {
            let target = dir.join(name);
            show(&view, &target).unwrap();
            show(&view, &target).unwrap();
            assert_eq!(std::fs::read_to_string(target.join("top")).unwrap(), "0", "{name}");
            assert_eq!(target.join("lowest").exists(), lowest, "{name}");
            let refused = std::fs::write(target.join("new"), "").unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{name}");
        }
        show(&View::Empty, &dir.join("empty")).unwrap();
        assert_eq!(std::fs::read_dir(dir.join("empty")).unwrap().count(), 0);
        unmount_below(&dir).unwrap();
    }

    #[test]
    fn a_file_is_read_inside_its_volume_only() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir_all(volume.join("etc")).unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        std::fs::write(volume.join("etc/file"), "inside").unwrap();
        std::os::unix::fs::symlink("../secret", volume.join("up")).unwrap();
        std::os::unix::fs::symlink("/etc/file", volume.join("absolute")).unwrap();
        rustix::fs::mknodat(CWD, volume.join("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let read = |path: &str, limit| read_inside(&volume, Path::new(path), limit).map_err(|error| error.to_string());
        assert_eq!(read("etc/file", 6).unwrap(), b"inside");
        assert_eq!(read("absolute", 6).unwrap(), b"inside");
        assert!(read("etc/file", 5).is_err());
        for bad in ["up", "../secret", "pipe", "etc", "none"] {
            assert!(read(bad, 100).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_volumes_come_and_go_with_everything_below_them() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (a, b) = (dir.join("a"), dir.join("b"));
        std::fs::create_dir(&a).unwrap();
        std::fs::create_dir(&b).unwrap();
        tmpfs(&a, Some(1 << 20), 0o777).unwrap();
        assert_eq!(capacity(&a).unwrap().bytes, 1 << 20);
        std::fs::write(a.join("file"), "x").unwrap();
        bind(&a, &b).unwrap();
        assert_eq!(std::fs::read(b.join("file")).unwrap(), b"x");
        assert!(is_mounted(&b).unwrap());
        unmount_below(&dir).unwrap();
        assert!(!is_mounted(&a).unwrap() && !is_mounted(&b).unwrap());
        unmount(&a).unwrap();
    }
}
