//! Turns the wire contracts in `proto/` into Rust, without needing `protoc` on the machine.

/// Everything that carries `secrets`: none of it may reach a log through a derived `Debug`.
const SECRET: [&str; 8] = [
    ".csi.v1.CreateVolumeRequest",
    ".csi.v1.DeleteVolumeRequest",
    ".csi.v1.ControllerPublishVolumeRequest",
    ".csi.v1.ControllerUnpublishVolumeRequest",
    ".csi.v1.ControllerExpandVolumeRequest",
    ".csi.v1.NodeStageVolumeRequest",
    ".csi.v1.NodePublishVolumeRequest",
    ".csi.v1.NodeExpandVolumeRequest",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/csi.proto", "proto/registration.proto"], ["proto"])?;
    // Servers are for the driver of tests; what nobody uses costs nothing in a program.
    tonic_prost_build::configure().btree_map(".").skip_debug(SECRET).compile_fds(files)?;
    Ok(())
}
