//! Nodes.

use machinery::{Value, value};

use super::super::strategy::Strategy;

/// Nodes.
pub struct Nodes;

impl Strategy for Nodes {
    fn fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    /// A node brings its status along when it registers.
    fn keeps_status_on_create(&self) -> bool {
        true
    }

    fn default(&self, node: &mut Value) {
        if let Some(capacity) = value::at(node, "status.capacity").cloned() {
            value::set_default(node, "status.allocatable", capacity);
        }
    }
}
