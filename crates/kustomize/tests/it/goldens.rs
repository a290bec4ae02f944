//! A case is a folder with files and, in `expected.txt`, what upstream's `kubectl kustomize` v1.37 printed: the warnings, a line of
//! dashes, and the documents or the error. Paths of the folder itself are written as `ROOT` there.

use std::path::{Path, PathBuf};

use kustomize::{Options, build};

/// The directory of a case that is built: the one that says so, or the case itself.
fn top(case: &Path) -> PathBuf {
    let named = std::fs::read_to_string(case.join("top.txt")).unwrap_or_default();
    case.join(named.trim())
}

fn printed(case: &Path) -> String {
    let mut warnings = String::new();
    let built = build(&top(case), Options::default(), &mut |line| warnings.push_str(&format!("{line}\n")));
    let result = match built {
        Ok(built) => built.yaml,
        Err(error) => format!("error: {}\n", error.to_string().trim_end_matches('\n')),
    };
    let root = case.canonicalize().expect("a folder").display().to_string();
    format!("{warnings}------\n{result}").replace(&root, "ROOT")
}

#[test]
fn builds_are_upstreams_to_the_letter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cases");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the cases") {
        let case = entry.expect("a case").path();
        let expected = std::fs::read_to_string(case.join("expected.txt")).expect("what is expected");
        let printed = printed(&case);
        assert!(printed == expected, "{}\n--- made\n{printed}\n--- expected\n{expected}", case.display());
        seen += 1;
    }
    assert!(seen > 40, "only {seen} cases were found");
}
