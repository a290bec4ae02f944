//! How the program of the release profile is linked.
//!
//! Without the names of its functions, as `strip` of the profile says: cargo forgets that line for a package that the profile has settings of its own for, such
//! as how it is optimised. And with its relocations packed, where the C library can read them so (glibc from 2.36): a program that may be loaded anywhere has
//! a word to correct for every pointer in its tables, 24 bytes each in the old form, four megabytes that every start of every command reads.

use std::process::Command;

/// Set, it says what is kept.
const STRIP: &str = "CARGO_PROFILE_RELEASE_STRIP";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={STRIP}");
    if !std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        return;
    }
    if std::env::var_os(STRIP).is_none() {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
    if glibc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library. The program is for machines like the one that it is built on; another target is left as it is.
fn glibc() -> Option<(u32, u32)> {
    if std::env::var("HOST").ok()? != std::env::var("TARGET").ok()? {
        return None;
    }
    let answer = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let (major, minor) = std::str::from_utf8(&answer.stdout).ok()?.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
