//! What is allowed in a pod and still a mistake more often than not.

use std::collections::{BTreeMap, HashMap, HashSet};

use machinery::quantity::Quantity;
use machinery::{Value, names, value};

use crate::checks::At;
use crate::core::pod::security::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD, app_armor_field};
use crate::core::pod::spec::each_container;

/// The most warnings about what lies upon each other: in a list of any length each may lie upon all others, and an answer carries far
/// fewer.
const MOST: usize = 1_000;
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Volume types that are no more, and what became of them.
const GONE: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

/// What became of a label of nodes.
pub fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => "deprecated since v1.22; use Taints and Tolerations instead",
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

/// About the annotations of a pod that become fields.
pub fn of_annotations(pod: &Value) -> Vec<String> {
    let root = At::root(pod);
    let (annotations, spec) = (root.at("metadata.annotations"), root.at("spec"));
    let mut warnings = Vec::new();
    if annotations.is_empty() || spec.text_at("os.name") == "windows" {
        return warnings;
    }
    let whole = spec.at("securityContext.appArmorProfile");
    each_container(&spec, |container| {
        let key = format!("{APP_ARMOR}{}", container.text_at("name"));
        let annotation = annotations.key(&key);
        let news = app_armor_field(annotation.text()).is_none_or(|meant| meant != *whole.value());
        if annotation.is_set() && !container.has("securityContext.appArmorProfile") && news {
            warnings.push(format!("{annotation}: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
        }
    });
    warnings
}

/// About a new pod.
pub fn of_pod(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let problems = names::is_dns1123_label(value::text(pod, "metadata.name"));
    if !problems.is_empty() {
        let detail =
            "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended";
        warnings.push(format!("metadata.name: {detail}: [{}]", problems.join(" ")));
    }
    of(&At::root(pod), false, &mut warnings);
    warnings
}

/// About a template of pods at a path.
pub fn of_template(object: &Value, path: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let root = At::root(object);
    of(&root.at(path), true, &mut warnings);
    warnings
}

pub fn of(at: &At<'_, '_>, in_template: bool, warnings: &mut Vec<String>) {
    let spec = at.at("spec");
    placement(&spec, warnings);
    annotations(at, &spec, in_template, warnings);
    volumes(&spec.at("volumes"), warnings);
    duplicates(&spec, warnings);
    let overhead = spec.at("overhead");
    fractions(&overhead, warnings);
    each_container(&spec, |container| {
        for kind in ["limits", "requests"] {
            let resources = container.at("resources");
            fractions(&resources.at(kind), warnings);
        }
        hidden_variables(&container.at("env"), warnings);
    });
    ports(&spec, warnings);
    let grace = spec.at("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds < 0) {
        warnings.push(format!("{grace}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
}

fn placement(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    for (key, entry) in spec.at("nodeSelector").entries() {
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("{entry}: {message}"));
        }
    }
    let nodes = spec.at("affinity.nodeAffinity");
    let required = nodes.at(REQUIRED);
    for term in required.at("nodeSelectorTerms").items() {
        expressions(&term, warnings);
    }
    for term in nodes.at(PREFERRED).items() {
        expressions(&term.at("preference"), warnings);
    }
    for constraint in spec.at("topologySpreadConstraints").items() {
        let key = constraint.at("topologyKey");
        if let Some(message) = deprecated_label(key.text()) {
            warnings.push(format!("{key}: {} is {message}", key.text()));
        }
        null_selector(&constraint.at("labelSelector"), warnings);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.at("affinity");
        let pods = affinity.at(kind);
        for term in pods.at(REQUIRED).items() {
            null_selector(&term.at("labelSelector"), warnings);
        }
        for term in pods.at(PREFERRED).items() {
            null_selector(&term.at("podAffinityTerm.labelSelector"), warnings);
        }
    }
}

fn expressions(term: &At<'_, '_>, warnings: &mut Vec<String>) {
    for expression in term.at("matchExpressions").items() {
        let key = expression.at("key");
        if let Some(message) = deprecated_label(key.text()) {
            warnings.push(format!("{key}: {} is {message}", key.text()));
        }
    }
}

fn null_selector(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    if !at.is_set() {
        warnings.push(format!("{at}: a null labelSelector results in matching no pod"));
    }
}

fn annotations(at: &At<'_, '_>, spec: &At<'_, '_>, in_template: bool, warnings: &mut Vec<String>) {
    let all = at.at("metadata.annotations");
    for (key, message) in OLD_ANNOTATIONS {
        if all.key(key).is_set() {
            warnings.push(format!("{}: {message}", all.key(key)));
        }
    }
    const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    if all.key(SECCOMP_POD).is_set() && !spec.has("securityContext.seccompProfile") {
        warnings.push(format!("{}: {SECCOMP}", all.key(SECCOMP_POD)));
    }
    each_container(spec, |container| {
        let name = container.text_at("name");
        let key = format!("{SECCOMP_CONTAINER}{name}");
        if all.key(&key).is_set() && !container.has("securityContext.seccompProfile") {
            warnings.push(format!("{}: {SECCOMP}", all.key(&key)));
        }
        let key = format!("{APP_ARMOR}{name}");
        // A pod gets the field of what the annotation says, and its client gets the warning then.
        if in_template && all.key(&key).is_set() && !container.has("securityContext.appArmorProfile") {
            warnings
                .push(format!("{}: deprecated since v1.30; use the \"appArmorProfile\" field instead", all.key(&key)));
        }
    });
}

fn volumes(list: &At<'_, '_>, warnings: &mut Vec<String>) {
    for volume in list.items() {
        for (field, shown, message) in GONE {
            if volume.has(field) {
                warnings.push(format!("{}: {message}", volume.named(shown, field)));
            }
        }
        fractional_storage(&volume.at("ephemeral.volumeClaimTemplate.spec"), warnings);
    }
    for volume in list.items() {
        overlaps(&volume, warnings);
    }
}

/// Requests and limits of a claim that are not whole bytes.
pub fn fractional_storage(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    for kind in ["requests", "limits"] {
        let list = spec.at("resources");
        let list = list.at(kind);
        let storage = list.key("storage");
        if let Some(quantity) = storage.quantity().filter(is_fraction) {
            warnings.push(format!(
                "{storage}: fractional byte value {:?} is invalid, must be an integer",
                quantity.to_string()
            ));
        }
    }
}

fn is_fraction(quantity: &Quantity) -> bool {
    quantity.milli_value() % 1000 != 0
}

fn fractions(list: &At<'_, '_>, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        let amount = list.key(resource);
        if let Some(quantity) = amount.quantity().filter(is_fraction) {
            warnings.push(format!(
                "{amount}: fractional byte value {:?} is invalid, must be an integer",
                quantity.to_string()
            ));
        }
    }
}

/// Files of one volume that would lie upon each other.
fn overlaps(volume: &At<'_, '_>, warnings: &mut Vec<String>) {
    let name = volume.text_at("name");
    let sources = [
        ("configMap", format!("ConfigMap {:?}", volume.text_at("configMap.name"))),
        ("secret", format!("Secret {:?}", volume.text_at("secret.secretName"))),
        ("downwardAPI", "DownwardAPI".to_owned()),
    ];
    for (field, kind) in sources {
        Files::new(name, &kind).add(items(&volume.at(field), ""), warnings);
    }
    let mut files = Files::new(name, "Projected");
    for source in volume.at("projected.sources").items() {
        match source.is_empty() {
            true => warnings.push(format!("volume {name:?} (Projected) has no sources provided")),
            false => files.add(projected(&source), warnings),
        }
    }
}

/// A file, and what it comes from.
type File = (String, String);

/// The files of a volume so far.
struct Files<'a> {
    name: &'a str,
    kind: &'a str,
    seen: Vec<File>,
    /// The places in `seen` of a path.
    by_path: BTreeMap<String, Vec<usize>>,
}

impl<'a> Files<'a> {
    fn new(name: &'a str, kind: &'a str) -> Self {
        Self { name, kind, seen: Vec::new(), by_path: BTreeMap::new() }
    }

    fn add(&mut self, files: Vec<File>, warnings: &mut Vec<String>) {
        for (path, source) in files {
            let path = path.trim_end_matches('/').to_owned();
            for at in self.overlapping(&path) {
                if warnings.len() >= MOST {
                    break;
                }
                let other = &self.seen[at];
                let body = format!("{} with {}", shown(&path, &source), shown(&other.0, &other.1));
                warnings.push(format!("volume {:?} ({}): overlapping paths: {body}", self.name, self.kind));
            }
            self.by_path.entry(path.clone()).or_default().push(self.seen.len());
            self.seen.push((path, source));
        }
    }

    /// The places of files that are this one, or lie above or below it, in their order.
    fn overlapping(&self, path: &str) -> Vec<usize> {
        if path.is_empty() {
            return Vec::new();
        }
        let above = path.match_indices('/').filter_map(|(at, _)| self.by_path.get(&path[..at]));
        let prefix = format!("{path}/");
        let below = self.by_path.range(prefix.clone()..).take_while(|(other, _)| other.starts_with(&prefix));
        let same = self.by_path.get(path);
        let mut places: Vec<usize> =
            above.chain(same).chain(below.map(|(_, places)| places)).flatten().copied().take(MOST).collect();
        places.sort_unstable();
        places
    }
}

fn items(source: &At<'_, '_>, shown: &str) -> Vec<File> {
    source.at("items").items().map(|item| (item.text_at("path").to_owned(), shown.to_owned())).collect()
}

/// The files of one source of a projected volume.
fn projected(source: &At<'_, '_>) -> Vec<File> {
    let file = |path: &str, shown: String| (source.text_at(path).to_owned(), shown);
    if source.has("configMap.items") {
        items(&source.at("configMap"), &format!("ConfigMap {:?}", source.text_at("configMap.name")))
    } else if source.has("secret.items") {
        items(&source.at("secret"), &format!("Secret {:?}", source.text_at("secret.name")))
    } else if source.has("downwardAPI.items") {
        items(&source.at("downwardAPI"), "DownwardAPI")
    } else if source.has("serviceAccountToken") {
        vec![file("serviceAccountToken.path", "ServiceAccountToken".to_owned())]
    } else if source.has("clusterTrustBundle") {
        let by_name = source.text_at("clusterTrustBundle.name");
        let bundle = if by_name.is_empty() { source.text_at("clusterTrustBundle.signerName") } else { by_name };
        vec![file("clusterTrustBundle.path", format!("ClusterTrustBundle {bundle:?}"))]
    } else {
        let parts =
            [("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle")];
        let given =
            parts.map(|(field, part)| file(&format!("podCertificate.{field}"), format!("PodCertificate {part}")));
        given.into_iter().filter(|(path, _)| !path.is_empty()).collect()
    }
}

fn shown(path: &str, source: &str) -> String {
    if source.is_empty() { format!("{path:?}") } else { format!("{path:?} ({source})") }
}

fn duplicates(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    for (list, field, what) in [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")] {
        let mut seen: HashSet<&str> = HashSet::new();
        for item in spec.at(list).items() {
            let key = item.at(field);
            if seen.contains(&key.text()) {
                warnings.push(format!("{key}: duplicate {what} {:?}", key.text()));
            } else {
                seen.insert(key.text());
            }
        }
    }
    for secret in spec.at("imagePullSecrets").items() {
        let name = secret.at("name");
        if name.text().is_empty() {
            warnings.push(format!("{name}: invalid empty name \"\""));
        }
    }
}

/// A variable that is given twice, the second time without the first.
fn hidden_variables(list: &At<'_, '_>, warnings: &mut Vec<String>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for variable in list.items() {
        let name = variable.text_at("name");
        if !seen.contains(&name) {
            seen.insert(name);
            continue;
        }
        let reference = format!("$({name})");
        let given = variable.text_at("value");
        if variable.has("valueFrom") || given == reference || !given.contains(&reference) {
            warnings.push(format!(
                "{variable}: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

fn ports(spec: &At<'_, '_>, warnings: &mut Vec<String>) {
    struct Known {
        at: String,
        host: (i64, String),
    }
    let mut all: HashMap<(i64, String), Vec<Known>> = HashMap::new();
    let mut named: HashMap<String, String> = HashMap::new();
    let mut by_name = Vec::new();
    each_container(spec, |container| {
        for port in container.at("ports").items() {
            let number = |field: &str| port.at(field).int().unwrap_or(0);
            let key = (number("containerPort"), port.text_at("protocol").to_owned());
            let host = (number("hostPort"), port.text_at("hostIP").to_owned());
            if host.0 == 0 && !host.1.is_empty() {
                let (name, (inside, protocol), (_, ip)) = (port.text_at("name"), &key, &host);
                warnings.push(format!(
                    "{port}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{inside} Protocol:{protocol} HostIP:{ip}}}"
                ));
            }
            let others = all.entry(key).or_default();
            for other in others.iter() {
                if warnings.len() >= MOST {
                    break;
                }
                if host == other.host {
                    warnings.push(format!("{port}: duplicate port definition with {}", other.at));
                } else if host.0 == 0 || other.host.0 == 0 {
                    warnings.push(format!("{port}: overlapping port definition with {}", other.at));
                } else if host.0 == other.host.0 && host.1.is_empty() != other.host.1.is_empty() {
                    warnings.push(format!("{port}: dangerously ambiguous port definition with {}", other.at));
                }
            }
            // Beyond so many of one number, what they have in common has been said.
            if others.len() < MOST {
                others.push(Known { at: port.to_string(), host });
            }
            let name = port.text_at("name");
            if name.is_empty() {
                continue;
            }
            match named.get(name) {
                Some(first) => by_name.push(format!(
                    "{port}: duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
                )),
                None => drop(named.insert(name.to_owned(), port.to_string())),
            }
        }
    });
    warnings.append(&mut by_name);
}
