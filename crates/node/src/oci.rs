//! Container images written from scratch: an OCI image layout in a tar archive.
//!
//! Trireme brings its own pause image, and tests and examples build theirs from a static `busybox`. Neither needs a
//! registry, a daemon or a compiler. Archives are deterministic: the same image gives the same bytes and digests.

use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::tar;

/// What the image is made of.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// Full reference, with registry and tag.
    pub name: String,
    /// The command, before its arguments.
    pub entrypoint: Vec<String>,
    /// Arguments when the container gives none.
    pub command: Vec<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// Where the command starts.
    pub working_dir: String,
    /// User, by name or number, empty for root.
    pub user: String,
    /// The files, one layer.
    pub files: Vec<tar::Entry>,
}

/// The image as an archive that `ctr images import` and every OCI tool reads.
pub fn archive(image: &Image) -> Vec<u8> {
    let layer = tar::archive(&image.files);
    let layer_digest = sha256(&layer);
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "Env": image.env,
            "WorkingDir": image.working_dir,
            "User": image.user,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        "history": [{"created_by": "trireme"}],
    })
    .to_string()
    .into_bytes();
    let config_digest = sha256(&config);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config_digest, config.len()),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer_digest, layer.len())],
    })
    .to_string()
    .into_bytes();
    let manifest_digest = sha256(&manifest);
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest_digest, manifest.len());
    entry["annotations"] = json!({
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag),
    });
    entry["platform"] = json!({"architecture": architecture(), "os": "linux"});
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string().into_bytes();
    let blob =
        |digest: &str, bytes: Vec<u8>| tar::Entry::file(&digest.replace("sha256:", "blobs/sha256/"), 0o644, bytes);
    tar::archive(&[
        tar::Entry::file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
        tar::Entry::directory("blobs", 0o755),
        tar::Entry::directory("blobs/sha256", 0o755),
        blob(&layer_digest, layer),
        blob(&config_digest, config),
        blob(&manifest_digest, manifest),
        tar::Entry::file("index.json", 0o644, index),
    ])
}

/// The pause image: one file, see [`crate::elf`]. Nothing when this machine's architecture is not known.
pub fn pause(name: &str) -> Option<Vec<u8>> {
    let program = crate::elf::pause(std::env::consts::ARCH)?;
    Some(archive(&Image {
        name: name.to_owned(),
        entrypoint: vec!["/pause".to_owned()],
        user: "65535:65535".to_owned(),
        files: vec![tar::Entry::file("pause", 0o755, program)],
        ..Image::default()
    }))
}

/// An image of a static `busybox` with a link for each of the `applets`, as users expect it.
pub fn busybox(name: &str, program: Vec<u8>, applets: &[&str]) -> Vec<u8> {
    let mut files = vec![
        tar::Entry::directory("bin", 0o755),
        tar::Entry::directory("etc", 0o755),
        tar::Entry::directory("root", 0o700),
        tar::Entry::directory("tmp", 0o1777),
        tar::Entry::directory("var", 0o755),
        tar::Entry::file(
            "etc/passwd",
            0o644,
            b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n".to_vec(),
        ),
        tar::Entry::file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n".to_vec()),
        tar::Entry::file("bin/busybox", 0o755, program),
    ];
    files.extend(applets.iter().map(|applet| tar::Entry::link(&format!("bin/{applet}"), "busybox")));
    archive(&Image {
        name: name.to_owned(),
        command: vec!["sh".to_owned()],
        env: vec!["PATH=/bin:/usr/bin:/sbin:/usr/sbin".to_owned()],
        files,
        ..Image::default()
    })
}

/// `sha256:` and the digest in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let hex: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The old digest that the WebSocket handshake is defined with.
pub fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

/// This machine's architecture in the words of image indexes.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

fn descriptor(media_type: &str, digest: &str, size: usize) -> serde_json::Value {
    json!({"mediaType": media_type, "digest": digest, "size": size})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_image_gives_the_same_bytes() {
        let name = "registry.trireme.local/pause:1";
        assert_eq!(sha256(&pause(name).unwrap()), sha256(&pause(name).unwrap()));
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
    }
}
