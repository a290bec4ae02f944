//! What kubectl prints against Trireme, word for word what it prints against upstream's own server.
//!
//! `transcript/expected.txt` was recorded from upstream v1.37's API server: every command of `transcript/commands.txt`, and
//! all it printed. What no two servers have in common (ages, times, uids, revisions) is masked in both. To record anew:
//! `RECORD_TRANSCRIPT_FROM=<kubeconfig of an empty server> cargo test -p apiserver transcript`.

use std::path::PathBuf;
use std::sync::LazyLock;

use regex::Regex;
use testkit::Kubectl;

use crate::server::Server;

static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let masks = [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
        (r#"(resourceVersion"?: )"\d+""#, r#"$1"REVISION""#),
        (r"\b\d+(m\d+)?s\b( ago)?", "AGE"),
        (r"\b\d{1,2}m\b", "AGE"),
        (r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}", "TIME"),
        (r"/tmp/\S+", "FILE"),
        (r"kube-api-access-\w{5}", "kube-api-access-XXXXX"),
        (r#"Context "[^"]+" modified"#, "Context modified"),
        (r"ey[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
    ];
    masks.into_iter().map(|(pattern, mask)| (Regex::new(pattern).expect("a pattern"), mask)).collect()
});

fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, mask) in MASKS.iter() {
        text = pattern.replace_all(&text, *mask).into_owned();
    }
    // Columns are as wide as what was masked in them.
    let squeezed = text.lines().map(|line| {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().collect();
        format!("{}{}", &line[..indent], words.join(" "))
    });
    let mut out = String::new();
    for line in squeezed {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The words of a line; what is between quotes is one.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().expect("there is a word").push(letter),
        }
    }
    words
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/transcript")
}

/// Runs every command; what was typed and what was printed.
async fn transcript(kubectl: &Kubectl) -> String {
    let commands = std::fs::read_to_string(folder().join("commands.txt")).expect("the commands");
    let mut transcript = String::new();
    for line in commands.lines() {
        let (typed, input) = line.split_once(" < ").map_or((line, None), |(typed, input)| (typed, Some(input)));
        let mut kubectl = kubectl.clone();
        let mut typed = typed;
        if let Some((editor, rest)) = typed.strip_prefix("KUBE_EDITOR='").and_then(|rest| rest.split_once("' ")) {
            kubectl = kubectl.with_env("KUBE_EDITOR", editor);
            typed = rest;
        }
        let mut input = match input {
            Some(name) => std::fs::read_to_string(folder().join(name)).expect("a manifest"),
            None => String::new(),
        };
        if input.contains("@UID@") {
            let uid = kubectl.run(&["get", "deploy", "web", "-o", "jsonpath={.metadata.uid}"]).await;
            input = input.replace("@UID@", &uid);
        }
        let arguments = words(typed);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = kubectl.output(&arguments, &input).await;
        let failed = if output.success { "" } else { "! " };
        transcript.push_str(&format!("$ {line}\n{failed}{}{}\n", masked(&output.stdout), masked(&output.stderr)));
    }
    transcript
}

#[tokio::test]
async fn kubectl_prints_what_it_prints_against_upstream() {
    let expected = folder().join("expected.txt");
    if let Some(kubeconfig) = std::env::var_os("RECORD_TRANSCRIPT_FROM") {
        let home = tempfile::tempdir().expect("a home");
        let own = home.path().join("kubeconfig");
        std::fs::copy(kubeconfig, &own).expect("the kubeconfig");
        let text = transcript(&Kubectl::new(&own, home.path())).await;
        return std::fs::write(expected, text).expect("recorded");
    }
    let server = Server::default().await;
    let found = transcript(&server.kubectl()).await;
    server.stop().await;
    let expected = std::fs::read_to_string(expected).expect("a recorded transcript");
    let steps = |text: &str| -> Vec<String> { text.split("\n$ ").map(str::to_owned).collect() };
    // The one group that upstream has no server for unless somebody brings one.
    let found = found.replace("metrics.k8s.io/v1beta1\n", "");
    // The page's files, which everybody may load here and nobody has there.
    let is_page = |line: &&str| matches!(line.trim(), "[/ui/*] [] [get]" | "[/ui] [] [get]");
    // What we warn of, and upstream does not.
    let is_warning = |line: &&str| line.trim() == "Warning: NetworkPolicy \"only-web\" selects no pod";
    let is_shared = |line: &&str| !is_page(line) && !is_warning(line);
    let found = found.split_inclusive('\n').filter(is_shared).collect::<String>();
    let (found, expected) = (steps(&found), steps(&expected));
    let differing = found.iter().zip(&expected).filter(|(found, expected)| found != expected);
    let shown: Vec<String> =
        differing.map(|(found, expected)| format!("--- upstream\n{expected}\n--- here\n{found}")).collect();
    assert!(shown.is_empty(), "{} commands differ:\n{}", shown.len(), shown.join("\n"));
    assert_eq!(found.len(), expected.len());
}
