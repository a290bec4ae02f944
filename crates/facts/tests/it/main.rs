//! The table against the facts it is written from, and spot checks of what readers rely on.

mod generated;
mod rbac;
mod sources;
mod spots;
