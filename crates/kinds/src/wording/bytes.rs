//! Names that upstream counts in bytes where it says characters.

/// What the schema says of a length, where the checks written by hand count characters.
pub fn in_bytes(problem: &str) -> String {
    match problem.strip_prefix("must be no more than ").and_then(|rest| rest.strip_suffix(" characters")) {
        Some(most) => format!("must be no more than {most} bytes"),
        None => problem.to_owned(),
    }
}
