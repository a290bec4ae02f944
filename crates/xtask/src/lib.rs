//! Work on the repository itself: the generator of the table of API facts. The rules of the house that tests can check are in
//! `tests/it/tidy.rs`.

pub mod generator;

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
