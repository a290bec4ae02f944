//! Reading a pod's state from the runtime, last words of its containers included.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use node::cri::{Error, Runtime, labels, v1};

use crate::pod::state::{self, Container, Life, Sandbox, State};

/// Longest last words that are kept.
const LAST_WORDS: u64 = 4096;
/// Longest last words taken from a log instead.
const FROM_LOG: u64 = 2048;
const FROM_LOG_LINES: usize = 80;

/// What the runtime has of the pod with this uid.
pub async fn state(runtime: &dyn Runtime, uid: &str) -> Result<State, Error> {
    let selector = BTreeMap::from([(labels::POD_UID.to_owned(), uid.to_owned())]);
    let sandbox_filter = v1::PodSandboxFilter { label_selector: selector.clone(), ..Default::default() };
    let container_filter = v1::ContainerFilter { label_selector: selector, ..Default::default() };
    let (sandboxes, containers) =
        tokio::try_join!(runtime.list_sandboxes(sandbox_filter), runtime.list_containers(container_filter))?;
    let mut all_sandboxes = Vec::with_capacity(sandboxes.len());
    for sandbox in sandboxes {
        // Gone between the list and here is gone.
        match runtime.sandbox_status(&sandbox.id).await {
            Ok(status) => all_sandboxes.push(read_sandbox(status)),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    let mut all_containers = Vec::with_capacity(containers.len());
    for listed in containers {
        match runtime.container_status(&listed.id).await {
            Ok(status) => {
                let mut container = Container::new(status, &listed.pod_sandbox_id);
                if container.life == Life::Exited {
                    container.message = last_words(&container);
                }
                all_containers.push(container);
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(State::new(all_sandboxes, all_containers))
}

fn read_sandbox(status: v1::PodSandboxStatus) -> Sandbox {
    let ready = status.state() == v1::PodSandboxState::SandboxReady;
    let network = status.network.unwrap_or_default();
    let ips = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|ip| ip.ip));
    let options = status.linux.and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options);
    let host_network = options.is_some_and(|options| options.network() == v1::NamespaceMode::Node);
    Sandbox {
        id: status.id,
        attempt: status.metadata.map_or(0, |metadata| metadata.attempt),
        ready,
        created_at: status.created_at,
        ips: if host_network { Vec::new() } else { ips.filter(|ip| !ip.is_empty()).collect() },
        host_network,
    }
}

/// What a container left in its file, or the end of its log when it failed and asked for that.
fn last_words(container: &Container) -> String {
    let note = |key: &str| container.annotations.get(key).map(String::as_str).unwrap_or_default();
    let inside = note(state::TERMINATION_MESSAGE_PATH);
    let file = container.mounts.iter().find(|(path, _)| !inside.is_empty() && path == inside);
    let words = file.map(|(_, outside)| tail(Path::new(outside), LAST_WORDS)).unwrap_or_default();
    let fall_back = note(state::TERMINATION_MESSAGE_POLICY) == "FallbackToLogsOnError" && container.exit_code != 0;
    if words.is_empty() && fall_back {
        return end_of_log(&tail(Path::new(&container.log_path), 16 << 10));
    }
    if words.is_empty() { container.message.clone() } else { words }
}

/// The last bytes of a file; nothing when it cannot be read. Links are not followed: the container owns the name.
fn tail(path: &Path, most: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::options().read(true).custom_flags(node::process::NO_FOLLOW).open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The messages of the last lines of a log in the runtime's format: `time stream tags message`. A line that the container did not end, and a part of
/// a long one, has the tag `P`.
fn end_of_log(text: &str) -> String {
    let message = |line: &str| {
        let mut parts = line.splitn(4, ' ').skip(2);
        let end = if parts.next()?.split(':').next() == Some("P") { "" } else { "\n" };
        Some(format!("{}{end}", parts.next()?))
    };
    let messages: Vec<String> = text.lines().filter_map(message).collect();
    let mut out = messages[messages.len().saturating_sub(FROM_LOG_LINES)..].concat();
    let mut cut = out.len().saturating_sub(FROM_LOG as usize);
    while !out.is_char_boundary(cut) {
        cut += 1;
    }
    out.split_off(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_come_from_the_file_or_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let (words, log) = (dir.path().join("words"), dir.path().join("log"));
        std::fs::write(&log, "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr F two\n").unwrap();
        std::fs::write(&words, "").unwrap();
        let mut container = Container::new(v1::ContainerStatus::default(), "s");
        container.exit_code = 1;
        container.log_path = log.to_string_lossy().into_owned();
        container.mounts = vec![("/dev/termination-log".into(), words.to_string_lossy().into_owned())];
        container.annotations.insert(state::TERMINATION_MESSAGE_PATH.into(), "/dev/termination-log".into());
        assert_eq!(last_words(&container), "");
        container.annotations.insert(state::TERMINATION_MESSAGE_POLICY.into(), "FallbackToLogsOnError".into());
        assert_eq!(last_words(&container), "one\ntwo\n");
        std::fs::write(&log, "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stdout P DONE\n").unwrap();
        assert_eq!(last_words(&container), "one\nDONE");
        std::fs::write(&words, "x".repeat(5000)).unwrap();
        assert_eq!(last_words(&container).len(), 4096);
        std::fs::remove_file(&words).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &words).unwrap();
        assert_eq!(last_words(&container), "one\nDONE");
    }
}
