//! Between bytes and trees: JSON, YAML, protobuf and CBOR.

/// The deepest nesting of lists and objects that is read or made. Upstream stops at 10,000 levels; no object of any kind
/// comes near this lower bound, which keeps every recursive walk over a tree within a small stack.
pub const MAX_DEPTH: usize = 512;
