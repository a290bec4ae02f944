//! Upstream's internal types: messages about a value that is a struct show it as one of these, with every field.

use std::collections::HashMap;
use std::sync::OnceLock;

/// A field of an internal type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InternalField {
    /// The name under which it is shown.
    pub name: &'static str,
    /// Its name in JSON; empty for one that has the name it is shown under, but for its first letter.
    json: &'static str,
    /// What it is, in the letters of `internal.txt`.
    pub code: &'static str,
    /// Whether it is left out where it is empty.
    pub optional: bool,
}

impl InternalField {
    /// The field of an object as JSON has it.
    pub fn of<'a, V>(&self, object: impl Fn(&str) -> Option<&'a V>) -> Option<&'a V> {
        if !self.json.is_empty() {
            return object(self.json);
        }
        let mut name = self.name.to_owned();
        name[..1].make_ascii_lowercase();
        object(&name)
    }
}

/// The fields of an internal type, such as `core.PodSpec`, in order.
pub fn internal_type(name: &str) -> Option<&'static [InternalField]> {
    static TYPES: OnceLock<HashMap<&'static str, Vec<InternalField>>> = OnceLock::new();
    TYPES.get_or_init(|| read(include_str!("../internal.txt"))).get(name).map(Vec::as_slice)
}

fn read(text: &'static str) -> HashMap<&'static str, Vec<InternalField>> {
    let mut types: HashMap<_, Vec<_>> = HashMap::new();
    let mut current = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(line) = line.strip_prefix(' ') else {
            current = line;
            types.entry(current).or_default();
            continue;
        };
        let mut words = line.split(' ');
        let (Some(name), Some(json), Some(code)) = (words.next(), words.next(), words.next()) else { continue };
        let (optional, name) = match name.strip_prefix('?') {
            Some(name) => (true, name),
            None => (false, name),
        };
        let json = if json == "=" { "" } else { json };
        types.entry(current).or_default().push(InternalField { name, json, code, optional });
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_is_named_is_there() {
        let types = read(include_str!("../internal.txt"));
        for (name, fields) in &types {
            for field in fields {
                let code = field.code.trim_start_matches(['*', '[', ']', '{', '}']);
                assert!(
                    matches!(code, "\"" | "0" | "f" | "q" | "i" | "t" | "m" | "j") || types.contains_key(code),
                    "{name}.{}: {code}",
                    field.name
                );
            }
        }
    }

    #[test]
    fn fields_are_found_by_their_names_in_json() {
        let spec = internal_type("core.PodSpec").expect("a type");
        let object = HashMap::from([("dnsPolicy", "a"), ("volumes", "b"), ("serviceAccount", "c")]);
        let found: Vec<_> = spec.iter().filter_map(|field| field.of(|name| object.get(name))).collect();
        assert_eq!(found, [&"b", &"a", &"c"]);
    }
}
