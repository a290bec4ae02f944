//! informer.
