//! What changes resources: one file per transformer. Each can be asked for by a field of the kustomization, or by name.

pub mod images;
pub mod labels;
pub mod namespace;
pub mod order;
pub mod patches;
pub mod prefixes;
pub mod replacements;
pub mod replicas;
