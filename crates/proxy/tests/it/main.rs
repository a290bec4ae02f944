//! The rules in a real kernel, in network namespaces made for each test: no packet leaves them.

mod agent;
mod net;
mod rules;
mod scale;
mod traffic;
