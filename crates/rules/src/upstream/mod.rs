//! What becomes here of the settings that upstream has: its flags, and the fields of its configuration files. Tables say it, one setting per line, so that
//! none is forgotten: each is honoured, changes nothing here for a reason, is taken at some values only, or is refused with the reason.
//!
//! A line has whose setting it is, its name (`?` at the end: true or false), what becomes of it, and why:
//!
//! ```text
//! acs   profiling?         nothing          there is no /debug/pprof: that is Go's
//! a     secure-port        =https-port
//! a     watch-cache?       only=true        reads and watches are answered from it
//! ```

pub mod file;
pub mod gates;

use serde_json::Value;

/// What becomes of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It is ours, under this name.
    Honoured(&'static str),
    /// It is a field of this name in a configuration file, in this shape.
    Field(&'static str, Shape),
    /// It says which feature gates are open.
    Gates,
    /// Any value is taken: here it changes nothing.
    Nothing,
    /// These values are taken, separated by `|`: they are how it is here.
    Only(&'static str),
    Refused,
}

/// How the text of a flag becomes the value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// As it is, if it is text; a number or a truth otherwise.
    Plain,
    Text,
    /// Separated by commas.
    List,
    /// `key=value`, separated by commas; or with another sign than `=`.
    Map(char),
    /// `key=value:effect` or `key:effect`, separated by commas.
    Taints,
}

impl Shape {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "plain" => Self::Plain,
            "text" => Self::Text,
            "list" => Self::List,
            "map" => Self::Map('='),
            "map<" => Self::Map('<'),
            "taints" => Self::Taints,
            _ => return None,
        })
    }

    /// The value that a text stands for.
    pub fn value(self, text: &str) -> Result<Value, String> {
        let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Ok(match self {
            Self::Text => text.into(),
            Self::Plain => match serde_json::from_str(text) {
                Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
                _ => text.into(),
            },
            Self::List => parts().map(Value::from).collect(),
            Self::Taints => {
                let taint = |part: &str| {
                    let (rest, effect) = part.rsplit_once(':').ok_or_else(|| format!("invalid taint spec: {part}"))?;
                    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
                    Ok(serde_json::json!({"key": key, "value": value, "effect": effect}))
                };
                parts().map(taint).collect::<Result<Value, String>>()?
            }
            Self::Map(sign) => {
                let pair = |part: &str| {
                    let (key, value) = part.split_once(sign)?;
                    Some((key.trim().to_owned(), Value::from(value.trim())))
                };
                let pair =
                    |part: &str| pair(part).ok_or_else(|| format!("malformed pair {part:?}: give key{sign}value"));
                Value::Object(parts().map(pair).collect::<Result<_, _>>()?)
            }
        })
    }
}

/// A setting of upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Whose it is, a letter for each component.
    pub whose: &'static str,
    pub name: &'static str,
    /// Whether it is true or false, and needs no value to be true.
    pub switch: bool,
    pub doing: Doing,
    /// Why, in words for whoever set it.
    pub reason: &'static str,
}

impl Setting {
    fn read(line: &'static str) -> Option<Self> {
        let (whose, rest) = line.split_once(char::is_whitespace)?;
        let (name, rest) = rest.trim_start().split_once(char::is_whitespace)?;
        let (doing, reason) = rest.trim_start().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
        let (name, switch) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
        let doing = match doing {
            "=" => Doing::Honoured(name),
            "gates" => Doing::Gates,
            "nothing" => Doing::Nothing,
            "refused" => Doing::Refused,
            other => match (other.strip_prefix("only="), other.strip_prefix('='), other.strip_prefix('.')) {
                (Some(values), ..) => Doing::Only(values),
                (_, Some(ours), _) => Doing::Honoured(ours),
                (.., Some(field)) => {
                    let (field, shape) = field.split_once(':')?;
                    Doing::Field(field, Shape::named(shape)?)
                }
                _ => return None,
            },
        };
        Some(Self { whose, name, switch, doing, reason: reason.trim() })
    }

    /// Whether this value can be taken, if the setting is not honoured.
    pub fn check(&self, value: &str) -> Result<(), String> {
        match self.doing {
            Doing::Refused => Err(self.reason.to_owned()),
            Doing::Only(values) if !values.split('|').any(|one| one == value) => {
                Err(format!("{value:?} is not possible, only {}: {}", values.replace('|', " or "), self.reason))
            }
            Doing::Gates => gates::check(value),
            _ => Ok(()),
        }
    }
}

/// Reads a table; lines that begin with `#` are for people.
///
/// # Panics
/// If a line is none: tables are compiled in, and a test reads each.
pub fn table(text: &'static str) -> Vec<Setting> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(|line| Setting::read(line).unwrap_or_else(|| panic!("no setting: {line}"))).collect()
}

/// The setting of this name that is one of these components', those that come first before the others.
pub fn find<'a>(table: &'a [Setting], whose: &str, name: &str) -> Option<&'a Setting> {
    whose.chars().find_map(|whose| table.iter().find(|row| row.name == name && row.whose.contains(whose)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# for people\n\nacs  profiling?  nothing  that is Go's\na secure-port =https-port\na same =\n\
        a watch-cache? only=true it is always there\nk eviction-hard .evictionHard:map<\na odd refused nobody has it\n\
        a feature-gates gates\nc two only=a|b there are two";

    #[test]
    fn a_table_says_what_becomes_of_a_setting() {
        let table = table(TABLE);
        let doing = |whose: &str, name: &str| find(&table, whose, name).map(|row| row.doing);
        assert_eq!(doing("s", "profiling"), Some(Doing::Nothing));
        assert_eq!(doing("k", "profiling"), None);
        assert_eq!(doing("ka", "secure-port"), Some(Doing::Honoured("https-port")));
        assert_eq!(doing("a", "same"), Some(Doing::Honoured("same")));
        assert_eq!(doing("k", "eviction-hard"), Some(Doing::Field("evictionHard", Shape::Map('<'))));
        let check = |name: &str, value: &str| find(&table, "ac", name).expect("a row").check(value);
        assert_eq!(check("watch-cache", "true"), Ok(()));
        assert_eq!(
            check("watch-cache", "false"),
            Err("\"false\" is not possible, only true: it is always there".to_owned())
        );
        assert_eq!(check("two", "b"), Ok(()));
        assert_eq!(check("odd", ""), Err("nobody has it".to_owned()));
        assert_eq!(check("profiling", "whatever"), Ok(()));
        assert!(check("feature-gates", "Nonsense=true").is_err());
    }

    #[test]
    fn texts_of_flags_become_values_of_fields() {
        for (shape, text, want) in [
            (Shape::Plain, "110", serde_json::json!(110)),
            (Shape::Plain, "true", serde_json::json!(true)),
            (Shape::Plain, "10s", serde_json::json!("10s")),
            (Shape::Text, "110", serde_json::json!("110")),
            (Shape::List, "a, b,", serde_json::json!(["a", "b"])),
            (Shape::Taints, "a=b:NoSchedule", serde_json::json!([{"key": "a", "value": "b", "effect": "NoSchedule"}])),
            (Shape::Map('='), "cpu=1,memory=2Gi", serde_json::json!({"cpu": "1", "memory": "2Gi"})),
            (Shape::Map('<'), "memory.available<5%", serde_json::json!({"memory.available": "5%"})),
        ] {
            assert_eq!(shape.value(text), Ok(want), "{text}");
        }
        assert!(Shape::Map('<').value("memory.available=5%").is_err());
    }
}
