//! networking.k8s.io and discovery.k8s.io.

use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, annotated, first, is_set, joined, load_balancer, name, selector, text_or};
use super::{AGE, NAME, Printer, of, own, text};

/// The printer of a kind of networking or discovery.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "EndpointSlice" => &ENDPOINT_SLICE,
        "IPAddress" => &IP_ADDRESS,
        "Ingress" => &INGRESS,
        "IngressClass" => &INGRESS_CLASS,
        "NetworkPolicy" => &NETWORK_POLICY,
        "ServiceCIDR" => &SERVICE_CIDR,
        _ => return None,
    })
}

/// How many of a list a cell shows.
const MOST: usize = 3;

static INGRESS: Printer = Printer::new(
    &[
        NAME,
        text("Class", own("The IngressClass that serves the ingress.")),
        text("Hosts", own("The hosts that the rules are for.")),
        text("Address", own("Where the load balancer is reached.")),
        text("Ports", own("The ports that are open, with and without TLS.")),
        AGE,
    ],
    |object, now| {
        let tls = !value::list(object, "spec.tls").is_empty();
        vec![
            name(object),
            json!(text_or(object, "spec.ingressClassName", "<none>")),
            json!(hosts(object)),
            json!(load_balancer(object)),
            json!(if tls { "80, 443" } else { "80" }),
            age(object, now),
        ]
    },
);

/// The first hosts. Rules without a host fill no place, but count among those left out.
fn hosts(object: &Value) -> String {
    let rules = value::list(object, "spec.rules");
    let named: Vec<usize> =
        (0..rules.len()).filter(|index| !value::text(&rules[*index], "host").is_empty()).take(MOST).collect();
    if named.is_empty() {
        return "*".to_owned();
    }
    let shown = named.iter().map(|index| value::text(&rules[*index], "host")).collect::<Vec<_>>().join(",");
    let more = named.len() == MOST && named.last().is_some_and(|last| last + 1 < rules.len());
    if more { format!("{shown} + {} more...", rules.len() - MOST) } else { shown }
}

static INGRESS_CLASS: Printer = Printer::new(
    &[
        NAME,
        text("Controller", own("The controller that serves ingresses of this class.")),
        text("Parameters", own("The object that says more about the class.")),
        AGE,
    ],
    |object, now| {
        let mut shown = value::text(object, "metadata.name").to_owned();
        if annotated(object, "ingressclass.kubernetes.io/is-default-class") {
            shown.push_str(" (default)");
        }
        let parameters = match value::at(object, "spec.parameters").filter(|parameters| parameters.is_object()) {
            None => "<none>".to_owned(),
            Some(parameters) => {
                let group = if is_set(parameters, "apiGroup") {
                    format!(".{}", value::text(parameters, "apiGroup"))
                } else {
                    String::new()
                };
                format!("{}{group}/{}", value::text(parameters, "kind"), value::text(parameters, "name"))
            }
        };
        vec![json!(shown), json!(value::text(object, "spec.controller")), json!(parameters), age(object, now)]
    },
);

static NETWORK_POLICY: Printer = Printer::new(
    &[NAME, text("Pod-Selector", of("io.k8s.api.networking.v1.NetworkPolicySpec", "podSelector")), AGE],
    |object, now| vec![name(object), json!(selector(object, "spec.podSelector")), age(object, now)],
);

static SERVICE_CIDR: Printer = Printer::new(
    &[NAME, text("CIDRs", of("io.k8s.api.networking.v1.ServiceCIDRSpec", "cidrs")), AGE],
    |object, now| vec![name(object), json!(joined(object, "spec.cidrs", ",")), age(object, now)],
);

/// Upstream fills a third cell that has no column; clients that count cells see the same here.
static IP_ADDRESS: Printer = Printer::new(
    &[NAME, text("ParentRef", of("io.k8s.api.networking.v1.IPAddressSpec", "parentRef"))],
    |object, now| {
        let parent = match value::at(object, "spec.parentRef").filter(|parent| parent.is_object()) {
            None => "<none>".to_owned(),
            Some(parent) => {
                let (group, resource) = (value::text(parent, "group"), value::text(parent, "resource"));
                let mut shown = if group.is_empty() {
                    resource.to_lowercase()
                } else {
                    format!("{resource}.{group}").to_lowercase()
                };
                for part in ["namespace", "name"] {
                    let text = value::text(parent, part);
                    if part == "name" || !text.is_empty() {
                        shown.push('/');
                        shown.push_str(text);
                    }
                }
                shown
            }
        };
        vec![name(object), json!(parent), age(object, now)]
    },
);

const SLICE: &str = "io.k8s.api.discovery.v1.EndpointSlice";

static ENDPOINT_SLICE: Printer = Printer::new(
    &[
        NAME,
        text("AddressType", of(SLICE, "addressType")),
        text("Ports", of(SLICE, "ports")),
        text("Endpoints", of(SLICE, "endpoints")),
        AGE,
    ],
    |object, now| {
        let ports: Vec<String> = value::list(object, "ports")
            .iter()
            .map(|port| match value::int(port, "port") {
                Some(number) => number.to_string(),
                None if is_set(port, "name") => value::text(port, "name").to_owned(),
                None => "*".to_owned(),
            })
            .collect();
        let addresses: Vec<String> = value::list(object, "endpoints")
            .iter()
            .flat_map(|endpoint| value::list(endpoint, "addresses"))
            .filter_map(|address| address.as_str().map(str::to_owned))
            .collect();
        vec![
            name(object),
            json!(value::text(object, "addressType")),
            json!(first(&ports, MOST)),
            json!(first(&addresses, MOST)),
            age(object, now),
        ]
    },
);
