//! DefaultBinder: binds through `pods/binding`.

use std::sync::Arc;

use crate::framework::{Bind, Interest, Plugin, Points, Work};
use crate::model::pod::PodInfo;

/// Binds every pod that comes to it.
pub struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        super::DEFAULT_BINDER
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: bind)
    }

    fn interests(&self) -> Vec<Interest> {
        // It rejects no pod.
        Vec::new()
    }
}

impl Bind for DefaultBinder {
    fn bind(&self, pod: &Arc<PodInfo>, node: &str) -> Option<Work> {
        let (pod, node) = (pod.clone(), node.to_owned());
        Some(Box::new(move |api| api.bind(&pod, &node)))
    }
}
