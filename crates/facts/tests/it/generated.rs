//! The checked-in files are what the generator writes.

use std::path::Path;

use crate::generator;

#[test]
fn checked_in_files_are_what_the_generator_writes() {
    let facts = generator::default_folder();
    if !facts.is_dir() {
        eprintln!("skipped: no upstream facts beside the workspace");
        return;
    }
    for (name, expected) in generator::files(&facts).expect("the facts are readable") {
        let found = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("is checked in");
        let differs = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
        assert!(
            found == expected,
            "{name} is stale (line {:?}): run `cargo run -p facts --example generate`",
            differs.map(|at| at + 1)
        );
    }
}

#[test]
fn presence_of_packages_without_source_is_kept() {
    let facts = generator::default_folder();
    if !facts.is_dir() {
        eprintln!("skipped: no upstream facts beside the workspace");
        return;
    }
    let nowhere = Path::new(env!("CARGO_MANIFEST_DIR")).join("no-such-source");
    let before =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("presence.txt")).expect("checked in");
    assert_eq!(generator::presence(&facts, &nowhere, &before).expect("the facts are readable"), before);
}

#[test]
fn values_of_fields_are_read_from_definitions() {
    let folder = generator::default_folder();
    if !folder.is_dir() {
        eprintln!("skipped: no upstream facts beside the workspace");
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let before = "# as it was\n";
    assert_eq!(generator::enums(&folder, source.path(), before).expect("no source"), before);
    let definitions = source.path().join("pkg/generated/openapi/zz_generated.openapi.go");
    std::fs::create_dir_all(definitions.parent().expect("a parent")).expect("directories");
    let text = "func schema_k8sio_api_core_v1_PodSpec(ref common.ReferenceCallback) {\n\
        \t\"restartPolicy\": {\n\t\tEnum: []interface{}{\"Always\", \"Never\"},\n\
        func schema_unknown_Type(ref common.ReferenceCallback) {\n\t\"x\": {\n\t\tEnum: []interface{}{\"y\"},\n";
    std::fs::write(definitions, text).expect("written");
    let renewed = generator::enums(&folder, source.path(), before).expect("renewed");
    let lines: Vec<&str> = renewed.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, [r#"io.k8s.api.core.v1.PodSpec restartPolicy ["Always","Never"]"#]);
}
