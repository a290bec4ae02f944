//! Tests of the real binary as a user starts it.

mod addons;
mod audit;
mod auth;
mod balancer;
mod clients;
mod cluster;
mod command;
mod controllers;
mod depth;
mod endpoint;
mod etcd;
mod full_disk;
mod idle;
mod kill;
mod load;
mod node;
mod poison;
mod private;
mod scheduler;
mod stalls;
mod storage;
mod tokens;
mod walk;
mod workloads;
mod workloads_cascade;
mod workloads_nodes;
