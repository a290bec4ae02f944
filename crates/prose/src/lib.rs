//! What types and fields are for, in upstream's words, for `kubectl explain`.
//!
//! The words are not in this repository: the build script takes them out of the `k8s-openapi` crate. They are
//! apart from the facts, because nothing but OpenAPI's documents needs them: the text stays on disk until one
//! is asked for.

use std::borrow::Cow;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;

/// The descriptions of a type and of its fields.
#[derive(Clone, Copy, Debug)]
pub struct Prose {
    lines: &'static str,
}

/// All of it as it is written: what identifies the prose of this build.
pub const SOURCE: &str = include_str!(concat!(env!("OUT_DIR"), "/prose.txt"));

/// The descriptions of the type of this OpenAPI name, such as `io.k8s.api.core.v1.Pod`.
pub fn of(type_name: &str) -> Option<Prose> {
    static TYPES: OnceLock<FxHashMap<&'static str, Prose>> = OnceLock::new();
    TYPES.get_or_init(|| index(SOURCE)).get(type_name).copied()
}

impl Prose {
    /// What the type is for.
    pub fn text(self) -> Option<Cow<'static, str>> {
        let text = self.lines.lines().next()?.split_once('\t')?.1;
        (!text.is_empty()).then(|| unescape(text))
    }

    /// Each field that has a description, with it.
    pub fn fields(self) -> impl Iterator<Item = (&'static str, Cow<'static, str>)> {
        let fields = self.lines.lines().filter_map(|line| line.strip_prefix("F "));
        fields.filter_map(|line| line.split_once('\t')).map(|(name, text)| (name, unescape(text)))
    }
}

/// Finds the lines of each type.
fn index(text: &'static str) -> FxHashMap<&'static str, Prose> {
    let mut types = FxHashMap::default();
    let mut rest = text;
    while let Some(lines) = rest.strip_prefix("T ") {
        let end = lines.find("\nT ").map_or(lines.len(), |at| at + 1);
        types.insert(lines.split('\t').next().unwrap_or_default(), Prose { lines: &lines[..end] });
        rest = &lines[end..];
    }
    types
}

fn unescape(text: &'static str) -> Cow<'static, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.as_str().starts_with('n') => {
                chars.next();
                value.push('\n');
            }
            '\\' => value.extend(chars.next()),
            other => value.push(other),
        }
    }
    Cow::Owned(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_fields_have_their_words() {
        let port = of("io.k8s.api.core.v1.ContainerPort").expect("described");
        assert!(port.text().expect("described").starts_with("ContainerPort represents"));
        let protocol = port.fields().find(|(name, _)| *name == "protocol").expect("described").1;
        assert!(protocol.ends_with("Defaults to \"TCP\"."), "{protocol}");
        let pod = of("io.k8s.api.core.v1.Pod").expect("described");
        let names: Vec<_> = pod.fields().map(|(name, _)| name).collect();
        assert_eq!(names, ["apiVersion", "kind", "metadata", "spec", "status"], "references have descriptions too");
    }

    #[test]
    fn lines_are_kept() {
        let port = of("io.k8s.api.core.v1.ServicePort").expect("described");
        let protocol = port.fields().find(|(name, _)| *name == "appProtocol").expect("described").1;
        assert!(protocol.contains("\n\n* Kubernetes-defined"), "{protocol}");
    }

    #[test]
    fn what_is_not_known_has_no_words() {
        assert!(of("io.k8s.api.core.v1.Nothing").is_none());
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(r"a\nb\\n"), "a\nb\\n");
    }
}
