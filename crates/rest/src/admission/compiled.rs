//! Configurations as they are used: compiled once per change, whoever asks. Asking costs a comparison.

use std::sync::Arc;

use machinery::Value;
use parking_lot::RwLock;
use storage::cache::{Cache, Filter, Place};

/// What is current, and up to where it was read.
type State<T> = RwLock<(Place, Option<Arc<Vec<T>>>)>;

/// All of a kind, in the order of their names.
pub struct Compiled<T> {
    cache: Arc<Cache>,
    compile: fn(&Value) -> Vec<T>,
    state: State<T>,
}

impl<T> Compiled<T> {
    /// Of the objects of a cache, each of which makes any number of them.
    pub fn new(cache: Arc<Cache>, compile: fn(&Value) -> Vec<T>) -> Self {
        Self { cache, compile, state: RwLock::new((Place::default(), None)) }
    }

    /// All of them; nothing when there are none.
    pub fn current(&self) -> Option<Arc<Vec<T>>> {
        let state = self.state.read();
        if !state.0.is_behind(&self.cache) {
            return state.1.clone();
        }
        drop(state);
        let mut state = self.state.write();
        if state.0.advance(&self.cache).is_some() {
            let (all, _) = self.cache.list(&Filter::everything(), None, 0);
            let compiled: Vec<T> = all.iter().flat_map(|object| (self.compile)(&object.to_value())).collect();
            state.1 = (!compiled.is_empty()).then(|| Arc::new(compiled));
        }
        state.1.clone()
    }
}
