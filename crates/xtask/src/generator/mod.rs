//! The generator of the table of API facts, shared by the program that writes the files and the test that compares them.

mod enums;
mod presence;
mod proto;
mod rbac;
mod resources;
mod types;

use std::error::Error;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use enums::renew as enums;
pub use presence::renew as presence;

/// A failure to read the facts.
pub type Failure = Box<dyn Error>;

/// Where the facts are by default: `shared/upstream` beside the workspace.
pub fn default_folder() -> PathBuf {
    crate::root().join("../shared/upstream")
}

/// The crate whose files are written.
pub fn here() -> PathBuf {
    crate::root().join("crates/facts")
}

/// The files of crate `facts`, by name, as the facts in this folder make them.
pub fn files(facts: &Path) -> Result<Vec<(&'static str, String)>, Failure> {
    let here = here();
    let presence = std::fs::read_to_string(here.join("presence.txt"))?;
    let enums = std::fs::read_to_string(here.join("enums.txt"))?;
    let mut table =
        String::from("# Written by the generator of this crate; see src/table.rs for what the lines mean.\n");
    resources::write(facts, &mut table)?;
    types::write(facts, &presence, &enums, &mut table)?;
    Ok(vec![("table.txt", table), ("rbac.txt", rbac::write(facts)?)])
}

fn read_json(path: &Path) -> Result<Value, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
