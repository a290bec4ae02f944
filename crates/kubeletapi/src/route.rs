//! Which request is which: a pure function of path and method.

use http::Method;
use percent_encoding::percent_decode_str;

/// A pod's container, as a streaming request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub namespace: String,
    pub pod: String,
    /// Its uid, where the request insists on one.
    pub uid: Option<String>,
    /// The container; empty for requests about the whole pod.
    pub container: String,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Whether all is well, or one check of it.
    Healthz,
    /// Pods of this node as the API has them.
    Pods,
    /// Pods of this node as the runtime has them.
    RunningPods,
    /// The summary of all figures.
    Summary,
    /// The kubelet's own figures.
    Metrics,
    /// What pods and containers use, for autoscaling.
    ResourceMetrics,
    /// What containers use, in detail.
    CadvisorMetrics,
    /// What probes came to.
    ProbeMetrics,
    /// What health checks came to.
    HealthMetrics,
    /// The configuration in force.
    Configz,
    /// What the kubelet says of itself: `/statusz` and `/flagz`.
    About,
    /// What this process did for an object, hop by hop.
    Hops,
    /// The machine's own logs: a decoded path below their directory.
    SystemLogs(String),
    /// A volume of the local-path provisioner, by its directory.
    LocalPath(String),
    ContainerLogs(Place),
    /// A command in a container.
    Exec(Place),
    /// A container's own streams.
    Attach(Place),
    /// Ports of a pod.
    PortForward(Place),
}

impl Route {
    /// The paths that `/statusz` names.
    pub const SHOWN: [&str; 14] = [
        "/attach",
        "/configz",
        "/containerLogs",
        "/debug",
        "/exec",
        "/flagz",
        "/healthz",
        "/logs",
        "/metrics",
        "/pods",
        "/portForward",
        "/runningpods",
        "/stats",
        "/statusz",
    ];

    /// The route of a path.
    pub fn of(path: &str) -> Option<Self> {
        if let Some(below) = path.strip_prefix("/logs/") {
            return Some(Self::SystemLogs(percent_decode_str(below).decode_utf8_lossy().into_owned()));
        }
        let segments = segments(path);
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        let place = |namespace: &str, pod: &str, uid: Option<&str>, container: &str| Place {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            uid: uid.map(str::to_owned),
            container: container.to_owned(),
        };
        Some(match words.as_slice() {
            ["healthz"] | ["healthz", _] => Self::Healthz,
            ["pods"] => Self::Pods,
            ["runningpods"] => Self::RunningPods,
            ["stats", "summary"] => Self::Summary,
            ["metrics"] => Self::Metrics,
            ["metrics", "resource"] => Self::ResourceMetrics,
            ["metrics", "cadvisor"] => Self::CadvisorMetrics,
            ["metrics", "probes"] => Self::ProbeMetrics,
            ["metrics", "slis"] => Self::HealthMetrics,
            ["configz"] => Self::Configz,
            ["statusz" | "flagz"] => Self::About,
            ["debug", "hops"] => Self::Hops,
            ["localpath", name] => Self::LocalPath((*name).to_owned()),
            ["containerLogs", namespace, pod, container] => Self::ContainerLogs(place(namespace, pod, None, container)),
            ["exec", namespace, pod, container] => Self::Exec(place(namespace, pod, None, container)),
            ["exec", namespace, pod, uid, container] => Self::Exec(place(namespace, pod, Some(uid), container)),
            ["attach", namespace, pod, container] => Self::Attach(place(namespace, pod, None, container)),
            ["attach", namespace, pod, uid, container] => Self::Attach(place(namespace, pod, Some(uid), container)),
            ["portForward", namespace, pod] => Self::PortForward(place(namespace, pod, None, "")),
            ["portForward", namespace, pod, uid] => Self::PortForward(place(namespace, pod, Some(uid), "")),
            _ => return None,
        })
    }

    /// Whether the method fits. Streams may be asked for by `POST` too: that is how SPDY clients come.
    pub fn allows(&self, method: &Method) -> bool {
        if matches!(self, Self::LocalPath(_)) {
            return method == Method::DELETE;
        }
        let streams = matches!(self, Self::Exec(_) | Self::Attach(_) | Self::PortForward(_));
        method == Method::GET || (streams && method == Method::POST)
    }
}

/// Under which name requests to a path are counted; a fixed set, whatever is asked for.
pub fn bucket(path: &str) -> &'static str {
    const BUCKETS: [&str; 14] = [
        "attach",
        "configz",
        "containerLogs",
        "exec",
        "healthz",
        "logs",
        "metrics",
        "metrics/cadvisor",
        "metrics/probes",
        "metrics/resource",
        "pods",
        "portForward",
        "runningpods",
        "stats",
    ];
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut words = path.splitn(3, '/');
    let first = words.next().unwrap_or_default();
    let root = match words.next() {
        Some(second) if first == "metrics" => &path[..first.len() + 1 + second.len()],
        _ => first,
    };
    BUCKETS.into_iter().find(|known| *known == root).unwrap_or("other")
}

/// The segments of a path, decoded. An empty last one, as of `/pods/`, does not count.
fn segments(path: &str) -> Vec<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/').map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded() {
        assert_eq!(segments("/exec/ns/a%2Fb/c/"), ["exec", "ns", "a/b", "c"]);
        assert_eq!(segments("/"), [""]);
    }

    #[test]
    fn paths_lead_where_they_should() {
        let place = |uid: Option<&str>, container: &str| Place {
            namespace: "ns".into(),
            pod: "p".into(),
            uid: uid.map(str::to_owned),
            container: container.into(),
        };
        let table = [
            ("/healthz", Some(Route::Healthz)),
            ("/healthz/ping", Some(Route::Healthz)),
            ("/metrics/slis", Some(Route::HealthMetrics)),
            ("/debug/hops", Some(Route::Hops)),
            ("/pods", Some(Route::Pods)),
            ("/pods/", Some(Route::Pods)),
            ("/runningpods/", Some(Route::RunningPods)),
            ("/stats/summary", Some(Route::Summary)),
            ("/metrics", Some(Route::Metrics)),
            ("/metrics/resource", Some(Route::ResourceMetrics)),
            ("/configz", Some(Route::Configz)),
            ("/statusz", Some(Route::About)),
            ("/flagz", Some(Route::About)),
            ("/logs/", Some(Route::SystemLogs(String::new()))),
            ("/logs/a%20b/", Some(Route::SystemLogs("a b/".to_owned()))),
            ("/logs", None),
            ("/containerLogs/ns/p/c", Some(Route::ContainerLogs(place(None, "c")))),
            ("/containerLogs/ns/p", None),
            ("/localpath/pvc-1_ns_data", Some(Route::LocalPath("pvc-1_ns_data".to_owned()))),
            ("/localpath/a/b", None),
            ("/exec/ns/p/c", Some(Route::Exec(place(None, "c")))),
            ("/exec/ns/p/u/c", Some(Route::Exec(place(Some("u"), "c")))),
            ("/attach/ns/p/c", Some(Route::Attach(place(None, "c")))),
            ("/portForward/ns/p", Some(Route::PortForward(place(None, "")))),
            ("/portForward/ns/p/u", Some(Route::PortForward(place(Some("u"), "")))),
            ("/", None),
            ("/podsx", None),
        ];
        for (path, route) in table {
            assert_eq!(Route::of(path), route, "{path}");
        }
        assert!(Route::Exec(place(None, "c")).allows(&Method::POST));
        assert!(!Route::Pods.allows(&Method::POST));
        let local = Route::LocalPath("a".to_owned());
        assert!(local.allows(&Method::DELETE) && !local.allows(&Method::GET));
        assert!(!Route::Pods.allows(&Method::DELETE));
    }

    #[test]
    fn requests_are_counted_under_few_names() {
        let table = [
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics", "metrics"),
            ("/metrics/other", "other"),
            ("/exec/a/b/c", "exec"),
            ("/whatever", "other"),
            ("", "other"),
        ];
        for (path, name) in table {
            assert_eq!(bucket(path), name, "{path}");
        }
    }
}
