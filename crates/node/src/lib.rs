//! The node's hands: everything the kubelet, the service proxy and the pod network need from the machine itself.
//!
//! This crate knows no API objects. It is the only place in the workspace that runs other programs or makes system
//! calls by itself, so what Trireme can do to a machine is readable here and nowhere else.
#![warn(missing_docs)]

pub mod cri;
pub mod elf;
pub mod nft;
pub mod oci;
pub mod run;
pub mod tar;
