//! Names of drivers' volumes that the kubelet and the attach-detach controller must agree on.

/// What volumes of drivers are called in a node's status begins with this.
const PLUGIN: &str = "kubernetes.io/csi/";

fn hex(text: &str) -> String {
    let digest = node::oci::sha256(text.as_bytes());
    digest.trim_start_matches("sha256:").to_owned()
}

/// A volume, in `volumesInUse` and `volumesAttached` of a node's status.
pub fn unique(driver: &str, handle: &str) -> String {
    format!("{PLUGIN}{driver}^{handle}")
}

/// The VolumeAttachment of a volume and a node.
pub fn attachment(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", hex(&format!("{handle}{driver}{node}")))
}

/// The handle of a volume that lives and dies with its pod.
pub fn ephemeral_handle(pod: &str, volume: &str) -> String {
    format!("csi-{}", hex(&format!("{pod}{volume}")))
}

/// The directory of a volume that is staged: a handle is the driver's text and no name for a file.
pub fn staging_directory(handle: &str) -> String {
    hex(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_others_compute_too() {
        assert_eq!(unique("d", "h"), "kubernetes.io/csi/d^h");
        // The digest of "abc".
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(attachment("a", "b", "c"), format!("csi-{abc}"));
        assert_eq!(ephemeral_handle("ab", "c"), format!("csi-{abc}"));
        assert_eq!(staging_directory("abc"), abc);
    }
}
