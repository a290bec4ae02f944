//! The checked-in files are what the generator writes.

use serde_json::json;
use xtask::generator;

#[test]
fn checked_in_files_are_what_the_generator_writes() {
    let theirs = goldens::upstream("openapi-v3").map(|folder| {
        let facts = folder.parent().expect("the folder of all facts");
        generator::files(facts).expect("the facts are readable")
    });
    for name in ["table.txt", "rbac.txt"] {
        let found = std::fs::read_to_string(generator::here().join(name)).expect("is checked in");
        if let Some((_, expected)) = theirs.iter().flatten().find(|(file, _)| *file == name) {
            let differs = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
            assert!(
                found == *expected,
                "{name} is stale (line {:?}): run `cargo xtask generate`",
                differs.map(|at| at + 1)
            );
        }
        // Whoever edits the files by hand is told so without upstream's.
        goldens::recorded(&format!("facts/{name}"), &found);
    }
}

/// A folder of facts of our own making: one schema with one field.
fn small_facts() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a directory");
    let schemas = folder.path().join("openapi-v3");
    std::fs::create_dir_all(&schemas).expect("directories");
    let pod_spec = json!({"type": "object", "properties": {"restartPolicy": {"type": "string"}}});
    let document = json!({"components": {"schemas": {"io.k8s.api.core.v1.PodSpec": pod_spec}}});
    std::fs::write(schemas.join("api__v1_openapi.json"), document.to_string()).expect("written");
    std::fs::write(folder.path().join("proto-tags.json"), "{}").expect("written");
    folder
}

#[test]
fn presence_of_packages_without_source_is_kept() {
    let facts = small_facts();
    let nowhere = facts.path().join("no-such-source");
    let head = "# Written by `cargo xtask generate --go-source`.\n";
    let known = "io.k8s.api.core.v1.PodSpec ?restartPolicy\n";
    // A type that nobody publishes any more goes.
    let before = format!("{head}io.k8s.api.core.v1.Gone !field\n{known}");
    let renewed = generator::presence(facts.path(), &nowhere, &before).expect("the facts are readable");
    assert_eq!(renewed, format!("{head}{known}"));
}

#[test]
fn values_of_fields_are_read_from_definitions() {
    let folder = small_facts();
    let folder = folder.path();
    let source = tempfile::tempdir().expect("a directory");
    let before = "# as it was\n";
    assert_eq!(generator::enums(folder, source.path(), before).expect("no source"), before);
    let definitions = source.path().join("pkg/generated/openapi/zz_generated.openapi.go");
    std::fs::create_dir_all(definitions.parent().expect("a parent")).expect("directories");
    let text = "func schema_k8sio_api_core_v1_PodSpec(ref common.ReferenceCallback) {\n\
        \t\"restartPolicy\": {\n\t\tEnum: []interface{}{\"Always\", \"Never\"},\n\
        func schema_unknown_Type(ref common.ReferenceCallback) {\n\t\"x\": {\n\t\tEnum: []interface{}{\"y\"},\n";
    std::fs::write(definitions, text).expect("written");
    let renewed = generator::enums(folder, source.path(), before).expect("renewed");
    let lines: Vec<&str> = renewed.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, [r#"io.k8s.api.core.v1.PodSpec restartPolicy ["Always","Never"]"#]);
}
