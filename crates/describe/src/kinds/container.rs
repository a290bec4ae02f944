//! Containers of pods and of pod templates.

use machinery::{Value, value};

use super::env;
use crate::show::{Scene, at, bracketed, int, or, plain, quantity, text_or, truth};
use crate::writer::{Writer, put};

/// A list of containers and what there is to say about it.
pub struct Containers<'a> {
    pub title: &'a str,
    pub containers: &'a [Value],
    pub statuses: &'a [Value],
    /// The pod that they are of; a template has none.
    pub pod: Option<&'a Scene<'a>>,
    /// Templates are further to the right.
    pub space: &'a str,
}

pub fn containers(out: &mut Writer, list: &Containers<'_>) {
    let none = if list.containers.is_empty() { " <none>" } else { "" };
    put!(out, 0, "{}{}:{none}\n", list.space, list.title);
    for container in list.containers {
        let name = value::text(container, "name");
        let status = list.statuses.iter().rfind(|status| value::text(status, "name") == name);
        put!(out, 1, "{}{name}:\n", if list.space.is_empty() { "" } else { " " });
        basics(out, container, status);
        command(out, container);
        if let (Some(status), Some(pod)) = (status, list.pod) {
            states(out, status, pod);
        }
        if let Some(asked) = at(container, "resources") {
            resources(out, 2, asked);
        }
        for (title, field) in
            [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")]
        {
            if let Some(it) = at(container, field) {
                out.field(2, title, probe(it));
            }
        }
        env::from(out, container);
        env::variables(out, container, list.pod);
        mounts(out, container);
    }
}

fn basics(out: &mut Writer, container: &Value, status: Option<&Value>) {
    if let Some(status) = status {
        out.field(2, "Container ID", value::text(status, "containerID"));
    }
    out.field(2, "Image", value::text(container, "image"));
    if let Some(status) = status {
        out.field(2, "Image ID", value::text(status, "imageID"));
    }
    for (one, field) in [("Port", "containerPort"), ("Host Port", "hostPort")] {
        let ports = ports(container, field);
        if ports.contains(',') {
            out.field(2, &format!("{one}s"), ports);
        } else {
            out.field(2, one, text_or(&ports, "<none>"));
        }
    }
    if let Some(profile) = at(container, "securityContext.seccompProfile") {
        let kind = value::text(profile, "type");
        out.field(2, "SeccompProfile", kind);
        if kind == "Localhost" {
            out.field(3, "LocalhostProfile", value::text(profile, "localhostProfile"));
        }
    }
}

fn ports(container: &Value, field: &str) -> String {
    let shown = value::list(container, "ports").iter().map(|port| {
        let (number, protocol) = (int(port, field), value::text(port, "protocol"));
        match value::text(port, "name") {
            "" => format!("{number}/{protocol}"),
            name => format!("{number}/{protocol} ({name})"),
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn command(out: &mut Writer, container: &Value) {
    for (title, field) in [("Command", "command"), ("Args", "args")] {
        let words = value::list(container, field);
        if words.is_empty() {
            continue;
        }
        put!(out, 2, "{title}:\n");
        for line in words.iter().filter_map(Value::as_str).flat_map(|word| word.split('\n')) {
            put!(out, 3, "{line}\n");
        }
    }
}

/// Limits and requests, sorted by name.
pub fn resources(out: &mut Writer, level: usize, resources: &Value) {
    for (title, side) in [("Limits", "limits"), ("Requests", "requests")] {
        let Some(amounts) = resources.get(side).and_then(Value::as_object).filter(|amounts| !amounts.is_empty()) else {
            continue;
        };
        put!(out, level, "{title}:\n");
        let mut names: Vec<&String> = amounts.keys().collect();
        names.sort_unstable();
        for name in names {
            out.field(level + 1, name, quantity(amounts.get(name)));
        }
    }
}

fn states(out: &mut Writer, status: &Value, pod: &Scene<'_>) {
    state(out, "State", status.get("state").unwrap_or(&Value::Null), pod);
    if let Some(last) = at(status, "lastState").filter(|last| at(last, "terminated").is_some()) {
        state(out, "Last State", last, pod);
    }
    out.field(2, "Ready", truth(Some(&Value::Bool(value::flag(status, "ready")))));
    out.field(2, "Restart Count", int(status, "restartCount"));
}

fn state(out: &mut Writer, title: &str, state: &Value, pod: &Scene<'_>) {
    let optional = |out: &mut Writer, name: &str, said: &str| {
        if !said.is_empty() {
            out.field(3, name, said);
        }
    };
    if let Some(running) = at(state, "running") {
        out.field(2, title, "Running");
        return out.field(3, "Started", pod.date(running, "startedAt"));
    }
    if let Some(waiting) = at(state, "waiting") {
        out.field(2, title, "Waiting");
        return optional(out, "Reason", value::text(waiting, "reason"));
    }
    let Some(ended) = at(state, "terminated") else { return out.field(2, title, "Waiting") };
    out.field(2, title, "Terminated");
    optional(out, "Reason", value::text(ended, "reason"));
    optional(out, "Message", value::text(ended, "message"));
    out.field(3, "Exit Code", int(ended, "exitCode"));
    if int(ended, "signal") > 0 {
        out.field(3, "Signal", int(ended, "signal"));
    }
    out.field(3, "Started", pod.date(ended, "startedAt"));
    out.field(3, "Finished", pod.date(ended, "finishedAt"));
}

fn probe(probe: &Value) -> String {
    let number = |field: &str| int(probe, field);
    let attributes = format!(
        "delay={}s timeout={}s period={}s successThreshold={} failureThreshold={}",
        number("initialDelaySeconds"),
        number("timeoutSeconds"),
        number("periodSeconds"),
        number("successThreshold"),
        number("failureThreshold")
    );
    if let Some(exec) = at(probe, "exec") {
        return format!("exec {} {attributes}", bracketed(value::list(exec, "command")));
    }
    if let Some(get) = at(probe, "httpGet") {
        return format!("http-get {} {attributes}", url(get));
    }
    if let Some(socket) = at(probe, "tcpSocket") {
        return format!("tcp-socket {}:{} {attributes}", value::text(socket, "host"), or(socket, "port", "0"));
    }
    if let Some(grpc) = at(probe, "grpc") {
        return format!("grpc <pod>:{} {} {attributes}", int(grpc, "port"), value::text(grpc, "service"));
    }
    format!("unknown {attributes}")
}

/// The address that a probe asks, as Go writes URLs.
fn url(get: &Value) -> String {
    let scheme = value::text(get, "scheme").to_lowercase();
    let port = at(get, "port").map_or_else(|| "0".to_owned(), plain);
    let host = match value::text(get, "host") {
        host if host.contains([':', '%']) => format!("[{host}]"),
        host => host.to_owned(),
    };
    let host = if port.is_empty() { value::text(get, "host").to_owned() } else { format!("{host}:{port}") };
    let path = value::text(get, "path");
    let slash = if path.is_empty() || path.starts_with('/') || host.is_empty() { "" } else { "/" };
    let colon = if scheme.is_empty() { "" } else { ":" };
    format!("{scheme}{colon}//{host}{slash}{}", escaped(path))
}

/// A path with those bytes written as `%XX` that a URL's path cannot have.
fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn mounts(out: &mut Writer, container: &Value) {
    let sorted = |field: &str, by: &str| {
        let mut all: Vec<Value> = value::list(container, field).to_vec();
        all.sort_by(|a, b| value::text(a, by).cmp(value::text(b, by)));
        all
    };
    let mounts = sorted("volumeMounts", "mountPath");
    let none = if mounts.is_empty() { "\t<none>" } else { "" };
    put!(out, 2, "Mounts:{none}\n");
    for mount in &mounts {
        let mut flags = vec![if value::flag(mount, "readOnly") { "ro".to_owned() } else { "rw".to_owned() }];
        match value::text(mount, "subPath") {
            "" => {}
            path => flags.push(format!("path={path:?}")),
        }
        let (path, name) = (value::text(mount, "mountPath"), value::text(mount, "name"));
        put!(out, 3, "{path} from {name} ({})\n", flags.join(","));
    }
    let devices = sorted("volumeDevices", "devicePath");
    if !devices.is_empty() {
        put!(out, 2, "Devices:{none}\n");
        for device in &devices {
            put!(out, 3, "{} from {}\n", value::text(device, "devicePath"), value::text(device, "name"));
        }
    }
}
