//! `trireme image`: makes small images from what is on this machine, for demonstrations and tests without a registry.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use node::tar::Entry;

use crate::component::Failure;

/// What to make.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// An image of this machine's statically linked busybox (Debian: busybox-static), as an OCI archive.
    ///
    /// Put it into the data directory's `images` folder, and the server imports it at its next start.
    Busybox {
        /// The image's name.
        #[arg(long, value_name = "NAME", default_value = "docker.io/library/busybox:stable")]
        name: String,
        /// The program.
        #[arg(long, value_name = "FILE", default_value = "/bin/busybox")]
        program: PathBuf,
        /// The archive to write.
        #[arg(value_name = "ARCHIVE")]
        archive: PathBuf,
    },
    /// An image of this very program and the libraries that it runs with, as an OCI archive.
    ///
    /// In it are links by the names of upstream's programs, too, so that manifests which start kube-apiserver start this one.
    Trireme {
        /// The image's name.
        #[arg(long, value_name = "NAME", default_value = concat!("registry.trireme.local/trireme:", env!("CARGO_PKG_VERSION")))]
        name: String,
        /// The archive to write.
        #[arg(value_name = "ARCHIVE")]
        archive: PathBuf,
    },
}

/// Upstream's programs that this one is, too.
const PROGRAMS: [&str; 5] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"];
/// Where the authorities of this machine are, for connections to others.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// What of busybox is at hand under its own name.
const APPLETS: [&str; 24] = [
    "sh", "httpd", "nc", "wget", "nslookup", "cat", "echo", "sleep", "true", "false", "ls", "ps", "hostname", "env",
    "id", "date", "tail", "head", "grep", "test", "mkdir", "rm", "tar", "kill",
];

pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Busybox { name, program, archive } => busybox(name, program, archive),
        Command::Trireme { name, archive } => trireme(name, archive),
    }
}

fn trireme(name: &str, archive: &Path) -> Result<(), Failure> {
    let directories = ["usr", "usr/local", "usr/local/bin", "lib", "lib64", "etc", "etc/ssl", "etc/ssl/certs", "var"];
    let mut files: Vec<Entry> = directories.iter().map(|path| Entry::directory(path, 0o755)).collect();
    files.push(Entry::directory("tmp", 0o1777));
    files.push(Entry::file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n".to_vec()));
    files.push(Entry::file("usr/local/bin/trireme", 0o755, std::fs::read(std::env::current_exe()?)?));
    files.extend(PROGRAMS.iter().map(|program| Entry::link(&format!("usr/local/bin/{program}"), "trireme")));
    for library in libraries(&std::fs::read_to_string("/proc/self/maps")?) {
        let name = library.rsplit('/').next().unwrap_or_default();
        let bytes = std::fs::read(&library).map_err(|error| format!("{library}: {error}"))?;
        if name.starts_with("ld-linux") {
            // Where programs look for it is part of them, and differs between architectures.
            files.push(Entry::link(&format!("lib64/{name}"), &format!("../lib/{name}")));
        }
        files.push(Entry::file(&format!("lib/{name}"), 0o755, bytes));
    }
    if let Ok(bytes) = std::fs::read(Path::new("/").join(AUTHORITIES)) {
        files.push(Entry::file(AUTHORITIES, 0o644, bytes));
    }
    let image = node::oci::Image {
        name: name.to_owned(),
        entrypoint: vec!["/usr/local/bin/trireme".to_owned()],
        env: vec!["PATH=/usr/local/bin".to_owned()],
        files,
        ..node::oci::Image::default()
    };
    write(archive, &node::oci::archive(&image))?;
    println!("{} holds {name}", archive.display());
    Ok(())
}

/// The libraries that a process has loaded, as the kernel lists what is mapped.
fn libraries(maps: &str) -> BTreeSet<String> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_library = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.contains(".so"));
    paths.filter(is_library).map(str::to_owned).collect()
}

fn write(archive: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = archive.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(archive, bytes)
}

fn busybox(name: &str, program: &Path, archive: &Path) -> Result<(), Failure> {
    let bytes = std::fs::read(program).map_err(|error| {
        format!(
            "cannot read {}: {error}; install Debian's busybox-static, or name another with --program",
            program.display()
        )
    })?;
    write(archive, &node::oci::busybox(name, bytes, &APPLETS))?;
    println!("{} holds {name}", archive.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::libraries;

    #[test]
    fn libraries_are_what_is_mapped() {
        let maps = "5500-5600 r--p 00000000 fe:00 1 /usr/bin/trireme\n7f00-7f10 r-xp 00000000 fe:00 2   /usr/lib/x86_64-linux-gnu/libc.so.6\n\
            7f10-7f20 r--p 00000000 fe:00 2 /usr/lib/x86_64-linux-gnu/libc.so.6\n7ffd-7ffe rw-p 00000000 00:00 0 [stack]\n";
        assert_eq!(libraries(maps).into_iter().collect::<Vec<_>>(), ["/usr/lib/x86_64-linux-gnu/libc.so.6"]);
    }
}
