//! What commands of a command line are made of, before there is any: flags, kubeconfigs, discovery, the session with a server, finding
//! objects, printing them, and the words in which something failed. Upstream has it under the same name.
//!
//! A [`command`] reads its options from the [`flags`], asks the [`session`] for the configuration, the server and what it serves ([`config`],
//! [`discovery`]), finds objects with the [`resource`] builder and shows them with [`mod@print`]. Everything that decides or formats is pure; what talks
//! to the server goes through the session. Knows no command.

pub mod api;
pub mod command;
pub mod config;
pub mod discovery;
pub mod error;
pub mod flags;
pub mod help;
pub mod kept;
pub mod patch;
pub mod preferences;
pub mod print;
pub mod program;
mod refusals;
pub mod remote;
pub mod report;
pub mod resource;
pub mod session;
pub mod streams;
pub mod trace;
pub mod version;
