//! What a kustomization and those below it have come to so far.

use crate::Error;
use crate::config::Config;
use crate::resources::Resources;
use crate::variables::Variables;

#[derive(Debug, Clone, Default)]
pub struct Accumulator {
    pub resources: Resources,
    pub config: Config,
    pub variables: Variables,
}

impl Accumulator {
    pub fn merge(&mut self, mut other: Self) -> Result<(), Error> {
        self.resources.append_all(other.resources.take())?;
        self.config.merge(&other.config)?;
        self.variables.merge(other.variables)
    }
}
