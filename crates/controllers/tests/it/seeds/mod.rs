//! Random kills of the controllers, dropped watches, conflicts, relists and jumps of the clock during rollouts, Jobs and StatefulSets. A failure names its seed:
//! `TRIREME_SEED=<seed>` repeats it (but for the jitter of retries), `TRIREME_SOAK=1` tries many more.

mod job;
mod rollout;
mod stateful;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use informer::Clock;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::api::{Faults, Store};
use crate::world::{World, resource};

const SEEDS: u64 = 1_000;
const SOAK_SEEDS: u64 = 20_000;

/// A world under attack, and the dice.
struct Ordeal {
    state: u64,
    world: World,
}

impl Ordeal {
    fn new(seed: u64, controllers: &'static str) -> Self {
        let faults = Faults { seed, conflicts: 7, drops: 11, gone: 5 };
        let world = World::with(controllers, faults);
        world.nodes(3);
        Self { state: seed ^ 0x9e37_79b9_7f4a_7c15, world }
    }

    /// A number below `among`.
    fn choose(&mut self, among: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % among
    }

    /// All pods, as they are stored: typed ones would cost most of the time of a run.
    fn pods(&self) -> Vec<Value> {
        self.world.api.with(|store| store.list(resource::<Pod>(), "default"))
    }

    /// A pod that is there.
    fn any_pod(&mut self) -> Option<Value> {
        let mut pods = self.pods();
        if pods.is_empty() {
            return None;
        }
        let at = usize::try_from(self.choose(pods.len() as u64)).expect("a small number");
        Some(pods.swap_remove(at))
    }

    /// What may happen to any cluster at any time.
    fn strike(&mut self) {
        match self.choose(6) {
            0 => self.world.restart(),
            1 => {
                let by = Duration::from_millis(self.choose(3000));
                self.world.clock.advance(by);
            }
            2 => {
                // An hour back or forth, and sooner or later again to where it should be.
                let now = self.world.clock.now();
                let hour = Duration::from_secs(3600);
                let there = if self.choose(2) == 0 {
                    informer::clock::add(now, hour)
                } else {
                    now.checked_sub(jiff::SignedDuration::from_hours(1)).expect("not at the beginning of time")
                };
                self.world.clock.jump(there);
            }
            _ => drop(self.world.run_pods()),
        }
    }

    /// Lets everybody take a few steps.
    async fn tick(&mut self) {
        for _ in 0..self.choose(4) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// No more faults: now everything has to come to rest. An echo that was lost with a watch is waited for for five minutes and then taken for lost.
    async fn rest(&mut self) {
        self.world.api.with(Store::calm);
        self.world.pass(Duration::from_secs(7 * 60)).await;
    }

    /// Pods that are not on their way out.
    fn live(&self) -> Vec<Value> {
        let mut pods = self.pods();
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods
    }
}

fn name(pod: &Value) -> &str {
    machinery::value::text(pod, "metadata.name")
}

fn phase(pod: &Value) -> &str {
    machinery::value::text(pod, "status.phase")
}

fn run(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        match seed % 3 {
            0 => rollout::run(seed).await,
            1 => job::run(seed).await,
            _ => stateful::run(seed).await,
        }
    });
}

#[test]
fn whatever_happens_the_promises_hold_and_everything_converges() {
    if let Some(seed) = std::env::var("TRIREME_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed);
    }
    let seeds = if std::env::var_os("TRIREME_SOAK").is_some() { SOAK_SEEDS } else { SEEDS };
    let next = AtomicU64::new(1);
    let workers = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    if let Err(cause) = std::panic::catch_unwind(|| run(seed)) {
                        eprintln!("failed with TRIREME_SEED={seed}");
                        std::panic::resume_unwind(cause);
                    }
                }
            });
        }
    });
}
