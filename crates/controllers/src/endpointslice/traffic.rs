//! How Services want their traffic spread, as the figures tell it.

use std::collections::{BTreeMap, HashMap};

use informer::Key;
use k8s_openapi::api::core::v1::Service;

use crate::common::meta::MetaExt;
use crate::metrics;

/// Which Services ask for something.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    of: HashMap<Key, String>,
}

impl Traffic {
    /// A Service as it is now; `None` if it is gone.
    pub(super) fn note(&mut self, key: &Key, service: Option<&Service>) {
        let now = service.and_then(distribution);
        if self.of.get(key).map(String::as_str) == now {
            return;
        }
        match now {
            Some(now) => self.of.insert(key.clone(), now.to_owned()),
            None => self.of.remove(key),
        };
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        for distribution in self.of.values() {
            *counts.entry(distribution).or_default() += 1.0;
        }
        metrics::SERVICES_BY_TRAFFIC.replace(counts.into_iter().map(|(name, count)| (vec![name], count)));
    }
}

/// What it asks for by `trafficDistribution`.
pub(super) fn distribution(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.traffic_distribution.as_deref()
}

/// What it asks for by annotation.
pub(super) fn topology(service: &Service) -> &'static str {
    match service.metadata.annotation("service.kubernetes.io/topology-mode") {
        Some("Auto" | "auto") => "Auto",
        _ => "Disabled",
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceSpec;

    use super::*;

    #[test]
    fn services_are_counted_by_what_they_ask_for() {
        let near = Service {
            spec: Some(ServiceSpec { traffic_distribution: Some("PreferTest".into()), ..ServiceSpec::default() }),
            ..Service::default()
        };
        let mut traffic = Traffic::default();
        let counted = || metrics::SERVICES_BY_TRAFFIC.value(&["PreferTest"]);
        traffic.note(&Key::new("a", "one"), Some(&near));
        traffic.note(&Key::new("a", "two"), Some(&near));
        assert_eq!(counted(), Some(2.0));
        traffic.note(&Key::new("a", "two"), Some(&Service::default()));
        assert_eq!(counted(), Some(1.0));
        traffic.note(&Key::new("a", "one"), None);
        assert_eq!(counted(), None);
        assert_eq!(topology(&near), "Disabled");
    }
}
