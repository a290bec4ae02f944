//! What a table shows of NetworkPolicies.

use serde_json::json;

use crate::table::cells::{age, name, selector};
use crate::table::{AGE, NAME, Printer, of, text};

pub static TABLE: Printer = Printer::new(
    &[NAME, text("Pod-Selector", of("io.k8s.api.networking.v1.NetworkPolicySpec", "podSelector")), AGE],
    |object, now| vec![name(object), json!(selector(object, "spec.podSelector")), age(object, now)],
);
