//! Where spans of requests go: `--tracing-config-file`.

use std::path::PathBuf;

use apiserver::gates::configuration;
use clap::Args;
use hops::export::Part;
use serde_json::json;

use super::{Error, wrong};

const OPTION: &str = "tracing-config-file";

/// As the command line says.
#[derive(Debug, Args)]
#[group(skip)]
#[command(next_help_heading = "Tracing")]
pub struct Options {
    /// File with apiserver tracing configuration (a TracingConfiguration): the collector's address and how many requests are traced.
    #[arg(long, value_name = "FILE")]
    pub tracing_config_file: Option<PathBuf>,
}

impl Options {
    /// What the file says.
    pub fn read(&self) -> Result<Option<otlp::Configuration>, Error> {
        let Some(path) = &self.tracing_config_file else { return Ok(None) };
        if !path.exists() {
            return Err(wrong(OPTION, format!("tracing-config-file {} does not exist", path.display())));
        }
        let unreadable = |why: String| wrong(OPTION, format!("failed to read tracing config: {why}"));
        let shape = json!({"endpoint": null, "samplingRatePerMillion": null});
        let (mut tree, _) = configuration::load(path, "TracingConfiguration", &shape).map_err(unreadable)?;
        if let Some(fields) = tree.as_object_mut() {
            fields.retain(|name, value| !value.is_null() && shape.get(name).is_some());
        }
        let read: otlp::Configuration = serde_json::from_value(tree).map_err(|error| unreadable(error.to_string()))?;
        let errors = read.check("");
        if !errors.is_empty() {
            let why = configuration::together(&errors);
            return Err(wrong(OPTION, format!("failed to validate tracing configuration: {why}")));
        }
        Ok(Some(read))
    }
}

/// Sends spans from now on.
pub fn start(configuration: &otlp::Configuration, instance: &str) -> Result<Option<otlp::Sender>, Error> {
    otlp::start(Part::ControlPlane, configuration, instance).map_err(|error| wrong(OPTION, error))
}
