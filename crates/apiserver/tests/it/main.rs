//! The gauntlet from outside: real servers, real kubectl, webhooks started by the tests.

mod admission;
mod admission_holes;
mod audit;
mod authentication;
mod authorization;
mod body;
mod decode;
mod encryption;
mod flow_control;
mod holes;
mod plugins;
mod policies;
mod server;
mod webhooks;
