//! What a container finds when it starts: its command, its environment, its user, its files of the kubelet's.
//!
//! A row is a pod whose script prints what it sees. All rows start at once and are compared at their end.

use k8s_openapi::api::core::v1::Pod;
use node::{oci, tar};
use serde_json::{Value, json};

use crate::rig::{BUSYBOX, NODE, Rig, phase, sh};

/// An image that echoes what it is started with.
const ECHO: &str = "registry.trireme.local/echo:1";

/// A pod that ends, and how.
pub struct Row {
    pub name: &'static str,
    pub spec: Value,
    phase: &'static str,
    /// What its container `main` printed.
    prints: Option<String>,
    /// Its last words, as the status has them.
    message: Option<&'static str>,
}

impl Row {
    /// A pod with one container that prints this and succeeds.
    pub fn prints(name: &'static str, container: Value, prints: &str) -> Self {
        let spec = json!({"restartPolicy": "Never", "containers": [container]});
        Self { name, spec, phase: "Succeeded", prints: Some(prints.to_owned()), message: None }
    }

    /// A pod with one container that leaves these words, empty for none.
    fn says(name: &'static str, container: Value, phase: &'static str, message: &'static str) -> Self {
        Self { phase, prints: None, message: Some(message), ..Self::prints(name, container, "") }
    }

    /// With more in its spec.
    pub fn with(mut self, fields: &Value) -> Self {
        self.spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self
    }
}

/// A container with more than a script.
pub fn container(script: &str, fields: &Value) -> Value {
    let mut container = sh("main", script);
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    container
}

/// Starts all rows at once, and says of each that is not as it should be what it is.
pub async fn check(rig: &Rig, rows: Vec<Row>) {
    for row in &rows {
        rig.pod(row.name, row.spec.clone()).await;
    }
    let mut wrong = Vec::new();
    for row in &rows {
        let pod = rig.until(row.name, "ended", |pod| matches!(phase(pod), "Succeeded" | "Failed")).await;
        let printed = rig.log(&pod, "main", 0);
        if phase(&pod) != row.phase || row.prints.as_ref().is_some_and(|prints| *prints != printed) {
            let wanted = row.prints.as_deref().unwrap_or_default();
            wrong.push(format!("{}: {} and\n{printed}instead of {} and\n{wanted}", row.name, phase(&pod), row.phase));
        }
        let said = last_words(&pod);
        if row.message.is_some_and(|message| message != said) {
            wrong.push(format!("{}: {said:?} instead of {:?}", row.name, row.message));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn last_words(pod: &Pod) -> String {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).unwrap();
    let ended = statuses[0].state.as_ref().and_then(|state| state.terminated.as_ref());
    ended.and_then(|ended| ended.message.clone()).unwrap_or_default()
}

/// Makes an object of any kind.
pub async fn create(rig: &Rig, group: &str, resource: &str, object: &Value) {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    rig.admin.dynamic(&client::Gvr::new(group, "v1", resource)).create(namespace, object).await.unwrap();
}

/// A map and a secret of the same keys: `data-1` to `data-3`.
pub async fn make_data(rig: &Rig) {
    let data = json!({"data-1": "value-1", "data-2": "value-2", "data-3": "value-3"});
    let map = json!({"metadata": {"name": "cm", "namespace": "default"}, "data": data,
        "binaryData": {"dump.bin": "3q3K/rreA/r+"}});
    create(rig, "", "configmaps", &map).await;
    let secret = json!({"metadata": {"name": "sec", "namespace": "default"}, "stringData": data});
    create(rig, "", "secrets", &secret).await;
}

/// What the node offers: thousandths of processors, and bytes of memory.
pub async fn allocatable(rig: &Rig) -> (String, String) {
    rig.eventually_node().await;
    let node: k8s_openapi::api::core::v1::Node = rig.admin.get("", NODE).await.unwrap();
    let all = node.status.unwrap().allocatable.unwrap();
    let number = |name: &str, suffix: &str, factor: u64| match all[name].0.strip_suffix(suffix) {
        Some(number) => number.parse::<u64>().unwrap(),
        None => all[name].0.parse::<u64>().unwrap() * factor,
    };
    let memory = all["memory"].0.strip_suffix("Ki").map(|kibi| kibi.parse::<u64>().unwrap() * 1024);
    (number("cpu", "m", 1000).to_string(), memory.unwrap_or_else(|| number("memory", "", 1)).to_string())
}

/// The environment that the first process was given, but for what every container has.
const ENVIRONMENT: &str = "busybox tr '\\0' '\\n' < /proc/1/environ | grep -v -e ^KUBERNETES_ -e ^PATH= -e ^HOME= -e ^HOSTNAME= | busybox sort";

fn environment_rows(cpu: &str, memory: &str) -> Vec<Row> {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let resource = |name: &str, resource: &str, divisor: &str| json!({"name": name, "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}});
    let amounts = json!([
        resource("CPU_LIMIT", "limits.cpu", "1m"),
        resource("CPU_REQUEST", "requests.cpu", "1m"),
        resource("MEMORY_LIMIT", "limits.memory", "1"),
        resource("MEMORY_REQUEST", "requests.memory", "1"),
    ]);
    let limited = json!({"limits": {"cpu": "1250m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "32Mi"}});
    let referred = json!({"env": [
        {"name": "FROM_MAP", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "data-1"}}},
        {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "data-2"}}},
        {"name": "FOO", "value": "foo-value"},
        {"name": "FOOBAR", "value": "$(FOO);;$(FROM_MAP)"},
    ]});
    let taken = json!({"envFrom": [
        {"configMapRef": {"name": "cm"}},
        {"prefix": "p-", "configMapRef": {"name": "cm"}},
        {"prefix": "s_", "secretRef": {"name": "sec"}},
    ]});
    let all = |prefix: &str| -> String { (1..=3).map(|n| format!("{prefix}data-{n}=value-{n}\n")).collect() };
    let own = json!({"env": [
        field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_UID", "metadata.uid"),
        field("POD_IP", "status.podIP"), field("HOST_IP", "status.hostIP"), field("HOST_IPS", "status.hostIPs"),
    ]});
    // The address is the one that its interface has.
    let look = "echo $POD_NAME $POD_NAMESPACE $HOST_IP $HOST_IPS; ip addr show eth0 | grep -q \"inet $POD_IP/\" && echo address; \
                echo $POD_UID | grep -q -E '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' && echo uid";
    vec![
        Row::prints(
            "referred",
            container(ENVIRONMENT, &referred),
            "FOO=foo-value\nFOOBAR=foo-value;;value-1\nFROM_MAP=value-1\nFROM_SECRET=value-2\n",
        ),
        Row::prints("taken", container(ENVIRONMENT, &taken), &format!("{}{}{}", all(""), all("p-"), all("s_"))),
        Row::prints("own", container(look, &own), "own default 127.0.0.1 127.0.0.1\naddress\nuid\n"),
        Row::prints(
            "limited",
            container(ENVIRONMENT, &json!({"env": amounts, "resources": limited})),
            "CPU_LIMIT=1250\nCPU_REQUEST=250\nMEMORY_LIMIT=67108864\nMEMORY_REQUEST=33554432\n",
        ),
        Row::prints(
            "unlimited",
            container(ENVIRONMENT, &json!({"env": amounts})),
            &format!("CPU_LIMIT={cpu}\nCPU_REQUEST=0\nMEMORY_LIMIT={memory}\nMEMORY_REQUEST=0\n"),
        ),
    ]
}

fn command_rows() -> Vec<Row> {
    let echo = |fields: Value| {
        let mut container = json!({"name": "main", "image": ECHO, "env": [{"name": "WHO", "value": "me"}]});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        container
    };
    vec![
        Row::prints("image-defaults", echo(json!({})), "entry default\n"),
        Row::prints(
            "own-arguments",
            echo(json!({"args": ["for", "$(WHO)", "$$(WHO)", "$(NOBODY)"]})),
            "entry for me $(WHO) $(NOBODY)\n",
        ),
        Row::prints("own-command", echo(json!({"command": ["/bin/echo", "of", "$(WHO)"]})), "of me\n"),
        Row::prints("own-both", echo(json!({"command": ["/bin/echo", "both"], "args": ["given"]})), "both given\n"),
    ]
}

fn user_rows() -> Vec<Row> {
    let context = |context: Value| json!({"securityContext": context});
    let who = "busybox id -u; busybox id -g";
    vec![
        Row::prints("nobody", container("busybox id -u", &context(json!({"runAsUser": 65534}))), "65534\n"),
        Row::prints("pods-user", container(who, &json!({})), "1001\n2002\n")
            .with(&context(json!({"runAsUser": 1001, "runAsGroup": 2002}))),
        Row::prints(
            "own-user",
            container(who, &context(json!({"runAsUser": 1003, "runAsGroup": 2004}))),
            "1003\n2004\n",
        )
        .with(&context(json!({"runAsUser": 1001, "runAsGroup": 2002}))),
        Row::prints(
            "unprivileged",
            container(
                "ip link add br9 type bridge 2>/dev/null || echo refused",
                &context(json!({"privileged": false})),
            ),
            "refused\n",
        ),
        Row::prints(
            "privileged",
            container("ip link add br9 type bridge && echo made", &context(json!({"privileged": true}))),
            "made\n",
        ),
        Row::prints(
            "read-only",
            container("touch /file 2>/dev/null || echo refused", &context(json!({"readOnlyRootFilesystem": true}))),
            "refused\n",
        ),
        Row::prints(
            "writable",
            container("touch /file && echo made", &context(json!({"readOnlyRootFilesystem": false}))),
            "made\n",
        ),
        Row::prints(
            "no-more-privileges",
            container(
                "grep NoNewPrivs /proc/self/status",
                &context(json!({"allowPrivilegeEscalation": false, "runAsUser": 1000})),
            ),
            "NoNewPrivs:\t1\n",
        ),
        Row::prints("system-control", container("cat /proc/sys/kernel/shm_rmid_forced", &json!({})), "1\n")
            .with(&context(json!({"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}))),
    ]
}

fn file_rows() -> Vec<Row> {
    let token = "cd /var/run/secrets/kubernetes.io/serviceaccount; cat namespace; echo; cat ca.crt; echo; busybox wc -w < token";
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let addresses = json!({"env": [field("POD_IP", "status.podIP"), field("POD_IPS", "status.podIPs")]});
    let own_hosts = json!({"volumeMounts": [{"name": "map", "mountPath": "/etc/hosts", "subPath": "data-1"}]});
    let dns = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"], "searches": ["a.example"],
        "options": [{"name": "ndots", "value": "2"}]}});
    vec![
        Row::prints(
            "hosts",
            container("head -n 1 /etc/hosts; grep ^123 /etc/hosts", &json!({})),
            "# Kubernetes-managed hosts file.\n123.45.67.89\tfoo\tbar\n",
        )
        .with(&json!({"hostAliases": [{"ip": "123.45.67.89", "hostnames": ["foo", "bar"]}]})),
        Row::prints("own-hosts", container("cat /etc/hosts; echo", &own_hosts), "value-1\n")
            .with(&json!({"volumes": [{"name": "map", "configMap": {"name": "cm"}}]})),
        Row::prints(
            "nodes-hosts",
            container("head -n 1 /etc/hosts", &json!({})),
            "# Kubernetes-managed hosts file (host network).\n",
        )
        .with(&json!({"hostNetwork": true})),
        Row::prints("nodes-addresses", container("echo $POD_IP $POD_IPS", &addresses), "127.0.0.1 127.0.0.1\n")
            .with(&json!({"hostNetwork": true})),
        Row::prints(
            "resolver",
            container("cat /etc/resolv.conf", &json!({})),
            "search a.example\nnameserver 192.0.2.53\noptions ndots:2\n",
        )
        .with(&dns),
        Row::prints("account", container(token, &json!({})), "default\nauthority\n1\n")
            .with(&json!({"automountServiceAccountToken": true})),
        Row::prints("no-account", container("ls /var/run/secrets 2>/dev/null || echo none", &json!({})), "none\n"),
    ]
}

fn last_word_rows() -> Vec<Row> {
    let fallback = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let elsewhere = json!({"terminationMessagePath": "/dev/my-last-words", "securityContext": {"runAsUser": 10_000}});
    vec![
        Row::says("silent-success", container("echo logged", &fallback), "Succeeded", ""),
        Row::says("written-success", container("printf OK > /dev/termination-log", &fallback), "Succeeded", "OK"),
        Row::says("logged-failure", container("printf DONE; exit 1", &fallback), "Failed", "DONE"),
        Row::says("elsewhere", container("printf DONE > /dev/my-last-words", &elsewhere), "Succeeded", "DONE"),
    ]
}

#[tokio::test]
async fn a_container_finds_what_its_pod_says() {
    let rig = Rig::start().await;
    let program = std::fs::read("/bin/busybox").unwrap();
    let files = vec![
        tar::Entry::directory("bin", 0o755),
        tar::Entry::file("bin/busybox", 0o755, program),
        tar::Entry::link("bin/echo", "busybox"),
    ];
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let image = oci::Image {
        name: ECHO.to_owned(),
        entrypoint: words(&["/bin/echo", "entry"]),
        command: words(&["default"]),
        files,
        ..oci::Image::default()
    };
    rig.containerd.as_ref().unwrap().import_bytes(ECHO, || oci::archive(&image)).await.unwrap();
    make_data(&rig).await;
    let authority =
        json!({"metadata": {"name": "kube-root-ca.crt", "namespace": "default"}, "data": {"ca.crt": "authority"}});
    create(&rig, "", "configmaps", &authority).await;
    let (cpu, memory) = allocatable(&rig).await;
    let rows = [environment_rows(&cpu, &memory), command_rows(), user_rows(), file_rows(), last_word_rows()];
    check(&rig, rows.into_iter().flatten().collect()).await;
    rig.stop().await;
}

/// Pods whose container cannot be made say why and do not start; one heals when what it refers to does.
#[tokio::test]
async fn a_container_that_cannot_be_made_waits() {
    let rig = Rig::start().await;
    let mounted = |who: &str| {
        let fields = json!({"env": [{"name": "WHO", "value": who}],
            "volumeMounts": [{"name": "work", "mountPath": "/logs", "subPathExpr": "$(WHO)"}]});
        json!({"containers": [container("true", &fields)], "volumes": [{"name": "work", "emptyDir": {}}]})
    };
    rig.pod("up", mounted("..")).await;
    rig.pod("absolute", mounted("/tmp")).await;
    let failing = json!({"restartPolicy": "Never", "initContainers": [sh("first", "exit 1"), sh("second", "true")],
        "containers": [sh("main", "echo started")]});
    rig.pod("failed", failing.clone()).await;
    let mut again = failing;
    again["restartPolicy"] = json!("Always");
    rig.pod("again", again).await;
    let image = json!({"restartPolicy": "Always", "initContainers": [sh("first", "echo one")],
        "containers": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", "while :; do sleep 0.1; done"]}]});
    rig.pod("goes-on", image).await;
    let noted = json!({"env": [{"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['where']"}}}],
        "volumeMounts": [{"name": "work", "mountPath": "/logs", "subPathExpr": "$(WHERE)/logs"}]});
    let heals = container("while :; do sleep 0.1; done", &noted);
    rig.pod("heals", json!({"containers": [heals], "volumes": [{"name": "work", "emptyDir": {}}]})).await;

    let waiting = |pod: &Pod| {
        let state = pod.status.as_ref()?.container_statuses.as_ref()?[0].state.as_ref()?.waiting.clone()?;
        Some((state.reason?, state.message.unwrap_or_default()))
    };
    for (name, why) in [
        ("up", "unable to provision SubPath `..`: must not contain '..'"),
        ("absolute", "error SubPath `/tmp` must not be an absolute path"),
        ("heals", "error SubPath `/logs` must not be an absolute path"),
    ] {
        let pod = rig
            .until(name, "refused", |pod| waiting(pod).is_some_and(|(reason, _)| reason.starts_with("CreateContainer")))
            .await;
        assert_eq!(waiting(&pod), Some(("CreateContainerConfigError".to_owned(), why.to_owned())), "{name}");
    }
    let where_to = client::Patch::Merge(json!({"metadata": {"annotations": {"where": "there"}}}));
    rig.admin.patch::<Pod>("default", "heals", &where_to).await.unwrap();
    rig.ready("heals").await;
    let inits = |pod: &Pod| pod.status.as_ref().unwrap().init_container_statuses.clone().unwrap_or_default();
    let failed = rig.until("failed", "failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(inits(&failed)[0].state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap().exit_code, 1);
    let again =
        rig.until("again", "tried again", |pod| inits(pod).first().is_some_and(|init| init.restart_count > 1)).await;
    for pod in [&failed, &again] {
        assert_eq!(waiting(pod).unwrap().0, "PodInitializing", "its containers never start");
        assert_eq!(crate::rig::condition(pod, "Initialized"), Some("False"));
    }
    assert_eq!(phase(&again), "Pending");
    let running = rig.ready("goes-on").await;
    assert!(inits(&running)[0].ready);
    rig.stop().await;
}
