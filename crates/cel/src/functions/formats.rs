//! Formats that texts may have, by name.

use base64::Engine as _;
use machinery::names;

use crate::eval::Outcome;
use crate::functions::opaque::Opaque;
use crate::value::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named(&'static str);

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

impl Named {
    fn find(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|known| *known == name).map(Self)
    }

    /// What is wrong with a text; nothing if it has the format.
    fn problems(self, text: &str) -> Vec<String> {
        let unless = |fine: bool, why: &str| if fine { Vec::new() } else { vec![why.to_owned()] };
        match self.0 {
            "dns1123Label" => names::name_is_dns_label(text, false),
            "dns1123Subdomain" => names::name_is_dns_subdomain(text, false),
            "dns1035Label" => names::name_is_dns1035_label(text, false),
            "dns1123LabelPrefix" => names::name_is_dns_label(text, true),
            "dns1123SubdomainPrefix" => names::name_is_dns_subdomain(text, true),
            "dns1035LabelPrefix" => names::name_is_dns1035_label(text, true),
            "qualifiedName" => names::is_qualified_name(text),
            "labelValue" => names::is_label_value(text),
            "uri" => {
                let parsed = super::url::call("isURL", &[Value::from(text.to_owned())]);
                unless(matches!(parsed, Some(Ok(Value::Bool(true)))), "invalid URI")
            }
            "uuid" => {
                let groups: Vec<usize> = text.split('-').map(str::len).collect();
                let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
                let fine = plain && (groups == [8, 4, 4, 4, 12] || groups == [32]);
                unless(fine, "does not match the UUID format")
            }
            "byte" => unless(base64::engine::general_purpose::STANDARD.decode(text).is_ok(), "invalid base64"),
            "date" => unless(text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(), "invalid date"),
            _ => unless(machinery::time::parse(text).is_some(), "invalid datetime"),
        }
    }
}

/// A function of formats, if it is one.
pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let made = |named: Named| Value::Opaque(Opaque::Format(named));
    match (function, args) {
        ("format.named", [Value::String(name)]) => {
            Some(Ok(Named::find(name).map_or(Value::Optional(None), |named| Value::some(made(named)))))
        }
        ("validate", [Value::Opaque(Opaque::Format(named)), Value::String(text)]) => {
            let problems = named.problems(text);
            Some(Ok(match problems.is_empty() {
                true => Value::Optional(None),
                false => Value::some(Value::list(problems.into_iter().map(Value::from).collect())),
            }))
        }
        (_, []) => function.strip_prefix("format.").and_then(Named::find).map(|named| Ok(made(named))),
        _ => None,
    }
}
