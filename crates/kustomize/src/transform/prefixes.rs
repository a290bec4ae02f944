//! Prefixes and suffixes of names.

use machinery::Value;

use crate::Error;
use crate::fields::{FieldSpec, Make};
use crate::id::Gvk;
use crate::paths::plain;
use crate::resources::Resources;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Prefix,
    Suffix,
}

/// Names that others rely on: they are what they are.
fn is_fixed(gvk: &Gvk) -> bool {
    matches!(&*gvk.kind, "CustomResourceDefinition" | "Namespace")
        || (gvk.kind == "APIService" && gvk.group == "apiregistration.k8s.io")
}

pub fn add(resources: &mut Resources, end: End, text: &str, specs: &[FieldSpec]) -> Result<(), Error> {
    for resource in resources.iter_mut() {
        let original = resource.original_id();
        if is_fixed(&original.gvk) {
            continue;
        }
        for spec in specs.iter().filter(|spec| original.gvk.is_selected(&spec.gvk())) {
            if spec.path == "metadata/name" && !text.is_empty() {
                match end {
                    End::Prefix => resource.prefixes.push(text.to_owned()),
                    End::Suffix => resource.suffixes.push(text.to_owned()),
                }
                resource.remember_id();
            }
            spec.apply(resource, Make::Scalar, &mut |field| {
                let name = if field.is_null() { String::new() } else { plain(field) };
                *field = Value::String(match end {
                    End::Prefix => format!("{text}{name}"),
                    End::Suffix => format!("{name}{text}"),
                });
                Ok(())
            })?;
        }
    }
    Ok(())
}
