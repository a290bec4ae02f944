//! Mounts that only a program of the system can make: those of file servers, whose helpers talk to the server first.

use std::path::Path;
use std::time::Duration;

use crate::run;

/// A server that does not answer is given up after this long; the kubelet tries again.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `mount`. What it says when it fails is in the words in which users know it.
pub async fn mount(kind: &str, source: &str, target: &Path, options: &[String]) -> Result<(), String> {
    let target = target.to_string_lossy();
    let options = options.join(",");
    let mut arguments = vec!["-t", kind];
    if !options.is_empty() {
        arguments.extend(["-o", &options]);
    }
    arguments.extend([source, &*target]);
    let (why, output) = match run::output("mount", &arguments, b"", LIMIT).await {
        Ok(_) => return Ok(()),
        Err(run::Error::Failed { status, stderr, .. }) => {
            let why = status.code().map_or_else(|| status.to_string(), |code| format!("exit status {code}"));
            (why, format!("{stderr}\n"))
        }
        Err(run::Error::Start { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            ("exec: \"mount\": executable file not found in $PATH".to_owned(), String::new())
        }
        Err(other) => (other.to_string(), String::new()),
    };
    let arguments = arguments.join(" ");
    Err(format!("mount failed: {why}\nMounting command: mount\nMounting arguments: {arguments}\nOutput: {output}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_be_mounted_says_so_as_the_program_does() {
        let dir = tempfile::tempdir().unwrap();
        let options = ["ro".to_owned(), "soft".to_owned()];
        let why = mount("no-such-kind", "server:/path", dir.path(), &options).await.unwrap_err();
        let at = dir.path().display();
        let begin = format!(
            "mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t no-such-kind -o ro,soft server:/path {at}\nOutput: mount: "
        );
        assert!(why.starts_with(&begin), "{why}");
        mount("tmpfs", "none", dir.path(), &[]).await.unwrap();
        assert!(crate::mounts::is_mounted(&dir.path().canonicalize().unwrap()).unwrap());
        crate::mounts::unmount(dir.path()).unwrap();
    }
}
