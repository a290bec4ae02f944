//! The program without the names of its functions, as `strip` of the release profile says: cargo forgets that line for a package that the profile has
//! settings of its own for, such as how it is optimised.

/// Set, it says what is kept.
const STRIP: &str = "CARGO_PROFILE_RELEASE_STRIP";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={STRIP}");
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if release && std::env::var_os(STRIP).is_none() {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}
