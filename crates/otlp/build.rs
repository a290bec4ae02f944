//! Turns the wire contract in `proto/` into Rust, without needing `protoc` on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["proto/trace.proto"], ["proto"])?;
    // The server is for the collector of tests; what nobody uses costs nothing in a program.
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
