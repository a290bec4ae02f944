//! The past in the terminal: `get --at`, `diff --from`, `history` and `undo`, which upstream's kubectl does not have.

use crate::Shell;

fn map(value: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, labels: {{step: x{value}}}}}, data: {{k: '{value}'}}}}\n"
    )
}

async fn version(shell: &Shell) -> u64 {
    shell.ok("get cm a -o jsonpath={.metadata.resourceVersion}").await.parse().expect("a version")
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_shown_compared_and_brought_back_as_they_were() {
    let (cluster, shell) = Shell::with_cluster().await;
    assert_eq!(shell.run_with("create -f -", &map("1")).await.code, 0);
    let first = version(&shell).await;
    assert_eq!(shell.run_with("replace -f -", &map("2")).await.code, 0);
    let second = version(&shell).await;

    assert_eq!(shell.ok(&format!("get cm a --at {first} -o jsonpath={{.data.k}}")).await, "1");
    assert_eq!(shell.ok(&format!("get cm --at {second} -l step=x2 -o jsonpath={{.items[*].data.k}}")).await, "2");
    let table = shell.ok(&format!("get cm --at {first} -l step=x1")).await;
    assert!(table.starts_with("NAME   DATA   AGE\na      1      "), "{table}");
    ages(&shell, first).await;
    assert_eq!(
        shell.fail(&format!("get cm a --at {}", first - 1)).await,
        "Error from server (NotFound): configmaps \"a\" not found\n"
    );
    let refused = shell.fail("get cm a --at yesterday").await;
    assert!(
        refused.starts_with("Error from server (BadRequest): \"yesterday\" is no moment: give a revision"),
        "{refused}"
    );
    // Of a list too, in the same words.
    let refused = shell.fail("get cm --at yesterday").await;
    assert!(
        refused.starts_with("Error from server (BadRequest): \"yesterday\" is no moment: give a revision"),
        "{refused}"
    );
    // What is no longer kept is said to be gone, with the oldest that is left.
    for what in ["cm a", "cm", "cm -o json"] {
        let refused = shell.fail(&format!("get {what} --at 10000d")).await;
        let expected = "Error from server (Expired): 10000d is no longer kept: the oldest that is left is ";
        assert!(refused.starts_with(expected), "{what}: {refused}");
    }
    assert_eq!(
        shell.fail("get cm a --at 5m -w").await,
        "error: --at cannot be used with --watch: the past does not change\n"
    );

    let said = shell.run(&format!("diff cm/a --from {first} --to {second}")).await;
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(
        said.out.contains("-  k: \"1\"\n+  k: \"2\"\n") && said.out.contains("-    step: x1\n+    step: x2\n"),
        "{}",
        said.out
    );
    assert_eq!(
        shell.run(&format!("diff cm/a --from {second}")).await,
        crate::Said { code: 0, out: String::new(), err: String::new() }
    );

    let history = shell.ok("history cm/a").await;
    let lines: Vec<&str> = history.lines().collect();
    assert!(lines[0].starts_with("REVISION   WHEN ") && lines.len() == 3, "{history}");
    assert!(lines[1].starts_with(&second.to_string()) && lines[1].contains("update"), "{history}");
    for field in ["data.k: \"1\" → \"2\"", "metadata.labels.step: \"x1\" → \"x2\""] {
        assert!(lines[1].contains(field), "{history}");
    }
    assert!(lines[2].contains(" create ") && lines[2].contains("kubernetes-admin"), "{history}");
    let all: serde_json::Value = serde_json::from_str(&shell.ok("history cm -A -o json").await).expect("a document");
    assert!(all["items"].as_array().is_some_and(|items| items.len() >= 2), "{all}");

    // A dry run says what would change and changes nothing.
    let dry = shell.ok(&format!("undo cm/a --to {first} --dry-run=server")).await;
    assert!(
        dry.contains("-  k: \"2\"\n+  k: \"1\"\n") && dry.ends_with("configmap/a undone (server dry run)\n"),
        "{dry}"
    );
    assert_eq!(version(&shell).await, second);
    let done = shell.ok(&format!("undo cm/a --to {first}")).await;
    assert!(done.ends_with("configmap/a undone\n"), "{done}");
    assert_eq!(shell.ok("get cm a -o jsonpath={.data.k}{.metadata.labels.step}").await, "1x1");
    assert!(version(&shell).await > second, "undoing is a change like any other");
    assert_eq!(shell.ok(&format!("undo cm/a --to {first}")).await, "configmap/a is as it was\n");

    // What is gone is made again.
    shell.ok("delete cm a").await;
    let said = shell.ok(&format!("undo cm/a --to {second}")).await;
    assert!(said.ends_with("configmap/a created again\n"), "{said}");
    assert_eq!(shell.ok("get cm a -o jsonpath={.data.k}").await, "2");
    let never = shell.fail("undo cm/b --to 5m").await;
    assert!(never.contains("no longer kept") || never.contains("was not there at 5m"), "{never}");
    cluster.stop().await;
}

/// An age of the past is the one that it had then.
async fn ages(shell: &Shell, first: u64) {
    let age = async |more: &str| {
        let line = shell.ok(&format!("get cm a --no-headers {more}")).await;
        let age = line.split_whitespace().last().and_then(|age| age.strip_suffix('s')).map(str::parse::<u32>);
        age.expect("an age in seconds").expect("a number")
    };
    testkit::eventually("it is some seconds old", async { while age("").await < 3 {} }).await;
    assert!(age(&format!("--at {first}")).await <= 1);
}
