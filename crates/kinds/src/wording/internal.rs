//! Values in messages, as upstream shows them: an object that has a struct of its own is printed as the internal one, every field
//! of it, in the order of the struct; and what may not change is shown as a diff of two such texts.

use facts::{Schema, Type, internal_type};
use machinery::status::FieldError;
use machinery::{Value, diff};

/// Prints the values of these errors about an object of this type as upstream prints them.
pub fn show(errors: &mut [FieldError], of: Option<&Type>) {
    let Some(of) = of else { return };
    for error in errors {
        let Some(value @ (Value::Object(_) | Value::Array(_))) = &error.value else { continue };
        if error.shown.is_none() {
            // Some of upstream's paths begin below the spec.
            let below = || code_at(of, &format!("spec.{}", error.path), value.is_object());
            let code = code_at(of, &error.path, value.is_object()).or_else(below);
            error.shown = code.map(|code| compact(value, &code));
        }
    }
}

/// A value of an internal type on one line.
pub fn compact(value: &Value, code: &str) -> String {
    let mut out = Writer { text: String::new(), indent: None };
    out.value(Some(value), code);
    out.text
}

/// How two values of an internal type differ, line by line.
pub fn difference(old: &Value, new: &Value, code: &str) -> String {
    let pretty = |value: &Value| {
        let mut out = Writer { text: String::new(), indent: Some(0) };
        out.value(Some(value), code);
        out.text
    };
    diff::unified(&pretty(old), &pretty(new))
}

/// What stands at a path of a type: an internal type, or a list of one. An object where the path leads to no struct is the struct
/// that the path's last field is of.
fn code_at(of: &Type, path: &str, is_object: bool) -> Option<String> {
    let (mut parent, mut current, mut schema) = (Some(of), Some(of), None::<&Schema>);
    for step in steps(path) {
        match step {
            Step::Field(name) => {
                let field = current?.field(name)?;
                parent = current;
                schema = Some(&field.schema);
            }
            Step::Element => {
                schema = match schema? {
                    Schema::Array(list) => Some(&list.items),
                    Schema::Map(map) => Some(&map.values),
                    _ => return None,
                };
            }
        }
        current = schema.and_then(Schema::object);
    }
    let code = match (current, schema) {
        (Some(of), _) => internal_name(of)?,
        (None, Some(Schema::Array(list))) if !is_object => format!("[]{}", internal_name(list.items.object()?)?),
        (None, Some(Schema::Map(map))) if is_object => format!("{{}}{}", internal_name(map.values.object()?)?),
        (None, Some(Schema::String | Schema::Int32 | Schema::Int64 | Schema::Bool)) if is_object => {
            internal_name(parent?)?
        }
        _ => return None,
    };
    Some(code)
}

enum Step<'a> {
    Field(&'a str),
    Element,
}

/// The steps of a path such as `spec.containers[0].image`.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split('.').flat_map(|part| {
        let (name, elements) = match part.find('[') {
            Some(at) => (&part[..at], part[at..].matches('[').count()),
            None => (part, 0),
        };
        std::iter::once(Step::Field(name)).chain((0..elements).map(|_| Step::Element))
    })
}

/// The internal type of a type of the API, where there is one.
fn internal_name(of: &Type) -> Option<String> {
    let mut parts = of.name.rsplit('.');
    let (name, version, group) = (parts.next()?, parts.next()?, parts.next()?);
    let group = if version.starts_with('v') { group } else { version };
    let name = format!("{group}.{name}");
    internal_type(&name).map(|_| name)
}

struct Writer {
    text: String,
    /// How deep the line is that is written; `None` for everything on one line.
    indent: Option<usize>,
}

impl Writer {
    fn value(&mut self, value: Option<&Value>, code: &str) {
        let value = value.filter(|value| !value.is_null());
        if let Some(code) = code.strip_prefix('*') {
            return match value {
                Some(value) => self.value(Some(value), code),
                None => self.text.push_str("null"),
            };
        }
        if let Some(code) = code.strip_prefix("[]") {
            return match value {
                Some(Value::Array(items)) => {
                    self.nested('[', ']', items.iter(), |out, item| out.value(Some(item), code))
                }
                // Bytes are text in JSON.
                Some(text) => self.scalar(text),
                None => self.text.push_str("null"),
            };
        }
        if let Some(code) = code.strip_prefix("{}") {
            return match value.and_then(Value::as_object) {
                Some(entries) => self.nested('{', '}', entries.iter(), |out, (key, value)| {
                    out.key(key);
                    out.value(Some(value), code);
                }),
                None => self.text.push_str("null"),
            };
        }
        match (code, value) {
            ("\"", None) => self.text.push_str("\"\""),
            ("0" | "i", None) => self.text.push('0'),
            ("f", None) => self.text.push_str("false"),
            ("q", None) => self.text.push_str("\"0\""),
            ("t" | "j", None) => self.text.push_str("null"),
            ("j", Some(value)) => self.plain(value),
            ("\"" | "0" | "i" | "f" | "q" | "t", Some(value)) => self.scalar(value),
            (name, value) => self.object(value, name),
        }
    }

    /// A struct, with all of its fields.
    fn object(&mut self, value: Option<&Value>, name: &str) {
        let mut fields = Vec::new();
        collect(value, name, &mut fields);
        self.nested('{', '}', fields.into_iter(), |out, (name, value, code)| {
            out.key(name);
            out.value(value, code);
        });
    }

    /// A value without a struct of its own, as JSON has it.
    fn plain(&mut self, value: &Value) {
        match value {
            Value::Array(items) => self.nested('[', ']', items.iter(), |out, item| out.plain(item)),
            Value::Object(entries) => self.nested('{', '}', entries.iter(), |out, (key, value)| {
                out.key(key);
                out.plain(value);
            }),
            scalar => self.scalar(scalar),
        }
    }

    fn scalar(&mut self, value: &Value) {
        // Go's encoder hides what a browser might take for HTML.
        for letter in value.to_string().chars() {
            match letter {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    self.text.push_str(&format!("\\u{:04x}", u32::from(letter)));
                }
                letter => self.text.push(letter),
            }
        }
    }

    fn key(&mut self, key: &str) {
        self.scalar(&Value::from(key));
        self.text.push(':');
        if self.indent.is_some() {
            self.text.push(' ');
        }
    }

    fn nested<T>(
        &mut self,
        open: char,
        close: char,
        items: impl Iterator<Item = T>,
        mut put: impl FnMut(&mut Self, T),
    ) {
        self.text.push(open);
        self.indent = self.indent.map(|depth| depth + 1);
        let mut any = false;
        for item in items {
            if std::mem::replace(&mut any, true) {
                self.text.push(',');
            }
            self.new_line();
            put(self, item);
        }
        self.indent = self.indent.map(|depth| depth - 1);
        if any {
            self.new_line();
        }
        self.text.push(close);
    }

    fn new_line(&mut self) {
        if let Some(depth) = self.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', depth));
        }
    }
}

/// The fields of a struct with their values. Metadata has no place of its own: its fields are the struct's.
fn collect<'a>(
    value: Option<&'a Value>,
    name: &str,
    fields: &mut Vec<(&'static str, Option<&'a Value>, &'static str)>,
) {
    for field in internal_type(name).unwrap_or_default() {
        let found = field.of(|name| value.and_then(|value| value.get(name))).filter(|found| !found.is_null());
        match field.code {
            "m" => collect(found, "meta.ObjectMeta", fields),
            _ if field.optional && found.is_none_or(is_empty) => {}
            code => fields.push((field.name, found, code)),
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(kind: (&str, &str), error: FieldError, expect: &str) {
        let of = facts::type_of(kind.0, "v1", kind.1).map(|ty| ty.def());
        let mut errors = [error];
        show(&mut errors, of);
        assert_eq!(errors[0].to_string(), expect);
    }

    #[test]
    fn structs_are_shown_as_the_internal_ones() {
        check(
            ("", "Pod"),
            FieldError::invalid("spec.resourceClaims[0]", json!({"name": "a"}), "x"),
            "spec.resourceClaims[0]: Invalid value: {\"Name\":\"a\",\"ResourceClaimName\":null,\"ResourceClaimTemplateName\":null}: x",
        );
        // The struct that the field is of.
        check(
            ("", "Pod"),
            FieldError::invalid("spec.securityContext.seccompProfile.localhostProfile", json!({"type": "<a>"}), "x"),
            "spec.securityContext.seccompProfile.localhostProfile: Invalid value: {\"Type\":\"\\u003ca\\u003e\",\"LocalhostProfile\":null}: x",
        );
        check(
            ("rbac.authorization.k8s.io", "RoleBinding"),
            FieldError::invalid("roleRef", json!({"kind": "Role", "name": "a"}), "x"),
            "roleRef: Invalid value: {\"APIGroup\":\"\",\"Kind\":\"Role\",\"Name\":\"a\"}: x",
        );
        // What every version shares has names of its own.
        check(
            ("apps", "Deployment"),
            FieldError::invalid(
                "spec.selector",
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}], "matchLabels": {"a": "b"}}),
                "x",
            ),
            "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"},\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"In\",\"values\":[\"b\"]}]}: x",
        );
        // Maps and plain lists are what they are.
        check(
            ("", "Service"),
            FieldError::invalid("spec.clusterIPs", json!(["a"]), "x"),
            "spec.clusterIPs: Invalid value: [\"a\"]: x",
        );
    }

    #[test]
    fn metadata_has_no_place_of_its_own() {
        let template = json!({"metadata": {"name": "a", "labels": {"b": "c"}, "creationTimestamp": null}});
        let shown = compact(&template, "core.PodTemplateSpec");
        assert!(shown.starts_with("{\"name\":\"a\",\"labels\":{\"b\":\"c\"},\"Spec\":{\"Volumes\":null,"), "{shown}");
    }

    #[test]
    fn what_changed_is_shown_line_by_line() {
        let old = json!({"containers": [{"name": "a", "image": "i"}], "nodeName": "n"});
        let new = json!({"containers": [{"name": "a", "image": "j"}], "nodeName": "n"});
        let shown = difference(&old, &new, "core.PodSpec");
        let head = "@@ -4,7 +4,7 @@\n  \"Containers\": [\n   {\n    \"Name\": \"a\",\n";
        // A sign stands before every line, so what is unchanged is one space further in.
        assert!(shown.starts_with(head), "{shown}");
        assert!(shown.contains("\n-   \"Image\": \"i\",\n+   \"Image\": \"j\",\n"), "{shown}");
    }
}
