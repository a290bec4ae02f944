//! How objects are shown: `-o`, in all its forms.

pub mod columns;
pub mod golang;
pub mod json;
pub mod jsonpath;
pub mod kyaml;
pub mod sort;
pub mod table;
pub mod tabs;
pub mod template;

use machinery::codec::yaml;
use serde_json::Value;

use crate::command::Environment;
use crate::error::{Failure, Outcome, os_error};
use crate::flags::Given;

/// Formats of commands that print what they made or changed.
pub const OBJECTS: &str =
    "go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,yaml";
/// Formats of `get`.
pub const ALL: &str = "custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml";

/// One of the formats, ready to print.
pub enum Printer {
    Yaml { printed: usize },
    Json { typed: bool },
    KYaml { typed: bool },
    Name,
    JsonPath { path: jsonpath::JsonPath, raw: String, as_json: bool },
    Template(template::Template),
    Columns(columns::Columns),
}

/// What a format is besides its name.
pub struct Request<'a> {
    pub allowed: &'a str,
    /// Whether what is printed was made here, and so has the order of Go's structs.
    pub typed: bool,
}

impl Printer {
    /// The printer that the flags ask for; nothing where `-o` was not given or is one that the command knows itself.
    pub fn from_flags(flags: &Given, environment: &Environment, request: &Request<'_>) -> Outcome<Option<Self>> {
        let output = flags.text("output");
        let template = flags.text("template");
        let (format, argument) = output.split_once('=').map_or((output, None), |(format, rest)| (format, Some(rest)));
        // Who gives a template and no format means it, whatever the command's own format is.
        let by_template = !template.is_empty() && (format.is_empty() || !flags.changed("output"));
        let (format, argument) = if by_template { ("go-template", None) } else { (format, argument) };
        // Names of formats without an argument are read as upstream reads them: whatever their case.
        let lower = format.to_lowercase();
        let plain = ["json", "yaml", "kyaml", "name"].contains(&lower.as_str());
        let format = if plain { lower.as_str() } else { format };
        if format.is_empty() && argument.is_none() {
            return Ok(None);
        }
        let refused = || {
            Failure::Message(format!(
                "unable to match a printer suitable for the output format {}, allowed formats are: {}",
                machinery::status::go_quote(output),
                request.allowed
            ))
        };
        if (plain && argument.is_some()) || !request.allowed.split(',').any(|allowed| allowed == format) {
            return Err(refused());
        }
        let text = argument.unwrap_or(template);
        let missing = flags.is("allow-missing-template-keys") || !flags.knows("allow-missing-template-keys");
        Ok(Some(match format {
            "yaml" => Self::Yaml { printed: 0 },
            "json" => Self::Json { typed: request.typed },
            "kyaml" => Self::KYaml { typed: request.typed },
            "name" => Self::Name,
            "jsonpath" | "jsonpath-as-json" => jsonpath_printer(text, format == "jsonpath-as-json", missing)?,
            "jsonpath-file" => jsonpath_printer(&read(environment, text)?, false, missing)?,
            "go-template" | "template" => {
                Self::Template(template::Template::new(required(text)?, missing)?.typed(request.typed))
            }
            "go-template-file" | "templatefile" => {
                Self::Template(template::Template::new(&read(environment, text)?, missing)?.typed(request.typed))
            }
            "custom-columns" => Self::Columns(columns::Columns::parse(text, flags.is("no-headers"))?),
            "custom-columns-file" => {
                if text.is_empty() {
                    return Err(Failure::message("custom-columns format specified but no custom columns given"));
                }
                let file = std::fs::read_to_string(environment.path(text)).map_err(|error| {
                    Failure::Message(format!("error reading template {text}, {}\n", os_error("open", text, &error)))
                })?;
                Self::Columns(columns::Columns::from_file(&file, flags.is("no-headers"))?)
            }
            _ => return Err(refused()),
        }))
    }

    /// The same for commands that look at a template only beside `-o`.
    pub fn from_output(flags: &Given, environment: &Environment, request: &Request<'_>) -> Outcome<Option<Self>> {
        if flags.text("output").is_empty() {
            return Ok(None);
        }
        Self::from_flags(flags, environment, request)
    }

    /// The text of one object, or of a list of them.
    pub fn print(&mut self, object: &Value) -> Outcome<String> {
        Ok(match self {
            Self::Yaml { printed } => {
                *printed += 1;
                format!("{}{}", if *printed > 1 { "---\n" } else { "" }, yaml::encode(object))
            }
            Self::Json { typed: true } => json::of_kind(object) + "\n",
            Self::Json { typed: false } => json::indented(object) + "\n",
            Self::KYaml { typed: true } => kyaml::of_kind(object),
            Self::KYaml { typed: false } => kyaml::document(object),
            Self::Name => names(object),
            Self::JsonPath { path, raw, as_json } => {
                let printed = if *as_json { path.print_json(object) } else { path.print(object) };
                printed.map_err(|why| debugging(raw, &why, object))?
            }
            Self::Template(template) => template.print(object).map_err(|(printed, failure)| failure.after(printed))?,
            Self::Columns(columns) => columns.print(object)?,
        })
    }

    /// Whether it wants managed fields to be left out, where nobody asked for them.
    pub fn omits_managed_fields(&self) -> bool {
        matches!(self, Self::Yaml { .. } | Self::Json { .. } | Self::KYaml { .. })
    }
}

fn required(text: &str) -> Outcome<&str> {
    if text.is_empty() { Err(Failure::message("template format specified but no template given")) } else { Ok(text) }
}

fn read(environment: &Environment, path: &str) -> Outcome<String> {
    let failed = |error: std::io::Error| {
        Failure::Message(format!("error reading --template {path}, {}\n", os_error("open", path, &error)))
    };
    std::fs::read_to_string(environment.path(required(path)?)).map_err(failed)
}

fn jsonpath_printer(text: &str, as_json: bool, allow_missing: bool) -> Outcome<Printer> {
    let text = required(text)?;
    let parsed = jsonpath::JsonPath::parse(text);
    let mut path = parsed.map_err(|why| Failure::Message(format!("error parsing jsonpath {text}, {why}\n")))?;
    path.allow_missing = allow_missing;
    Ok(Printer::JsonPath { path, raw: text.to_owned(), as_json })
}

fn debugging(template: &str, why: &str, object: &Value) -> Failure {
    Failure::Message(format!(
        "error executing jsonpath {}: Error executing template: {why}. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{template}\n\tobject given to jsonpath engine was:\n\t\t{}\n\n\n",
        machinery::status::go_quote(template),
        golang::syntax(object)
    ))
}

/// `pod/name`, one line for each.
fn names(object: &Value) -> String {
    match items(object) {
        Some(items) => items.iter().map(|item| format!("{}\n", name(item))).collect(),
        None => format!("{}\n", name(object)),
    }
}

/// `deployment.apps/name`.
pub fn name(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let kind = text("kind").to_lowercase();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let name = machinery::value::text(object, "metadata.name");
    let name = if name.is_empty() { "<unknown>" } else { name };
    match (kind.is_empty(), group.is_empty()) {
        (true, _) => format!("<unknown>/{name}"),
        (false, true) => format!("{kind}/{name}"),
        (false, false) => format!("{kind}.{group}/{name}"),
    }
}

/// The items of a list.
pub fn items(object: &Value) -> Option<&Vec<Value>> {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    object.get("items").and_then(Value::as_array).filter(|_| kind.ends_with("List"))
}

/// Takes managed fields out of an object, and out of the items of a list.
pub fn without_managed_fields(object: &mut Value) {
    machinery::value::remove(object, "metadata.managedFields");
    if let Some(Value::Array(items)) = object.get_mut("items") {
        items.iter_mut().for_each(|item| drop(machinery::value::remove(item, "metadata.managedFields")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::flags::{self, sets};

    fn printer(line: &str) -> Outcome<Option<Printer>> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let given = flags::parse([&sets::PRINT], &words).expect("flags");
        Printer::from_flags(&given, &Environment::default(), &Request { allowed: ALL, typed: false })
    }

    #[test]
    fn formats_are_found_or_refused() {
        let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}});
        for (line, expected) in [
            ("-o name", "pod/a\n"),
            ("-o jsonpath={.metadata.name}", "a"),
            ("-o jsonpath --template={.kind}", "Pod"),
            ("-o go-template={{.kind}}", "Pod"),
            ("--template={{.kind}}", "Pod"),
            ("-o yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"),
            ("-o custom-columns=N:.metadata.name", "N\na\n"),
            ("-o NAME", "pod/a\n"),
            ("-o Yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"),
        ] {
            let printed = printer(line).expect(line).expect(line).print(&object).expect(line);
            assert_eq!(printed, expected, "{line}");
        }
        let error = printer("-o foo").err().expect("refused").render();
        assert!(
            error.starts_with("error: unable to match a printer suitable for the output format \"foo\""),
            "{error}"
        );
        assert_eq!(
            printer("-o jsonpath").err().expect("refused").bare(),
            "template format specified but no template given"
        );
        assert!(printer("-o jsonpath={.a").is_err());
        let given = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            flags::parse([&sets::PRINT], &words).expect("flags")
        };
        let request = Request { allowed: ALL, typed: false };
        let alone = given(&["--template={{.kind}}"]);
        assert!(Printer::from_output(&alone, &Environment::default(), &request).is_ok_and(|found| found.is_none()));
        let both = given(&["--template={{.kind}}", "-o", "yaml"]);
        let found = Printer::from_flags(&both, &Environment::default(), &request).expect("both");
        assert!(matches!(found, Some(Printer::Yaml { .. })));
        assert!(printer("-o=").is_err() && printer("-o yaml=x").is_err() && printer("-o WIDE").is_err());
    }
}
