//! `/metrics`: figures in the Prometheus text format, under upstream's names where upstream has them.

pub mod process;

use figures::samples;
use gates::audit::Audit;
use rest::Api;

/// Appends what the API server itself counts.
pub fn write(text: &mut String, api: &Api, audit: Option<&Audit>) {
    api.metrics.requests.write(text);
    let help = "[STABLE] [DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.";
    let mut objects = samples(text, "apiserver_storage_objects", "gauge", help);
    for resource in api.registry.all() {
        objects.add(&[("resource", &resource.name.to_string())], resource.cache.len() as f64);
    }
    let help = "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.";
    let mut objects = samples(text, "apiserver_resource_objects", "gauge", help);
    for resource in api.registry.all() {
        let labels = [("group", &*resource.storage.group), ("resource", &*resource.storage.plural)];
        objects.add(&labels, resource.cache.len() as f64);
    }
    api.metrics.write_commits(text);
    let help = "The revision the watch cache has come to.";
    samples(text, "trireme_store_revision", "gauge", help).add(&[], api.caches.revision() as f64);
    if let Some(audit) = audit {
        audit.metrics(text);
    }
    process::write(text);
}
