//! CronJob: starts Jobs by a schedule.
//!
//! `rules::cron` knows schedules, `plan` decides, both pure. Nothing runs between two times: a turn ends with how long until the next. Upstream: cronjob
//! controller v2.

mod plan;
mod reconcile;
#[cfg(test)]
mod tests;

use futures::FutureExt;

use crate::controller::Controller;

pub const CONTROLLER: Controller = Controller {
    name: "cronjob-controller",
    alias: "cronjob",
    account: "cronjob-controller",
    events: "cronjob-controller",
    queue: "cronjob",
    watches: &["CronJob", "Job"],
    on: true,
    start: |context| reconcile::start(context).boxed(),
};
