//! What the driver keeps volumes in: directories, and image files that are shown as block devices.

use std::path::Path;
use std::process::Command;

use tonic::Status;

pub(super) fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// Makes a volume that is a device of so many bytes, or a directory.
pub(super) fn create(path: &Path, block: bool, bytes: i64) -> Result<(), Status> {
    if !block {
        return std::fs::create_dir_all(path).map_err(internal);
    }
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(internal)?;
    let bytes = u64::try_from(bytes).unwrap_or(0).max(1 << 20);
    if file.metadata().map_err(internal)?.len() < bytes { file.set_len(bytes).map_err(internal) } else { Ok(()) }
}

pub(super) fn delete(path: &Path) -> Result<(), Status> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(internal(error)),
        _ => Ok(()),
    }
}

/// Shows a directory at `target`. Shown already is fine.
pub(super) fn show(source: &Path, target: &Path, readonly: bool) -> Result<(), Status> {
    std::fs::create_dir_all(target).map_err(internal)?;
    if node::mounts::is_mounted(target).map_err(internal)? {
        return Ok(());
    }
    node::mounts::bind(source, target).map_err(internal)?;
    if readonly {
        run("mount", &["-o", "remount,bind,ro", &target.to_string_lossy()])?;
    }
    Ok(())
}

/// Shows an image file as a device at `target`. Shown already is fine.
pub(super) fn show_device(image: &Path, target: &Path) -> Result<(), Status> {
    if node::mounts::is_mounted(target).map_err(internal)? {
        return Ok(());
    }
    let device = match device_of(image)? {
        Some(device) => device,
        None => run("losetup", &["--find", "--show", &image.to_string_lossy()])?,
    };
    std::fs::OpenOptions::new().create(true).append(true).open(target).map_err(internal)?;
    node::mounts::bind(Path::new(&device), target).map_err(internal)
}

/// Takes the device of an image away.
pub(super) fn detach_device(image: &Path) -> Result<(), Status> {
    match device_of(image)? {
        Some(device) => run("losetup", &["--detach", &device]).map(drop),
        None => Ok(()),
    }
}

fn device_of(image: &Path) -> Result<Option<String>, Status> {
    let found = run("losetup", &["--associated", &image.to_string_lossy(), "--noheadings", "--output", "NAME"])?;
    Ok(found.lines().next().map(|line| line.trim().to_owned()).filter(|name| !name.is_empty()))
}

/// Takes what is shown at `target` away, and the empty place too.
pub(super) fn hide(target: &Path) -> Result<(), Status> {
    node::mounts::unmount(target).map_err(internal)?;
    let Ok(found) = target.symlink_metadata() else { return Ok(()) };
    let removed = if found.is_dir() { std::fs::remove_dir(target) } else { std::fs::remove_file(target) };
    removed.map_err(internal)
}

fn run(program: &str, args: &[&str]) -> Result<String, Status> {
    let output = Command::new(program).args(args).output().map_err(internal)?;
    if !output.status.success() {
        return Err(internal(String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
