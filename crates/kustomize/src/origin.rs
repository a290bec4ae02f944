//! Where resources came from and what changed them, for those who ask with `buildMetadata`.

use machinery::Value;
use machinery::value;

use crate::resource::Resource;

const ORIGIN: &str = "config.kubernetes.io/origin";
const TRANSFORMATIONS: &str = "alpha.config.kubernetes.io/transformations";

/// A file, or a generator or transformer and the file that asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    path: String,
    configured_in: String,
    /// `apiVersion`, `kind`, `name` and `namespace` of a plug-in.
    configured_by: [String; 4],
}

impl Origin {
    pub fn file(path: String) -> Self {
        Self { path, ..Self::default() }
    }

    /// A built-in generator or transformer.
    pub fn built_in(configured_in: String, kind: &str) -> Self {
        let configured_by = ["builtin".to_owned(), kind.to_owned(), String::new(), String::new()];
        Self { path: String::new(), configured_in, configured_by }
    }

    /// One that an object configures; its file is known if the object's is.
    pub fn plugin(plugin: &Resource) -> Option<Self> {
        let configured_in = plugin.origin.as_ref()?.path.clone();
        let [api_version, kind] = ["apiVersion", "kind"].map(|field| plugin.text(field).to_owned());
        let configured_by = [api_version, kind, plugin.name().to_owned(), plugin.namespace().to_owned()];
        Some(Self { path: String::new(), configured_in, configured_by })
    }

    /// The lines of the annotation.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (key, text) in [("path", &self.path), ("configuredIn", &self.configured_in)] {
            if !text.is_empty() {
                lines.push(format!("{key}: {text}"));
            }
        }
        if self.configured_by.iter().any(|part| !part.is_empty()) {
            lines.push("configuredBy:".to_owned());
        }
        for (key, text) in ["apiVersion", "kind", "name", "namespace"].iter().zip(&self.configured_by) {
            if !text.is_empty() {
                lines.push(format!("  {key}: {text}"));
            }
        }
        lines
    }
}

/// A path below another one, without the steps that undo each other.
pub fn join(base: &str, path: &str) -> String {
    let mut steps: Vec<&str> = Vec::new();
    for step in base.split('/').chain(path.split('/')) {
        match step {
            "" | "." => {}
            ".." if steps.last().is_some_and(|last| *last != "..") => {
                steps.pop();
            }
            other => steps.push(other),
        }
    }
    steps.join("/")
}

/// Says of a transformer that it changed everything; what has no origin was made by it.
pub fn transformed<'a>(resources: impl Iterator<Item = &'a mut Resource>, by: Option<&Origin>) {
    let Some(by) = by else { return };
    for resource in resources {
        match &resource.origin {
            None => resource.origin = Some(by.clone()),
            Some(_) => resource.transformations.push(by.clone()),
        }
    }
}

/// Writes the annotations that are wanted.
pub fn annotate(resource: &mut Resource, wanted: &[String]) {
    let wants = |option: &str| wanted.iter().any(|known| known == option);
    let mut texts = Vec::new();
    if let Some(origin) = resource.origin.as_ref().filter(|_| wants("originAnnotations")) {
        texts.push((ORIGIN, origin.lines().iter().map(|line| format!("{line}\n")).collect::<String>()));
    }
    if wants("transformerAnnotations") && !resource.transformations.is_empty() {
        let items = resource.transformations.iter().map(|origin| format!("- {}\n", origin.lines().join("\n  ")));
        texts.push((TRANSFORMATIONS, items.collect()));
    }
    for (key, text) in texts {
        let metadata = value::object_mut(&mut resource.value, "metadata");
        let annotations = metadata.entry("annotations").or_insert(Value::Null);
        value::as_object_mut(annotations).insert(key.to_owned(), Value::String(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined() {
        for (base, path, expect) in [
            ("", "a.yaml", "a.yaml"),
            ("../base", "x/../a.yaml", "../base/a.yaml"),
            ("a", "../../b", "../b"),
            ("a", "./b", "a/b"),
        ] {
            assert_eq!(join(base, path), expect, "{base} {path}");
        }
    }
}
