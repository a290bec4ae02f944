//! The group `autoscaling`.

pub mod horizontal_pod_autoscaler;
pub mod scale;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("horizontalpodautoscalers", "HorizontalPodAutoscaler")
        .strategy(&horizontal_pod_autoscaler::Autoscalers)
        .columns(&horizontal_pod_autoscaler::columns::TABLE)
        .converted(&horizontal_pod_autoscaler::convert::CONVERSIONS),
    Kind::subresource("Scale").columns(&scale::columns::TABLE),
];
