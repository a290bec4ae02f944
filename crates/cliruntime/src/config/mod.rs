//! kubeconfig: the files ([`mod@file`]), their merging and who wins ([`load`]), what a client makes of the result ([`connect`]), and
//! writing changes back into the file that they came from ([`modify`]), who is in between ([`proxy`]), and what a
//! pod has instead of a file ([`inside`]).

pub mod connect;
pub mod file;
pub mod inside;
pub mod load;
pub mod modify;
mod plugin;
pub mod proxy;
pub mod types;

pub use connect::Connection;
pub use file::{Config, Entry, Section};
pub use inside::Inside;
pub use load::Access;
