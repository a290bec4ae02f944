//! What `kubectl get` shows of a custom resource: the columns that its definition asks for.

use machinery::Value;
use machinery::value;
use serde_json::json;

use crate::jsonpath::JsonPath;

/// A column beside the name.
#[derive(Debug, Clone)]
pub struct Column {
    /// As a `TableColumnDefinition` has it.
    pub definition: Value,
    path: JsonPath,
}

/// What an age is told of: upstream's words for `metadata.creationTimestamp` are its description.
const AGE: &str = ".metadata.creationTimestamp";

impl Column {
    /// The columns of a version of a definition; where it names none there is the age, described in these words. Those that follow one that
    /// cannot be read are left out with it.
    pub fn of_version(version: &Value, age: &str) -> Vec<Self> {
        let named = value::list(version, "additionalPrinterColumns");
        let default = [json!({"name": "Age", "type": "date", "description": age, "jsonPath": AGE})];
        let columns = if named.is_empty() { &default[..] } else { named };
        columns.iter().map_while(Self::read).collect()
    }

    fn read(column: &Value) -> Option<Self> {
        let text = |name: &str| value::text(column, name);
        let path = JsonPath::parse(text("jsonPath"))?;
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {}", text("jsonPath")),
            given => given.to_owned(),
        };
        let definition = json!({
            "name": text("name"), "type": text("type"), "format": text("format"),
            "description": description, "priority": value::int(column, "priority").unwrap_or(0),
        });
        Some(Self { definition, path })
    }

    /// What stands in the column for an object. `age` tells how long ago a time was, or that it is none.
    pub fn cell(&self, object: &Value, age: impl Fn(&str) -> String) -> Value {
        let Some(found) = self.path.first(object) else { return Value::Null };
        match (value::text(&self.definition, "type"), &*found) {
            ("string", Value::Null) => json!("<no value>"),
            ("string", Value::String(text)) => json!(text),
            ("string", Value::Number(_)) => json!(machinery::patch::go_print(&found)),
            ("string", other) => json!(other.to_string()),
            ("integer", Value::Number(number)) => number
                .as_i64()
                .or_else(|| number.as_f64().map(|real| real as i64))
                .map_or(Value::Null, |whole| json!(whole)),
            ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, |real| match number.as_i64() {
                Some(whole) => json!(whole),
                None => json!(real),
            }),
            ("boolean", Value::Bool(flag)) => json!(flag),
            ("date", Value::String(time)) => json!(age(time)),
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_the_form_of_their_column() {
        let version = json!({"additionalPrinterColumns": [
            {"name": "A", "type": "string", "jsonPath": ".a"},
            {"name": "B", "type": "integer", "jsonPath": ".b", "priority": 1, "description": "how many"},
            {"name": "C", "type": "boolean", "jsonPath": ".c"},
            {"name": "D", "type": "date", "jsonPath": ".d"},
        ]});
        let columns = Column::of_version(&version, "");
        let cells = |object: Value| -> Vec<Value> {
            columns.iter().map(|column| column.cell(&object, |time| format!("since {time}"))).collect()
        };
        assert_eq!(
            cells(json!({"a": "x", "b": 2, "c": true, "d": "t"})),
            [json!("x"), json!(2), json!(true), json!("since t")]
        );
        assert_eq!(cells(json!({})), [Value::Null, Value::Null, Value::Null, Value::Null]);
        assert_eq!(
            cells(json!({"a": {"k": [1]}, "b": "2", "c": "true", "d": 1})),
            [json!("{\"k\":[1]}"), Value::Null, Value::Null, Value::Null]
        );
        assert_eq!(cells(json!({"a": 1.5e30, "b": 2.7}))[..2], [json!("1.5e+30"), json!(2)]);
        assert_eq!(columns[1].definition["description"], "how many");
        assert_eq!(columns[1].definition["priority"], 1);
        assert_eq!(columns[0].definition["description"], "Custom resource definition column (in JSONPath format): .a");
        assert_eq!(Column::of_version(&json!({}), "when")[0].definition["name"], "Age");
    }
}
