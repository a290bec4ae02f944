//! The gauntlet and the wire from outside: real servers, real clients, webhooks started by the tests.

mod admission;
mod admission_holes;
mod audit;
mod authentication;
mod authorization;
mod body;
mod decode;
mod encryption;
mod flow_control;
mod forms;
mod holes;
mod http;
mod kinds;
mod kube;
mod kubectl;
mod ownership;
mod patch_texts;
mod patches;
mod plugins;
mod policies;
mod python;
mod server;
mod services;
mod transcript;
mod webhooks;
mod writes;
