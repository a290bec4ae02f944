//! Turns the wire contracts in `proto/` into Rust, without needing `protoc` on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let contracts = ["proto/cri.proto", "proto/containerd.proto", "proto/content.proto", "proto/snapshots.proto"];
    let files = protox::compile(contracts, ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .btree_map(".")
        // Credentials and environment values must not reach a log through a derived Debug.
        .skip_debug([".runtime.v1.AuthConfig", ".runtime.v1.KeyValue"])
        .compile_fds(files)?;
    Ok(())
}
