//! Where transformers look: the built-in field specs, those of configuration files, and those that custom resource definitions
//! ask for.

use std::sync::LazyLock;

use machinery::codec::{Limits, yaml};
use serde::Deserialize;

use crate::Error;
use crate::fields::{FieldSpec, merge};
use crate::files::Root;
use crate::id::Gvk;
use crate::kustomization::{in_go_words, without_nulls};

/// Fields that hold names of objects of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NameReference {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub field_specs: Vec<FieldSpec>,
}

impl NameReference {
    pub fn gvk(&self) -> Gvk {
        Gvk { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    pub name_prefix: Vec<FieldSpec>,
    pub name_suffix: Vec<FieldSpec>,
    pub namespace: Vec<FieldSpec>,
    pub common_labels: Vec<FieldSpec>,
    pub labels: Vec<FieldSpec>,
    pub template_labels: Vec<FieldSpec>,
    pub common_annotations: Vec<FieldSpec>,
    pub name_reference: Vec<NameReference>,
    pub var_reference: Vec<FieldSpec>,
    pub images: Vec<FieldSpec>,
    pub replicas: Vec<FieldSpec>,
}

static DEFAULT: LazyLock<Config> = LazyLock::new(built_in);

/// Reads the table of field specs.
fn built_in() -> Config {
    let mut config = Config::default();
    let mut section = "";
    for line in include_str!("data/fields.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let words: Vec<String> =
            line.split(' ').map(|word| if word == "." { String::new() } else { word.to_owned() }).collect();
        if let [arrow, group, version, kind] = &words[..] {
            debug_assert_eq!(arrow, ">");
            let (group, version, kind) = (group.clone(), version.clone(), kind.clone());
            config.name_reference.push(NameReference { group, version, kind, field_specs: Vec::new() });
            continue;
        }
        let [path, create, group, version, kind] = <[String; 5]>::try_from(words).expect("a row has five words");
        let spec = FieldSpec { group, version, kind, path, create: create == "+" };
        config.section(section).push(spec);
    }
    config.sort();
    config
}

impl Config {
    pub fn built_in() -> Self {
        DEFAULT.clone()
    }

    /// The built-in field specs and those of configuration files.
    pub fn load(root: &Root, paths: &[String]) -> Result<Self, Error> {
        let mut config = Self::built_in();
        for path in paths {
            let content = root.read(path)?;
            let decoded = yaml::decode(&content, Limits::default()).map_err(|error| Error::new(error.message))?;
            let read = serde_json::from_value(without_nulls(decoded.value));
            let read: Self = read.map_err(|error| Error::new(in_go_words(&error.to_string())))?;
            config.merge(&read)?;
        }
        Ok(config)
    }

    fn section(&mut self, name: &str) -> &mut Vec<FieldSpec> {
        match name {
            "namePrefix" => &mut self.name_prefix,
            "nameSuffix" => &mut self.name_suffix,
            "namespace" => &mut self.namespace,
            "commonLabels" => &mut self.common_labels,
            "templateLabels" => &mut self.template_labels,
            "commonAnnotations" => &mut self.common_annotations,
            "images" => &mut self.images,
            "replicas" => &mut self.replicas,
            "varReference" => &mut self.var_reference,
            _ => &mut self.name_reference.last_mut().expect("references follow their kind").field_specs,
        }
    }

    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        for (own, more) in [
            (&mut self.name_prefix, &other.name_prefix),
            (&mut self.name_suffix, &other.name_suffix),
            (&mut self.namespace, &other.namespace),
            (&mut self.common_annotations, &other.common_annotations),
            (&mut self.common_labels, &other.common_labels),
            (&mut self.labels, &other.labels),
            (&mut self.template_labels, &other.template_labels),
            (&mut self.var_reference, &other.var_reference),
            (&mut self.images, &other.images),
            (&mut self.replicas, &other.replicas),
        ] {
            merge(own, more)?;
        }
        for reference in &other.name_reference {
            self.refer(reference)?;
        }
        self.sort();
        Ok(())
    }

    /// Adds fields that hold names of a kind.
    pub fn refer(&mut self, reference: &NameReference) -> Result<(), Error> {
        let gvk = reference.gvk();
        match self.name_reference.iter_mut().find(|known| known.gvk() == gvk) {
            Some(known) => merge(&mut known.field_specs, &reference.field_specs),
            None => {
                self.name_reference.push(reference.clone());
                Ok(())
            }
        }
    }

    /// Kinds that others need come first, as in the output.
    fn sort(&mut self) {
        for specs in [
            &mut self.name_prefix,
            &mut self.name_suffix,
            &mut self.namespace,
            &mut self.common_labels,
            &mut self.labels,
            &mut self.template_labels,
            &mut self.common_annotations,
            &mut self.var_reference,
            &mut self.images,
            &mut self.replicas,
        ] {
            specs.sort_by_cached_key(|spec| crate::transform::order::key(&spec.gvk()));
        }
        self.name_reference.sort_by_cached_key(|reference| crate::transform::order::key(&reference.gvk()));
    }
}
