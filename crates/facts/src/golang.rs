//! The names under which Go knows fields: its decoder says them when a value is of the wrong type, and only then are they read.

use std::collections::HashMap;
use std::sync::OnceLock;

/// What the schema of a field does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoField {
    /// The name of its type, where that is more than what the schema says: `v1.Protocol`, `[]v1.IPFamily`.
    pub ty: Option<&'static str>,
    /// The structs that stand between the type and the field, dotted; empty for a field of the type's own.
    pub embedded: &'static str,
}

/// The field of the type of this OpenAPI name, where there is anything to say about it.
pub fn go_field(ty: &str, field: &str) -> Option<GoField> {
    static FIELDS: OnceLock<HashMap<&'static str, HashMap<&'static str, GoField>>> = OnceLock::new();
    FIELDS.get_or_init(|| read(include_str!("../golang.txt"))).get(ty)?.get(field).copied()
}

fn read(text: &'static str) -> HashMap<&'static str, HashMap<&'static str, GoField>> {
    let mut types: HashMap<_, HashMap<_, _>> = HashMap::new();
    let mut current = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(line) = line.strip_prefix(' ') else {
            current = line;
            continue;
        };
        let mut words = line.split(' ');
        let (Some(field), Some(ty)) = (words.next(), words.next()) else { continue };
        let ty = Some(ty).filter(|ty| *ty != "-");
        let embedded = words.next().unwrap_or_default();
        types.entry(current).or_default().insert(field, GoField { ty, embedded });
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_field_is_one_of_its_type() {
        for (name, fields) in read(include_str!("../golang.txt")) {
            // What is not published has no error that could name it.
            let Some(ty) = crate::type_named(name) else { continue };
            for field in fields.keys() {
                assert!(ty.def().field(field).is_some(), "{name} has no field {field}");
            }
        }
    }

    #[test]
    fn names_and_structs_are_found() {
        let service = "io.k8s.api.core.v1.ServiceSpec";
        assert_eq!(go_field(service, "ipFamilies").and_then(|field| field.ty), Some("[]v1.IPFamily"));
        assert_eq!(go_field(service, "clusterIP"), None);
        let probe = go_field("io.k8s.api.core.v1.Probe", "exec");
        assert_eq!(probe, Some(GoField { ty: None, embedded: "ProbeHandler" }));
    }
}
