//! The controllers together, against a simulation of the API server with a clock that tests advance.

mod api;
mod autoscaling;
mod cascade;
mod cluster;
mod more_workloads;
mod seeds;
mod workloads;
mod world;
