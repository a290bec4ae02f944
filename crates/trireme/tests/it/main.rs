//! Tests of the real binary as a user starts it.

mod command;
mod kill;
mod load;
