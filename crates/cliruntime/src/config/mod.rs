//! kubeconfig: the files ([`mod@file`]), their merging and who wins ([`load`]), what a client makes of the result ([`connect`]), and
//! writing changes back into the file that they came from ([`modify`]), and who is in between ([`proxy`]).

pub mod connect;
pub mod file;
pub mod load;
pub mod modify;
pub mod proxy;
pub mod types;

pub use connect::Connection;
pub use file::{Config, Entry, Section};
pub use load::Access;
