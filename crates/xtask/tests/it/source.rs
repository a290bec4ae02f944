//! The repository as text.

use std::path::Path;

/// The names of all crates.
pub fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(xtask::root().join("crates")).expect("the crates");
    let folders = entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.join("Cargo.toml").is_file());
    let mut names: Vec<String> =
        folders.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Every file of Rust below a folder of the workspace, by its path from the root.
pub fn files(below: &str) -> Vec<(String, String)> {
    let root = xtask::root();
    let mut found = Vec::new();
    let mut folders = vec![root.join(below)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                found.push((relative(&root, &path), text));
            }
        }
    }
    found.sort();
    found
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned()
}

/// What runs for users: sources without their tests.
pub fn production() -> Vec<(String, String)> {
    let sources = crates().into_iter().flat_map(|name| files(&format!("crates/{name}/src")));
    let is_test = |path: &str| {
        path.split('/').any(|part| matches!(part, "tests" | "testing"))
            || ["tests.rs", "testing.rs"].iter().any(|end| path.ends_with(end))
    };
    sources.filter(|(path, _)| !is_test(path)).map(|(path, text)| (path, without_tests(&text).to_owned())).collect()
}

/// Tests stand at the end of a file.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at])
}
