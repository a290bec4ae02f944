//! What a controller is started with.

use std::sync::Arc;

use client::Client;
use informer::{Clock, Informers, Key, Reconciler, Recorder, WorkQueue};
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::controller::Controller;
use crate::inputs::Inputs;

/// Handed to every controller when it starts.
#[derive(Clone)]
pub struct Context {
    pub controller: &'static Controller,
    pub tools: Tools,
    /// Shared by all controllers.
    pub informers: Informers,
    pub config: Arc<Config>,
    pub stop: CancellationToken,
}

/// What a controller acts with in its turns; it keeps them beside the caches that it reads.
#[derive(Clone)]
pub struct Tools {
    /// Acts with the controller's own identity.
    pub client: Client,
    /// Writes events in the controller's name.
    pub recorder: Recorder,
    pub clock: Arc<dyn Clock>,
}

impl Context {
    pub fn queue(&self) -> WorkQueue<Key> {
        self.queue_named(self.controller.queue)
    }

    /// An empty queue of another name, for controllers that have several.
    pub fn queue_named(&self, name: &'static str) -> WorkQueue<Key> {
        WorkQueue::new(name, self.tools.clock.clone())
    }

    /// The controller's queue, and caches to feed it.
    pub fn inputs(&self) -> Inputs {
        self.inputs_of(self.queue())
    }

    /// As [`Context::inputs`], of another queue.
    pub fn inputs_of(&self, queue: WorkQueue<Key>) -> Inputs {
        Inputs::new(self.clone(), queue)
    }

    /// Works on the queue until the end.
    pub async fn run<R: Reconciler>(&self, reconciler: R, queue: WorkQueue<Key>, workers: usize) {
        informer::run(self.controller.name, Arc::new(reconciler), queue, workers, self.stop.clone()).await;
    }
}
