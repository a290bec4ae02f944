//! Labels and annotations, in all the places that field specs name.

use std::collections::BTreeMap;

use machinery::{Value, value};

use crate::Error;
use crate::config::Config;
use crate::fields::{FieldSpec, Make, merge};
use crate::kustomization::Label;
use crate::resources::Resources;

/// Sets entries of the maps at the specs.
pub fn set(resources: &mut Resources, pairs: &BTreeMap<String, String>, specs: &[FieldSpec]) -> Result<(), Error> {
    for resource in resources.iter_mut() {
        for (key, text) in pairs {
            for spec in specs {
                spec.apply(resource, Make::Map, &mut |field| {
                    if !field.is_object() && !field.is_null() {
                        return Err(Error::new("wrong Node Kind for  expected: MappingNode was ScalarNode"));
                    }
                    value::as_object_mut(field).insert(key.clone(), Value::String(text.clone()));
                    Ok(())
                })?;
            }
        }
    }
    Ok(())
}

/// The places of an entry of `labels`.
pub fn specs(label: &Label, config: &Config) -> Result<Vec<FieldSpec>, Error> {
    let failed = |error: Error| error.within("failed to merge labels");
    let mut specs = label.fields.clone();
    merge(&mut specs, &config.labels).map_err(failed)?;
    if label.include_selectors {
        merge(&mut specs, &config.common_labels).map_err(failed)?;
        return Ok(specs);
    }
    if label.include_templates {
        merge(&mut specs, &config.template_labels)
            .map_err(|error| error.within("failed to merge template fieldSpec"))?;
    }
    let metadata = FieldSpec { path: "metadata/labels".to_owned(), create: true, ..FieldSpec::default() };
    merge(&mut specs, &[metadata]).map_err(failed)?;
    Ok(specs)
}
