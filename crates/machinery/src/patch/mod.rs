//! patch.
