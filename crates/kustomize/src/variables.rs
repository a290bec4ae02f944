//! Variables (deprecated): `$(NAME)` in certain fields becomes the value of a field of some object.

use std::collections::{BTreeMap, BTreeSet};

use machinery::Value;

use crate::Error;
use crate::fields::{FieldSpec, Make};
use crate::id::{Gvk, Id};
use crate::kustomization::{Referred, Var};
use crate::paths;
use crate::resources::Resources;

const DEFAULT_PATH: &str = "metadata.name";

/// The variables of a build by their names.
#[derive(Debug, Clone, Default)]
pub struct Variables(BTreeMap<String, Var>);

impl Variables {
    /// Adds variables, and marks the objects that they are read from.
    pub fn add(&mut self, vars: &[Var], resources: &mut Resources) -> Result<(), Error> {
        for var in vars {
            let wanted =
                Id { gvk: referred(var), name: var.objref.name.clone(), namespace: var.objref.namespace.clone() };
            let exact = !wanted.namespace.is_empty() || wanted.gvk.is_cluster_scoped();
            let found = resources.matching(|id| if exact { wanted.same_object(id) } else { wanted.same_name(id) });
            match found[..] {
                [] => {}
                [at] => resources.get_mut(at).variables.push(var.name.clone()),
                _ => {
                    let (count, name) = (found.len(), &var.name);
                    return Err(Error::new(format!(
                        "found {count} resId matches for var {name} (unable to disambiguate)"
                    )));
                }
            }
            self.insert(var.clone())?;
        }
        Ok(())
    }

    fn insert(&mut self, var: Var) -> Result<(), Error> {
        if self.0.contains_key(&var.name) {
            return Err(Error::new(format!("var '{}' already encountered", var.name)));
        }
        self.0.insert(var.name.clone(), var);
        Ok(())
    }

    pub fn merge(&mut self, other: Self) -> Result<(), Error> {
        other.0.into_values().try_for_each(|var| self.insert(var))
    }

    /// Puts the values where the variables are named.
    pub fn resolve(
        &self,
        resources: &mut Resources,
        specs: &[FieldSpec],
        warn: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let mut values = BTreeMap::new();
        for var in self.0.values() {
            values.insert(var.name.as_str(), value_of(var, resources)?);
        }
        if values.is_empty() {
            return Ok(());
        }
        let mut used = BTreeSet::new();
        for resource in resources.iter_mut() {
            for spec in specs {
                spec.apply(resource, Make::Nothing, &mut |field| set(field, &values, &mut used))?;
            }
        }
        let unused: Vec<&str> = values.keys().copied().filter(|name| !used.contains(*name)).collect();
        if !unused.is_empty() {
            warn(&format!("well-defined vars that were never replaced: {}", unused.join(",")));
        }
        Ok(())
    }
}

fn referred(var: &Var) -> Gvk {
    let Referred { api_version, group, version, kind, .. } = &var.objref;
    if api_version.is_empty() {
        return Gvk { group: group.clone(), version: version.clone(), kind: kind.clone() };
    }
    Gvk::new(api_version, kind)
}

/// A variable as Go prints it.
fn shown(var: &Var, path: &str) -> String {
    format!("{{{} {} {{{path}}}}}", var.name, referred(var))
}

fn value_of(var: &Var, resources: &Resources) -> Result<Value, Error> {
    let path = if var.fieldref.field_path.is_empty() { DEFAULT_PATH } else { &var.fieldref.field_path };
    let name = &var.name;
    let resource = resources.iter().find(|resource| resource.variables.contains(name)).ok_or_else(|| {
        Error::new(format!("var '{}' cannot be mapped to a field in the set of known resources", shown(var, path)))
    })?;
    let steps = paths::steps(&path.replace('[', ".").replace(']', "").replace("..", "."));
    paths::lookup(&resource.value, &steps).cloned().ok_or_else(|| {
        Error::new(format!("field specified in var '{}' not found in corresponding resource", shown(var, path)))
    })
}

type Values<'a> = BTreeMap<&'a str, Value>;

fn set(field: &mut Value, values: &Values<'_>, used: &mut BTreeSet<String>) -> Result<(), Error> {
    match field {
        Value::String(text) => *field = replaced(text, values, used),
        Value::Object(fields) => {
            for inner in fields.values_mut() {
                if let Value::String(text) = inner {
                    *inner = replaced(text, values, used);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let Value::String(text) = item else {
                    return Err(Error::new("invalid value type expect a string"));
                };
                *item = replaced(text, values, used);
            }
        }
        _ => {}
    }
    Ok(())
}

/// A text with its variables replaced. One that is a variable and nothing else gets the value with its type.
fn replaced(text: &str, values: &Values<'_>, used: &mut BTreeSet<String>) -> Value {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let named = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        if let Some(escaped) = after.strip_prefix('$') {
            out.push('$');
            rest = escaped;
        } else if let Some((name, behind)) = named {
            let known = values.get(name).filter(|value| !value.is_object() && !value.is_array() && !value.is_null());
            if let Some(value) = known {
                used.insert(name.to_owned());
                if text == format!("$({name})") {
                    return value.clone();
                }
                out.push_str(&paths::plain(value));
            } else {
                out.push_str(&format!("$({name})"));
            }
            rest = behind;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    Value::String(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_are_replaced_in_texts() {
        let values = Values::from([("A", json!("x")), ("N", json!(7))]);
        let mut used = BTreeSet::new();
        for (text, expect) in [
            ("$(A)", json!("x")),
            ("$(N)", json!(7)),
            ("a-$(A)-$(N)", json!("a-x-7")),
            ("$$(A)", json!("$(A)")),
            ("$(B) $ $(", json!("$(B) $ $(")),
        ] {
            assert_eq!(replaced(text, &values, &mut used), expect, "{text}");
        }
    }
}
