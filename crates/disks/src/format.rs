//! From a device to a directory with its files: a file system is made on a disk that has nothing on it, and only there.

use std::path::Path;

use crate::Host;

/// What a disk is said to have on it that has partitions.
const PARTITIONS: &str = "unknown data, probably partitions";
/// `blkid` found nothing on the disk.
const NOTHING: i32 = 2;
/// `fsck` found what it could not mend.
const BROKEN: i32 = 4;

impl Host {
    /// Mounts a disk, with a file system made on it if it has none.
    pub async fn mount(&self, device: &Path, target: &Path, kind: &str, options: &[String]) -> Result<(), String> {
        let source = device.to_string_lossy();
        let kind = if kind.is_empty() { "ext4" } else { kind };
        let read_only = options.iter().any(|option| option == "ro");
        let found = self.found_on(&source).await;
        let found = found.map_err(|why| format!("failed to get disk format of disk {source}: {why}"))?;
        match (found, read_only) {
            (None, true) => {
                return Err(format!(
                    "cannot mount unformatted disk {source} as we are manipulating it in read-only mode"
                ));
            }
            (None, false) => self.make(&source, target, kind, options).await?,
            (Some(_), true) => {}
            (Some(found), false) => {
                if found != kind {
                    tracing::warn!(disk = %source, found, kind, "a disk has another file system than it should have");
                }
                self.check(&source).await?;
            }
        }
        let options: Vec<String> = options.iter().cloned().chain(["defaults".to_owned()]).collect();
        node::mount_program::mount(kind, &source, target, &options).await
    }

    /// What is on a disk, if anything.
    async fn found_on(&self, disk: &str) -> Result<Option<String>, String> {
        let said = match self.run("blkid", &["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", disk]).await {
            Ok(said) => said,
            Err(failed) if failed.code == Some(NOTHING) => return Ok(None),
            Err(failed) => return Err(failed.why),
        };
        let mut found = None;
        for line in said.lines().filter(|line| !line.is_empty()) {
            match line.split_once('=') {
                Some(("PTTYPE", _)) => return Ok(Some(PARTITIONS.to_owned())),
                Some(("TYPE", kind)) => found = Some(kind.to_owned()),
                Some(_) => {}
                None => return Err(format!("blkid returns invalid output: {said}")),
            }
        }
        Ok(found)
    }

    async fn make(&self, disk: &str, target: &Path, kind: &str, options: &[String]) -> Result<(), String> {
        let flags: &[&str] = match kind {
            "ext3" | "ext4" => &["-F", "-m0"],
            "xfs" => &["-f"],
            _ => &[],
        };
        let arguments: Vec<&str> = flags.iter().copied().chain([disk]).collect();
        let made = self.run(&format!("mkfs.{kind}"), &arguments).await;
        made.map(drop).map_err(|failed| {
            let (why, said, options) = (failed.why, failed.said, options.join(","));
            let target = target.display();
            format!(
                "format of disk {disk:?} failed: type:({kind:?}) target:(\"{target}\") options:({options:?}) errcode:({why}) output:({said}) "
            )
        })
    }

    async fn check(&self, disk: &str) -> Result<(), String> {
        match self.run("fsck", &["-a", disk]).await {
            Err(failed) if failed.code == Some(BROKEN) => {
                let said = failed.said;
                Err(format!("'fsck' found errors on device {disk} but could not correct them: {said}"))
            }
            Err(failed) => {
                tracing::warn!(disk, why = failed.why, said = failed.said, "fsck");
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }
}
