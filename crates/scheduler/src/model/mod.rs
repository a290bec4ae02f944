//! What a scheduling cycle looks at: nodes, pods and the objects that plugins ask for, as small as scheduling needs them.
//!
//! One owner changes the model between cycles and lends it, unchanged, to a cycle.

pub mod classes;
pub mod cluster;
pub mod node;
pub mod objects;
pub mod pod;
pub mod resources;
pub mod topology;
