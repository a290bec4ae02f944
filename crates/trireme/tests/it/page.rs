//! The page, in a real Chromium, against a real server with a real node: what a person would do first, and what an attacker would.
//!
//! `TRIREME_PICTURES=folder` leaves pictures there; those of the README are made so.

use std::path::PathBuf;

use serde_json::json;
use testkit::{Browser, Kubectl, eventually};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::node::{BINARY, Machine};

const IMAGE: &str = "trireme.local/page:1";
/// What would run if anybody read it as markup.
const ATTACK: &str = "<img src=x onerror=owned=1><script>owned=1</script>";

/// The demonstration of `make up`, with this test's image.
fn manifest() -> String {
    include_str!("../../../../scripts/demo.yaml").replace("trireme.local/hello:1", IMAGE)
}

/// `trireme ui`, and the link that it prints.
struct Ui {
    _process: Child,
    link: String,
}

impl Ui {
    async fn start(machine: &Machine) -> Self {
        let mut command = Command::new(BINARY);
        command.args(["ui", "--print-only"]).env("KUBECONFIG", machine.server.kubeconfig()).kill_on_drop(true);
        let mut process = command.stdout(std::process::Stdio::piped()).spawn().expect("the binary");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let link = eventually("a link", lines.next_line()).await.expect("a line").expect("a line");
        Self { _process: process, link }
    }
}

/// Leaves a picture where somebody asked for one.
async fn picture(browser: &Browser, name: &str) {
    if let Some(folder) = std::env::var_os("TRIREME_PICTURES") {
        browser.picture(&PathBuf::from(folder).join(format!("{name}.png"))).await;
    }
}

/// The rows of the table that is shown, as text.
const ROWS: &str = "[...document.querySelectorAll('.rows .row')].map((row) => row.innerText)";

#[tokio::test(flavor = "multi_thread")]
async fn a_person_with_a_browser_sees_the_cluster_and_does_what_they_may() {
    let machine = Machine::start("pilot", IMAGE).await;
    let kubectl = machine.server.kubectl();
    kubectl.run_with(&["apply", "-f", "-"], &manifest()).await;
    kubectl.run(&["rollout", "status", "deployment/hello", "--timeout=120s"]).await;
    let ui = Ui::start(&machine).await;
    let browser = Browser::start().await;
    browser.look(1280, 800, "dark").await;
    browser.open(&ui.link).await;
    browser.says("nodes ready").await;
    browser.says("pilot").await;
    overview(&browser, &kubectl).await;
    live_tables(&browser, &kubectl).await;
    let pod = pod(&kubectl).await;
    terminal(&browser, &pod).await;
    attacks(&browser, &kubectl, &pod).await;
    twelve_hops(&browser).await;
    keyboard(&browser).await;
    graph(&browser, &kubectl).await;
    metrics(&browser).await;
    past(&browser, &kubectl).await;
    strangers(&ui).await;
    assert_eq!(browser.complaints(), [] as [String; 0]);
    refused(&kubectl).await;
    drop((browser, ui));
    kubectl.run(&["delete", "deployment", "--all", "--wait=true", "--timeout=60s"]).await;
    kubectl.run(&["wait", "--for=delete", "pods", "-l", "app in (hello, oars)", "--timeout=60s"]).await;
    machine.clean().await;
}

async fn pod(kubectl: &Kubectl) -> String {
    let pods = kubectl.run(&["get", "pods", "-l", "app=hello", "-o", "jsonpath={.items[*].metadata.name}"]).await;
    pods.split_whitespace().next().expect("a pod").to_owned()
}

/// What is not healthy is named, with the reason.
async fn overview(browser: &Browser, kubectl: &Kubectl) {
    browser.says("All is well").await;
    let huge = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "huge"},
        "spec": {"containers": [{"name": "huge", "image": IMAGE, "resources": {"requests": {"cpu": "900"}}}]},
    });
    kubectl.run_with(&["apply", "-f", "-"], &huge.to_string()).await;
    let named = "/huge[^]*Insufficient cpu/.test(document.querySelector('#unwell').innerText)";
    browser.until("the pod and the reason", named).await;
    browser.says("a look").await;
    picture(browser, "overview").await;
    kubectl.run(&["delete", "pod", "huge", "--wait=true"]).await;
    browser.says("All is well").await;
}

/// Rows come, change and go while a rollout runs; nobody reloads anything.
async fn live_tables(browser: &Browser, kubectl: &Kubectl) {
    browser.go("#/list/core/v1/pods?q=hello").await;
    browser.until("two pods", &format!("{ROWS}.filter((row) => row.includes('Running')).length === 2")).await;
    let before = browser.evaluate(&format!("{ROWS}.join()")).await;
    kubectl.run(&["set", "env", "deployment/hello", "ROUND=2"]).await;
    let other = format!(
        "{ROWS}.length === 2 && {ROWS}.every((row) => !{before}.includes(row.split('\\n')[1]) && row.includes('1/1'))"
    );
    browser.until("two other pods", &other).await;
    browser.fill("#filter", "nothing-has-this-name").await;
    browser.says("Nothing fits the filter.").await;
    browser.go("#/list/apps/v1/deployments").await;
    browser
        .until("the deployment", &format!("{ROWS}.some((row) => row.includes('hello') && row.includes('2/2'))"))
        .await;
    kubectl.run(&["scale", "deployment/hello", "--replicas=3"]).await;
    browser.until("three", &format!("{ROWS}.some((row) => row.includes('hello') && row.includes('3/3'))")).await;
}

/// A shell in a container, by keys.
async fn terminal(browser: &Browser, pod: &str) {
    browser.go(&format!("#/object/core/v1/pods/default/{pod}/shell")).await;
    browser.until("a prompt", "/[#$] /.test(document.querySelector('.terminal')?.innerText)").await;
    browser.evaluate("document.querySelector('.terminal').focus()").await;
    browser.write("echo sum=$((40+2)) of $(hostname)").await;
    browser.press("Enter").await;
    browser.says(&format!("sum=42 of {pod}")).await;
    browser.write("stty size").await;
    browser.press("Enter").await;
    // The size is what fits into the window, not what a terminal has that nobody told.
    browser.until("a size", "/^\\d\\d+ \\d\\d+\\s*$/m.test(document.querySelector('.terminal').innerText)").await;
    picture(browser, "terminal").await;
}

/// Annotations, data, logs and columns of others are text, whatever they look like.
async fn attacks(browser: &Browser, kubectl: &Kubectl, pod: &str) {
    kubectl.run(&["annotate", "pod", pod, &format!("note={ATTACK}")]).await;
    kubectl.run(&["exec", pod, "--", "sh", "-c", &format!("echo '{ATTACK}' > /proc/1/fd/1")]).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "notes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "notes", "singular": "note", "kind": "Note"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "additionalPrinterColumns": [{"name": "Text", "type": "string", "jsonPath": ".text"}],
            }],
        },
    });
    kubectl.run_with(&["apply", "-f", "-"], &definition.to_string()).await;
    kubectl.run(&["wait", "--for=condition=Established", "crd/notes.example.com", "--timeout=60s"]).await;
    let note = json!({"apiVersion": "example.com/v1", "kind": "Note", "metadata": {"name": "one"}, "text": ATTACK});
    kubectl.run_with(&["apply", "-f", "-"], &note.to_string()).await;
    // A kind that came while the page was open is in its list.
    browser
        .until("the new kind", "[...document.querySelectorAll('.side a')].some((link) => link.textContent === 'Notes')")
        .await;
    for view in [
        format!("#/object/core/v1/pods/default/{pod}"),
        format!("#/object/core/v1/pods/default/{pod}/yaml"),
        format!("#/object/core/v1/pods/default/{pod}/logs"),
        "#/list/example.com/v1/notes".to_owned(),
        "#/object/example.com/v1/notes/default/one/yaml".to_owned(),
    ] {
        browser.go(&view).await;
        browser.says("<img src=x onerror=owned=1>").await;
        let harmed = "window.owned !== undefined || !!document.querySelector('main img, main script')";
        assert_eq!(browser.evaluate(harmed).await, json!(false), "{view}");
    }
}

/// An apply in the page: nothing is written before a dry run was shown; then its way, hop by hop, to pods that serve.
async fn twelve_hops(browser: &Browser) {
    browser.go("#/apply").await;
    let text = manifest().replace("name: hello", "name: oars").replace("app: hello", "app: oars");
    browser.fill("#editor", &text).await;
    browser.click("#try").await;
    browser
        .until(
            "both would be created",
            "document.querySelector('.results')?.innerText.match(/would be created/g)?.length === 2",
        )
        .await;
    browser.click("#apply").await;
    browser.until("both are", "document.querySelector('.results')?.innerText.match(/ created/g)?.length === 2").await;
    browser.go("#/object/apps/v1/deployments/default/oars/hops").await;
    browser.until("all twelve hops", "document.querySelectorAll('.stations li.reached').length === 12").await;
    browser.until("a pod's sandbox", "document.querySelector('.waterfall').innerText.includes('sandbox')").await;
    browser.says("The longest part was").await;
    picture(browser, "hops").await;
}

/// Everything by keys.
async fn keyboard(browser: &Browser) {
    browser.press("g").await;
    browser.press("d").await;
    browser.until("deployments", "location.hash.includes('/deployments')").await;
    browser.until("rows", &format!("{ROWS}.length >= 2")).await;
    browser.press("j").await;
    browser.press("Enter").await;
    browser.until("the second", "location.hash.includes('/object/apps/v1/deployments/default/oars')").await;
    browser.press("y").await;
    browser.until("its YAML", "document.querySelector('.code')?.innerText.includes('kind: Deployment')").await;
    browser.press_with("k", 2).await;
    browser.fill(".palette input", "services").await;
    browser.press("Enter").await;
    browser.until("services", "location.hash.includes('/services')").await;
    browser.press("?").await;
    browser.says("find anything").await;
    browser.press("Escape").await;
}

/// Services, slices, pods and nodes, and the policies between them with what they allow, in words.
async fn graph(browser: &Browser, kubectl: &Kubectl) {
    browser.go("#/graph").await;
    browser.until("edges", "document.querySelectorAll('.edge').length >= 4").await;
    browser.says("No network policies here: every pod may talk to every other.").await;
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "crew"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "oars"}}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{
                "from": [{"podSelector": {"matchLabels": {"app": "hello"}}}, {"ipBlock": {"cidr": "192.0.2.0/24"}}],
                "ports": [{"port": 8080}],
            }],
        },
    });
    kubectl.run_with(&["apply", "-f", "-"], &policy.to_string()).await;
    let allowed = "In: from pods with app=hello of its namespace or addresses 192.0.2.0/24 at 8080/TCP";
    browser.says(allowed).await;
    browser.says("Out: nothing is allowed").await;
    let guarded = "[...document.querySelectorAll('a.box')].filter((box) => box.querySelector('.guard')).map((box) => box.textContent)";
    browser
        .until(
            "the guarded pods alone",
            &format!("{guarded}.length > 0 && {guarded}.every((name) => name.includes('oars-'))"),
        )
        .await;
    picture(browser, "graph").await;
    kubectl.run(&["delete", "networkpolicy", "crew"]).await;
}

/// What the server counts of itself and what nodes use, as plots that have something to show.
async fn metrics(browser: &Browser) {
    browser.go("#/metrics").await;
    browser.until("plots", "document.querySelectorAll('.plot canvas').length >= 8").await;
    let shown = "[...document.querySelectorAll('.plot')].filter((plot) => /Requests per second|Memory of the server|pilot: CPU/.test(plot.innerText) \
        && [...plot.querySelectorAll('b')].some((value) => /\\d/.test(value.innerText))).length === 3";
    browser.until("figures", shown).await;
}

/// The slider goes back to before a delete, where the server keeps history; where it keeps none, that is said.
async fn past(browser: &Browser, kubectl: &Kubectl) {
    kubectl.run(&["create", "configmap", "gone", "--from-literal=kept=yes"]).await;
    browser.go("#/list/core/v1/configmaps?q=gone").await;
    browser.until("the object", &format!("{ROWS}.some((row) => row.includes('gone'))")).await;
    let there = browser.evaluate("Date.now()").await;
    kubectl.run(&["delete", "configmap", "gone"]).await;
    browser.says("Nothing fits the filter.").await;
    browser.click("#time").await;
    if !kubectl.output(&["get", "--raw", "/trireme/history"], "").await.success {
        return browser.says("This server keeps no history.").await;
    }
    browser.evaluate("import('./history.js').then((module) => { window.kept = module.range; })").await;
    browser.until("what has just happened is in reach", &format!("kept.value.to > {there} + 1")).await;
    let step = format!("Math.max(0, ({there} + 1 - kept.value.from) / (kept.value.to - kept.value.from) * 1000)");
    browser
        .evaluate(&format!("document.getElementById('slider').value = {step}, document.getElementById('slider').dispatchEvent(new Event('input', {{ bubbles: true }}))"))
        .await;
    browser
        .until(
            "the object, then",
            &format!("document.querySelector('.state.past') && {ROWS}.some((row) => row.includes('gone'))"),
        )
        .await;
    browser.go("#/object/core/v1/configmaps/default/gone/yaml").await;
    browser.says("kept: \"yes\"").await;
    picture(browser, "past").await;
    browser.press(".").await;
    browser.says("ConfigMap gone is not there.").await;
    // What became of it is told, and leads back to it.
    browser.until("its end", "document.querySelector('.changes')?.innerText.includes('Deleted')").await;
    browser.click(".changes li.bad button").await;
    browser.says("kept: \"yes\"").await;
    browser.press(".").await;
    film(browser).await;
}

/// The whole of the past, picture by picture.
async fn film(browser: &Browser) {
    browser.go("#/list/core/v1/configmaps?q=gone").await;
    browser.press(",").await;
    let knob = "Number(document.getElementById('slider').value)";
    browser.until("a picture of the past", &format!("document.querySelector('.state.past') && {knob} < 500")).await;
    let before = browser.evaluate(knob).await;
    browser.until("the next one", &format!("{knob} > {before} + 20 && document.querySelector('.state.past')")).await;
    browser.press(",").await;
    browser.until("it stands still", "!!document.querySelector('[aria-label=Play]')").await;
    browser.press(".").await;
    browser.until("now again", "!!document.querySelector('.state.live')").await;
}

/// Who does not know the secret of the link gets nothing, and pages of pods are not shown under it.
async fn strangers(ui: &Ui) {
    let place = ui.link.trim_start_matches("http://");
    let (host, path) = place.split_once('/').expect("a path");
    let get = async |path: &str, name: &str| {
        let mut request = tokio::net::TcpStream::connect(host).await.expect("the proxy");
        let text = format!("GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut request, text.as_bytes()).await.expect("a request");
        let mut answer = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut request, &mut answer).await.expect("an answer");
        String::from_utf8_lossy(&answer).split_whitespace().nth(1).expect("a status").to_owned()
    };
    let secret = path.split('/').next().expect("a secret");
    assert_eq!(get(&format!("/{secret}/api/v1/namespaces"), host).await, "200");
    assert_eq!(get("/api/v1/namespaces", host).await, "404");
    assert_eq!(get(&format!("/{}/api/v1/namespaces", "0".repeat(secret.len())), host).await, "404");
    assert_eq!(get(&format!("/{secret}/api/v1/namespaces"), "evil.example").await, "403");
    let proxied = format!("/{secret}/api/v1/namespaces/default/services/hello:80/proxy/");
    assert_eq!(get(&proxied, host).await, "403");
}

/// At the server itself, with a token that may only look: the page says what the server says.
async fn refused(kubectl: &Kubectl) {
    kubectl.run(&["create", "serviceaccount", "looker"]).await;
    let binding = ["create", "clusterrolebinding", "looker", "--clusterrole=view", "--serviceaccount=default:looker"];
    kubectl.run(&binding).await;
    let token = kubectl.run(&["create", "token", "looker"]).await;
    let server = kubectl.run(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"]).await;
    let browser = Browser::start().await;
    browser.look(390, 844, "light").await;
    browser.open(&format!("{server}/ui/#/object/apps/v1/deployments/default/hello/edit")).await;
    browser.says("Sign in with a token of this cluster.").await;
    browser.fill("#token", "not.a.token").await;
    browser.click(".signin button.primary").await;
    browser.says("Unauthorized").await;
    picture(&browser, "signin").await;
    browser.fill("#token", token.trim()).await;
    browser.click(".signin button.primary").await;
    browser.until("the editor", "document.querySelector('#editor')?.value.includes('replicas: 3')").await;
    let text = browser.evaluate("document.querySelector('#editor').value.replace('replicas: 3', 'replicas: 5')").await;
    browser.fill("#editor", text.as_str().expect("text")).await;
    browser.click(".edit .toolbar button").await;
    browser
        .says("deployments.apps \"hello\" is forbidden: User \"system:serviceaccount:default:looker\" cannot update resource")
        .await;
    assert_eq!(kubectl.run(&["get", "deployment", "hello", "-o", "jsonpath={.spec.replicas}"]).await, "3");
    let kept = "JSON.stringify([document.cookie, sessionStorage.length, Object.values(localStorage).join()])";
    let kept = browser.evaluate(kept).await;
    assert!(kept.as_str().is_some_and(|kept| kept.starts_with("[\"\",0,") && !kept.contains(token.trim())), "{kept}");
    browser.go("#/list/core/v1/pods").await;
    browser.until("rows", &format!("{ROWS}.length >= 3")).await;
    picture(&browser, "phone").await;
    browser.go("#/list/core/v1/secrets").await;
    browser.says("secrets is forbidden").await;
    assert_eq!(browser.complaints(), [] as [String; 0]);
}
