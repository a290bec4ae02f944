//! `/metrics`: figures in the Prometheus text format, under upstream's names where upstream has them.

use std::fmt::Write as _;

use crate::audit::Audit;
use crate::rest::Api;

/// The text.
pub fn render(api: &Api, audit: Option<&Audit>) -> String {
    let mut text = String::with_capacity(8192);
    text.push_str(
        "# HELP apiserver_storage_objects [STABLE] Number of stored objects at the time of last check split by kind.\n",
    );
    text.push_str("# TYPE apiserver_storage_objects gauge\n");
    for resource in api.registry.all() {
        let _ = writeln!(text, "apiserver_storage_objects{{resource=\"{}\"}} {}", resource.name, resource.cache.len());
    }
    text.push_str("# HELP apiserver_watchers Number of open watches split by kind.\n# TYPE apiserver_watchers gauge\n");
    for resource in api.registry.all() {
        let watchers = resource.cache.watchers();
        if watchers > 0 {
            let _ = writeln!(text, "apiserver_watchers{{resource=\"{}\"}} {watchers}", resource.name);
        }
    }
    text.push_str("# HELP trireme_store_revision The revision the watch cache has come to.\n# TYPE trireme_store_revision gauge\n");
    let _ = writeln!(text, "trireme_store_revision {}", api.caches.revision());
    if let Some(audit) = audit {
        audit.metrics(&mut text);
    }
    text
}
