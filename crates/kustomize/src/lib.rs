//! `kustomize build` as kubectl embeds it: a directory with a kustomization file becomes a stream of YAML documents.
//!
//! [`build`] reads a [`target::Target`], which accumulates what its resources, generators and components are, and lets its
//! transformers change them; bases do the same first, one inside the other. What has to be known about all of them at
//! once, hashes, references to names and variables, comes last. Trees are JSON: the output has its keys sorted, so the order and
//! the comments of the input do not matter.
//!
//! Only files below the root of a kustomization are read (see [`files`]), and nothing is run or fetched: remote bases, helm charts and
//! plug-ins that are not built in are refused.

mod accumulator;
mod config;
mod crds;
mod documents;
mod fields;
mod files;
mod generate;
mod id;
mod kustomization;
mod merge;
mod names;
mod origin;
mod paths;
mod plugins;
mod resource;
mod resources;
mod schema;
mod selector;
mod target;
mod transform;
mod variables;

use std::path::Path;

pub use files::Restrictor;
pub use generate::content_hash;
use target::Target;

/// What is wrong with a kustomization, in upstream's words where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The same error, and before it what was being done.
    pub(crate) fn within(self, what: impl std::fmt::Display) -> Self {
        Self(format!("{what}: {self}"))
    }
}

/// What the command line says besides the directory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    pub restrictor: Restrictor,
    /// Whether every object is labelled as managed by kustomize.
    pub managed_by_label: bool,
    /// Whether objects stay in the order in which they were read, unless the kustomization says otherwise.
    pub keep_order: bool,
}

/// What a build made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The objects, as a stream of YAML documents.
    pub yaml: String,
    /// Lines for standard error, such as those about fields that are deprecated.
    pub warnings: Vec<String>,
}

/// Builds the kustomization in a directory. Warnings that were found before an error are lost with it, but for those that
/// `warn` was told of as they came.
pub fn build(directory: &Path, options: Options, warn: &mut dyn FnMut(&str)) -> Result<Built, Error> {
    let mut warnings = Vec::new();
    let mut note = |line: &str| {
        warn(line);
        warnings.push(line.to_owned());
    };
    let root = files::Root::open(directory, options.restrictor)?;
    let target = Target::load(root, &mut note)?;
    let resources = target.build(options, &mut note)?;
    let documents: Vec<String> =
        resources.iter().map(|resource| machinery::codec::yaml::encode(&resource.value)).collect();
    Ok(Built { yaml: documents.join("---\n"), warnings })
}
