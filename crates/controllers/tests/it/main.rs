//! The controllers together, against a simulation of the API server with a clock that tests advance; and single ones, each with its own identity
//! and rights, against a real API server (`real`).

mod api;
mod autoscaling;
mod cascade;
mod cluster;
mod more_workloads;
mod poison;
mod promises;
mod real;
mod seeds;
mod workloads;
mod world;
