//! The binary as it is handed to others: a Debian package, an image, pages for `man` and scripts for shells.

use std::path::{Path, PathBuf};
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");

/// Runs a command that has to succeed; what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn a_debian_package_is_installed_and_removed() {
    let folder = tempfile::tempdir().expect("a directory");
    run(Command::new("scripts/deb")
        .arg(BINARY)
        .arg(folder.path())
        .env("COMPRESSION", "-Znone")
        .current_dir(repository()));
    let architecture = run(Command::new("dpkg").arg("--print-architecture"));
    let file = format!("trireme_{}_{}.deb", env!("CARGO_PKG_VERSION"), architecture.trim());
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("var/lib/dpkg/updates")).expect("a directory");
    std::fs::create_dir_all(root.join("var/lib/dpkg/info")).expect("a directory");
    std::fs::write(root.join("var/lib/dpkg/status"), "").expect("a file");
    let dpkg = |words: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display())).args(["--force-script-chrootless", "--force-depends"]);
        run(command.args(words))
    };
    dpkg(&["--install", folder.path().join(&file).to_str().expect("a path")]);
    let program = root.join("usr/bin/trireme");
    assert!(run(Command::new(&program).arg("version")).starts_with("trireme "));
    for path in [
        "usr/share/man/man1/trireme.1.gz",
        "usr/share/man/man1/trireme-server.1.gz",
        "usr/share/bash-completion/completions/trireme",
        "usr/share/doc/trireme/copyright",
    ] {
        assert!(root.join(path).exists(), "{path}");
    }
    dpkg(&["--remove", "trireme"]);
    assert!(!program.exists() && !root.join("usr/share/man/man1/trireme.1.gz").exists());
}

#[test]
fn an_image_of_the_binary_runs_on_its_own() {
    let folder = tempfile::tempdir().expect("a directory");
    let archive = folder.path().join("image.tar");
    // What helps debuggers is most of it, and would be written three times.
    let program = folder.path().join("trireme");
    run(Command::new("strip").arg("-o").arg(&program).arg(BINARY));
    run(Command::new(&program).args(["image", "trireme"]).arg(&archive));
    let layout = folder.path().join("layout");
    std::fs::create_dir(&layout).expect("a directory");
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&layout));
    let blobs = std::fs::read_dir(layout.join("blobs/sha256")).expect("blobs").flatten().map(|entry| entry.path());
    let layer = blobs.max_by_key(|path| path.metadata().map_or(0, |about| about.len())).expect("a layer");
    let root = folder.path().join("root");
    std::fs::create_dir(&root).expect("a directory");
    std::fs::remove_file(&archive).expect("it was there");
    run(Command::new("tar").arg("-xf").arg(&layer).arg("-C").arg(&root));
    // Nothing of this machine is in reach there.
    let version = run(Command::new("chroot").arg(&root).args(["/usr/local/bin/trireme", "version"]));
    assert!(version.starts_with("trireme "), "{version}");
    let refused =
        Command::new("chroot").arg(&root).args(["/usr/local/bin/kube-apiserver", "--watch-cache=false"]).output();
    let said = String::from_utf8_lossy(&refused.expect("chroot").stderr).into_owned();
    assert!(said.contains("--watch-cache: \"false\" is not possible"), "{said}");
}

#[test]
fn shells_and_man_know_every_command() {
    let folder = tempfile::tempdir().expect("a directory");
    run(Command::new(BINARY).arg("man").arg(folder.path()));
    let page = std::fs::read_to_string(folder.path().join("trireme-server.1")).expect("a page");
    assert!(page.contains("etcd\\-prefix") && page.contains("goaway\\-chance"), "{}", &page[..500]);
    let pages = std::fs::read_dir(folder.path()).expect("pages").count();
    assert!(pages > 50, "{pages}");
    let script = folder.path().join("completion");
    std::fs::write(&script, run(Command::new(BINARY).args(["completion", "bash"]))).expect("a file");
    let ask = format!(
        "source {}; COMP_WORDS=(trireme cert); COMP_CWORD=1; _trireme trireme cert trireme; echo \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    assert_eq!(run(Command::new("bash").args(["-c", &ask])).trim(), "certificates");
}
