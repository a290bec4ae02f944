//! What is counted of autoscalers.

use std::time::Duration;

use informer::Key;

use crate::metrics;

/// What a change of the size is called.
fn action(current: i32, desired: Option<i32>) -> &'static str {
    match desired {
        Some(desired) if desired > current => "scale_up",
        Some(desired) if desired < current => "scale_down",
        _ => "none",
    }
}

/// A turn is over. Validation keeps specs from being wrong, so whatever fails is called `internal`.
pub(super) fn turned(key: &Key, current: i32, desired: Option<i32>, took: Duration) {
    let error = if desired.is_some() { "none" } else { "internal" };
    let labels = [action(current, desired), error];
    metrics::SCALER_TURNS.increment(&labels);
    metrics::SCALER_SECONDS.observe(&labels, took.as_secs_f64());
    if let Some(desired) = desired {
        metrics::SCALER_DESIRED.set(&[&key.namespace, &key.name], f64::from(desired));
    }
}

/// One metric was looked at; it asks for so many replicas, or could not be read.
pub(super) fn computed(metric: &str, current: i32, desired: Option<i32>, took: Duration) {
    let error = if desired.is_some() { "none" } else { "internal" };
    let labels = [action(current, desired), error, metric];
    metrics::SCALER_METRICS.increment(&labels);
    metrics::SCALER_METRIC_SECONDS.observe(&labels, took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_by_what_they_did() {
        let key = Key::new("ns", "figures-test");
        let (took, labels) = (Duration::from_millis(3), ["scale_up", "none"]);
        let before = metrics::SCALER_TURNS.value(&labels);
        turned(&key, 2, Some(5), took);
        turned(&key, 0, None, took);
        assert!(metrics::SCALER_TURNS.value(&labels) > before);
        assert!(metrics::SCALER_TURNS.value(&["none", "internal"]) > 0.0);
        assert_eq!(metrics::SCALER_DESIRED.value(&["ns", "figures-test"]), Some(5.0));
        computed("Resource", 4, Some(1), took);
        assert!(metrics::SCALER_METRICS.value(&["scale_down", "none", "Resource"]) > 0.0);
    }
}
