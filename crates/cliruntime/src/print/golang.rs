//! Values as Go's `fmt` writes them, because templates, columns and debugging output are made by it.

use serde_json::Value;

/// As `%v`.
pub fn print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(whole)) => whole.to_string(),
            _ => float(number.as_f64().unwrap_or_default()),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let parts: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", print(value))).collect();
            format!("map[{}]", parts.join(" "))
        }
    }
}

/// As `%#v`, of what JSON becomes in Go.
pub fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => machinery::status::go_quote(text),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| format!("{}:{}", machinery::status::go_quote(key), syntax(value));
            format!("map[string]interface {{}}{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        scalar => print(scalar),
    }
}

/// The Go type that JSON becomes.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As `%v` of a float64: the shortest form, with an exponent from a million on.
pub fn float(number: f64) -> String {
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_as_go_writes_them() {
        for (value, expected) in [
            (json!(1), "1"),
            (json!(1.5), "1.5"),
            (json!(1e21), "1e+21"),
            (json!(1234567.5), "1.2345675e+06"),
            (json!(123456.5), "123456.5"),
            (json!(0.00001), "1e-05"),
            (json!(null), "<nil>"),
            (json!({"b": [1, "x"], "a": true}), "map[a:true b:[1 x]]"),
        ] {
            assert_eq!(print(&value), expected);
        }
        assert_eq!(syntax(&json!({"a": ["x", 1]})), "map[string]interface {}{\"a\":[]interface {}{\"x\", 1}}");
    }
}
