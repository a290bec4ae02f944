//! Protection of VolumeAttributesClasses: a class that a claim or volume names is not removed before none does.
//!
//! `plan` says which classes those are and is pure. The caches are believed: a claim that is made while its class goes would not find
//! the class a moment later either. Upstream: volumeattributesclass-protection-controller.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub(crate) const CONTROLLER: Controller = Controller {
    name: "volumeattributesclass-protection-controller",
    alias: "",
    account: "volumeattributesclass-protection-controller",
    events: "volumeattributesclass-protection-controller",
    queue: "vacprotection",
    watches: &["PersistentVolume", "PersistentVolumeClaim", "VolumeAttributesClass"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
