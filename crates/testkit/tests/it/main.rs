//! Tests of a whole API server: with our client on both transports, with a real kubectl, and with bad input.

mod bad_input;
mod bad_transport;
mod client_contract;
mod conformance;
mod deletion;
mod http;
mod kubectl;
mod reads;
mod set_aside;
mod writes;
