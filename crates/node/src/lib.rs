//! The node's hands: everything the kubelet, the service proxy and the pod network need from the machine itself.
//!
//! This crate knows no API objects. It is the only place in the workspace that runs other programs or makes system
//! calls by itself, so what Trireme can do to a machine is readable here and nowhere else.
//!
//! - [`cri`] speaks to a container runtime; [`containerd`] keeps one of our own, [`etcd`] a store; [`oci`], [`tar`] and [`elf`] make images;
//! - [`cgroups`], [`mounts`], [`files`] and [`process`] are the kernel's objects a pod is made of;
//! - [`private`] keeps what is on disk from the machine's other users; [`selinux`] says which labels files have;
//! - [`logind`] tells that the machine is about to be shut down;
//! - [`cni`], [`net`], [`nft`] and [`bpf`] are its network; [`run`] runs other programs.

pub mod bpf;
pub mod cgroups;
pub mod cni;
pub mod containerd;
pub mod cri;
mod daemon;
pub mod elf;
pub mod etcd;
pub mod files;
pub mod logind;
pub mod mount_program;
pub mod mounts;
pub mod net;
pub mod nft;
pub mod oci;
pub mod private;
pub mod process;
pub mod run;
pub mod selinux;
pub mod tar;
