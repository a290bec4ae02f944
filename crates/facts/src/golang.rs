//! The names under which Go knows fields, and the order in which it writes them: its decoder says the names when a value is of the
//! wrong type, and messages that show an object show it in that order. Only then are they read.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::types::{Field, Type};

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

/// The fields of a type in the order in which Go writes them into JSON.
pub fn go_order(of: &Type) -> Vec<&Field> {
    static ORDERS: OnceLock<HashMap<&'static str, Vec<&'static str>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| read_orders(include_str!("../order.txt")));
    let mut fields: Vec<&Field> = of.fields().iter().collect();
    match orders.get(&*of.name) {
        Some(order) => fields.sort_by_key(|field| order.iter().position(|name| *name == field.name)),
        None => fields.sort_by_key(|field| match (&*field.name, field.proto) {
            ("kind", None) => (0, 0),
            ("apiVersion", None) => (1, 0),
            (_, proto) => (2, proto.map_or(u32::MAX, |proto| proto.number)),
        }),
    }
    fields
}

fn read_orders(text: &'static str) -> HashMap<&'static str, Vec<&'static str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(name, fields)| (name, fields.split(',').collect())).collect()
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
    fn every_order_names_each_field_of_its_type_once() {
        for (name, mut order) in read_orders(include_str!("../order.txt")) {
            let ty = crate::type_named(name).unwrap_or_else(|| panic!("no type {name}"));
            let mut fields: Vec<&str> = ty.def().fields().iter().map(|field| &*field.name).collect();
            order.sort_unstable();
            fields.sort_unstable();
            assert_eq!(order, fields, "{name}");
        }
    }

    #[test]
    fn fields_come_in_the_order_of_the_struct() {
        let names = |name: &str| -> Vec<&'static str> {
            let ty = crate::type_named(name).expect("a type").def();
            go_order(ty).into_iter().map(|field| &*field.name).collect()
        };
        assert_eq!(names("io.k8s.api.core.v1.Pod"), ["kind", "apiVersion", "metadata", "spec", "status"]);
        let port = names("io.k8s.api.core.v1.ServicePort");
        assert_eq!(port, ["name", "protocol", "appProtocol", "port", "targetPort", "nodePort"]);
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
