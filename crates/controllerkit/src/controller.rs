//! What a controller is. Every folder says it once, beside its code; `registry` is made from that.

use futures::future::BoxFuture;

use crate::context::Context;

/// A controller as the manager sees it: what it is called, who it acts as, and how it starts.
pub struct Controller {
    /// As in `--controllers` and in metrics.
    pub name: &'static str,
    /// Its name of old, which `--controllers` still knows; empty where it never had another.
    pub alias: &'static str,
    /// The service account it acts as; empty: the controller manager itself.
    pub account: &'static str,
    /// The component that its events come from.
    pub events: &'static str,
    /// What its queue is called in metrics: dashboards know these names.
    pub queue: &'static str,
    /// The kinds that it reads from caches. A test keeps the list true.
    pub watches: &'static [&'static str],
    /// Whether `*` means it. Whoever joins nodes by bootstrap tokens names those that it does not mean, as upstream has it.
    pub on: bool,
    pub start: fn(Context) -> BoxFuture<'static, ()>,
}
