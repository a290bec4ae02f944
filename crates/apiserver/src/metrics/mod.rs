//! `/metrics`: figures in the Prometheus text format, under upstream's names where upstream has them.

pub mod process;
pub mod protobuf;

use figures::samples;
use gates::audit::Audit;
use rest::Api;

pub fn render(api: &Api, audit: Option<&Audit>) -> String {
    let mut text = String::with_capacity(64 * 1024);
    api.metrics.requests.write(&mut text);
    let help = "[STABLE] [DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.";
    let mut objects = samples(&mut text, "apiserver_storage_objects", "gauge", help);
    for resource in api.registry.all() {
        objects.add(&[("resource", &resource.name.to_string())], resource.cache.len() as f64);
    }
    let help = "[ALPHA] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.";
    let mut objects = samples(&mut text, "apiserver_resource_objects", "gauge", help);
    for resource in api.registry.all() {
        let labels = [("group", &*resource.storage.group), ("resource", &*resource.storage.plural)];
        objects.add(&labels, resource.cache.len() as f64);
    }
    api.metrics.write_commits(&mut text);
    let help = "The revision the watch cache has come to.";
    samples(&mut text, "trireme_store_revision", "gauge", help).add(&[], api.caches.revision() as f64);
    if let Some(audit) = audit {
        audit.metrics(&mut text);
    }
    process::write(&mut text);
    text
}
