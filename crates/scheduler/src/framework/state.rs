//! What plugins remember between the extension points of one scheduling cycle.
//!
//! A state is found by its type and outlives the cycle, so that its buffers are used again: a plugin that computes a
//! state resets it first. Whether a state is valid is said by the framework, which skips the plugins that had nothing
//! to compute.

use std::any::{Any, TypeId};

use super::PluginSet;

/// Plugin data of a cycle. Implemented for every cloneable type.
pub trait StateData: Any + Send {
    /// A copy, for what-if evaluation.
    fn clone_boxed(&self) -> Box<dyn StateData>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Clone + Send> StateData for T {
    fn clone_boxed(&self) -> Box<dyn StateData> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// The states of all plugins.
#[derive(Default)]
pub struct CycleState {
    entries: Vec<(TypeId, Box<dyn StateData>)>,
    /// Filters that PreFilter found to have nothing to do.
    pub(crate) skip_filters: PluginSet,
    /// Scores that PreScore found to have nothing to do.
    pub(crate) skip_scores: PluginSet,
}

impl Clone for CycleState {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.iter().map(|(id, data)| (*id, data.as_ref().clone_boxed())).collect(),
            skip_filters: self.skip_filters,
            skip_scores: self.skip_scores,
        }
    }
}

impl CycleState {
    /// Begins a new cycle.
    pub(crate) fn reset(&mut self) {
        (self.skip_filters, self.skip_scores) = (PluginSet::default(), PluginSet::default());
    }

    /// The state of type `T`, made on first use, left as it was by the previous cycle otherwise.
    pub fn get_or_default<T: Any + Clone + Send + Default>(&mut self) -> &mut T {
        let id = TypeId::of::<T>();
        let position = self.entries.iter().position(|(i, _)| *i == id).unwrap_or_else(|| {
            self.entries.push((id, Box::new(T::default())));
            self.entries.len() - 1
        });
        self.entries[position].1.as_mut().as_any_mut().downcast_mut().expect("entries are keyed by their type")
    }

    /// The state of type `T`.
    ///
    /// # Panics
    /// When the plugin's earlier extension point did not make it: the framework runs them in order.
    pub fn expect<T: Any>(&self) -> &T {
        let id = TypeId::of::<T>();
        let entry = self.entries.iter().find(|(i, _)| *i == id);
        let (_, data) = entry.expect("PreFilter or PreScore makes the state that Filter or Score reads");
        data.as_ref().as_any().downcast_ref().expect("entries are keyed by their type")
    }

    /// The state of type `T`, to change it.
    ///
    /// # Panics
    /// As [`CycleState::expect`].
    pub fn expect_mut<T: Any>(&mut self) -> &mut T {
        let id = TypeId::of::<T>();
        let entry = self.entries.iter_mut().find(|(i, _)| *i == id);
        let (_, data) = entry.expect("PreFilter or PreScore makes the state that Filter or Score reads");
        data.as_mut().as_any_mut().downcast_mut().expect("entries are keyed by their type")
    }
}
