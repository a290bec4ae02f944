//! Groups with a kind or two: coordination, policy, node, API extension and registration, storage versions.

use machinery::value;
use serde_json::json;

use super::cells::{age, condition, first, is_set, is_true, joined, name, number, plain, text_or};
use super::{AGE, CREATED, Column, NAME, Printer, boolean, integer, of, own, text};

/// The printer of a kind of one of the small groups.
pub fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    Some(match (group, kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &DEFINITION,
        ("apiregistration.k8s.io", "APIService") => &API_SERVICE,
        ("coordination.k8s.io", "Lease") => &LEASE,
        ("coordination.k8s.io", "LeaseCandidate") => &LEASE_CANDIDATE,
        ("internal.apiserver.k8s.io", "StorageVersion") => &STORAGE_VERSION,
        ("node.k8s.io", "RuntimeClass") => &RUNTIME_CLASS,
        ("policy", "PodDisruptionBudget") => &DISRUPTION_BUDGET,
        ("storagemigration.k8s.io", "StorageVersionMigration") => &STORAGE_VERSION_MIGRATION,
        _ => return None,
    })
}

static LEASE: Printer = Printer::new(
    &[NAME, text("Holder", of("io.k8s.api.coordination.v1.LeaseSpec", "holderIdentity")), AGE],
    |lease, now| vec![name(lease), json!(value::text(lease, "spec.holderIdentity")), age(lease, now)],
);

const CANDIDATE: &str = "io.k8s.api.coordination.v1beta1.LeaseCandidateSpec";

static LEASE_CANDIDATE: Printer = Printer::new(
    &[
        NAME,
        text("LeaseName", of(CANDIDATE, "leaseName")),
        text("BinaryVersion", of(CANDIDATE, "binaryVersion")),
        text("EmulationVersion", of(CANDIDATE, "emulationVersion")),
        AGE,
    ],
    |candidate, now| {
        let field = |path| json!(value::text(candidate, path));
        vec![
            name(candidate),
            field("spec.leaseName"),
            field("spec.binaryVersion"),
            field("spec.emulationVersion"),
            age(candidate, now),
        ]
    },
);

static RUNTIME_CLASS: Printer =
    Printer::new(&[NAME, text("Handler", of("io.k8s.api.node.v1.RuntimeClass", "handler")), AGE], |class, now| {
        vec![name(class), json!(value::text(class, "handler")), age(class, now)]
    });

static DISRUPTION_BUDGET: Printer = Printer::new(
    &[
        NAME,
        text("Min Available", own("How many pods must be available at least.")),
        text("Max Unavailable", own("How many pods may be unavailable at most.")),
        integer("Allowed Disruptions", own("How many pods may be disrupted now.")),
        AGE,
    ],
    |budget, now| {
        let bound = |path: &str| {
            let given = value::at(budget, path).filter(|given| !given.is_null());
            json!(given.map_or_else(|| "N/A".to_owned(), plain))
        };
        vec![
            name(budget),
            bound("spec.minAvailable"),
            bound("spec.maxUnavailable"),
            json!(number(budget, "status.disruptionsAllowed")),
            age(budget, now),
        ]
    },
);

static DEFINITION: Printer = Printer::new(
    &[
        NAME,
        text("Scope", own("Cluster or Namespaced.")),
        text("Versions", own("The versions that are served.")),
        CREATED,
        text("Group", own("The API group.")).wide(),
        text("Kind", own("The kind of the custom resource.")).wide(),
        text("ShortNames", own("Its short names.")).wide(),
        boolean("Established", own("Whether it is served.")).wide(),
    ],
    |definition, _| {
        let served = value::list(definition, "spec.versions").iter().filter(|version| value::flag(version, "served"));
        let mut versions: Vec<String> = served
            .map(|version| {
                let stored = if value::flag(version, "storage") { "(storage)" } else { "" };
                format!("{}{stored}", value::text(version, "name"))
            })
            .collect();
        versions.sort_unstable();
        let field = |path| json!(value::text(definition, path));
        vec![
            name(definition),
            field("spec.scope"),
            json!(versions.join(",")),
            field("metadata.creationTimestamp"),
            field("spec.group"),
            field("spec.names.kind"),
            json!(joined(definition, "spec.names.shortNames", ",")),
            json!(is_true(definition, "Established")),
        ]
    },
);

static API_SERVICE: Printer = Printer::new(
    &[
        NAME,
        text("Service", own("The service that serves this version of the group.")),
        text("Available", own("Whether it can be reached.")),
        AGE,
    ],
    |object, now| {
        let service = if is_set(object, "spec.service") {
            format!("{}/{}", value::text(object, "spec.service.namespace"), value::text(object, "spec.service.name"))
        } else {
            "Local".to_owned()
        };
        let available = match condition(object, "Available") {
            None => "Unknown".to_owned(),
            Some(condition) => match (value::text(condition, "status"), value::text(condition, "reason")) {
                (status @ "True", _) | (status, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        };
        vec![name(object), json!(service), json!(available), age(object, now)]
    },
);

const VERSION_STATUS: &str = "io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus";

static STORAGE_VERSION: Printer = Printer::new(
    &[
        NAME,
        text("CommonEncodingVersion", of(VERSION_STATUS, "commonEncodingVersion")),
        text("StorageVersions", of(VERSION_STATUS, "storageVersions")),
        AGE,
    ],
    |object, now| {
        let versions: Vec<String> = value::list(object, "status.storageVersions")
            .iter()
            .map(|version| {
                format!("{}={}", value::text(version, "apiServerID"), value::text(version, "encodingVersion"))
            })
            .collect();
        vec![
            name(object),
            json!(text_or(object, "status.commonEncodingVersion", "<unset>")),
            json!(first(&versions, 3)),
            age(object, now),
        ]
    },
);

static STORAGE_VERSION_MIGRATION: Printer = Printer::new(
    &[
        Column { format: "", ..NAME },
        text("Resource", own("The resource that is migrated.")),
        text("Status", own("How far the migration is.")),
    ],
    |object, _| {
        let (group, resource) =
            (value::text(object, "spec.resource.group"), value::text(object, "spec.resource.resource"));
        let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let met = value::list(object, "status.conditions")
            .iter()
            .filter(|condition| value::text(condition, "status") == "True");
        let kinds = met.map(|condition| value::text(condition, "type"));
        let status = kinds.rev().find(|kind| matches!(*kind, "Running" | "Failed" | "Succeeded")).unwrap_or("Unknown");
        vec![name(object), json!(resource), json!(status)]
    },
);
