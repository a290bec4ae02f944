//! Which resources a patch or a replacement is for: patterns for the parts of an id, selectors for labels and annotations.

use machinery::selector::label::LabelSelector;
use machinery::{Value, value};
use regex::Regex;
use serde::Deserialize;

use crate::Error;
use crate::id::{Gvk, Id};
use crate::resource::Resource;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub annotation_selector: String,
    pub label_selector: String,
}

/// A selector whose patterns were read.
pub struct Matcher {
    parts: [Option<Regex>; 5],
    annotations: LabelSelector,
    labels: LabelSelector,
}

impl Selector {
    pub fn compiled(&self) -> Result<Matcher, Error> {
        let parts = [&self.group, &self.version, &self.kind, &self.name, &self.namespace];
        let mut compiled = [const { None }; 5];
        for (part, slot) in parts.into_iter().zip(&mut compiled) {
            if !part.is_empty() {
                let pattern = Regex::new(&format!("^(?:{part})$"));
                *slot = Some(pattern.map_err(|_| Error::new(format!("error parsing regexp: `^(?:{part})$`")))?);
            }
        }
        let labels = |text: &str| LabelSelector::parse(text).map_err(Error::new);
        let (annotations, labels) = (labels(&self.annotation_selector)?, labels(&self.label_selector)?);
        Ok(Matcher { parts: compiled, annotations, labels })
    }

    /// Whether it names no part of an id.
    pub fn names_nothing(&self) -> bool {
        [&self.group, &self.version, &self.kind, &self.name, &self.namespace].iter().all(|part| part.is_empty())
    }

    pub fn has_label_selectors(&self) -> bool {
        !self.annotation_selector.is_empty() || !self.label_selector.is_empty()
    }
}

impl Matcher {
    fn part(&self, at: usize, text: &str) -> bool {
        self.parts[at].as_ref().is_none_or(|pattern| pattern.is_match(text))
    }

    fn kind(&self, gvk: &Gvk) -> bool {
        self.part(0, &gvk.group) && self.part(1, &gvk.version) && self.part(2, &gvk.kind)
    }

    /// Whether an id fits as it is.
    pub fn id(&self, id: &Id) -> bool {
        self.kind(&id.gvk) && self.part(3, &id.name) && self.part(4, &id.namespace)
    }

    pub fn labels(&self, resource: &Resource) -> bool {
        let at = |path: &str| value::at(&resource.value, path).cloned().unwrap_or(Value::Null);
        self.annotations.matches_labels(&at("metadata.annotations"))
            && self.labels.matches_labels(&at("metadata.labels"))
    }

    /// Whether a patch is for this resource: by the name and namespace that it has or first had.
    pub fn selects(&self, resource: &Resource) -> bool {
        let (now, original) = (resource.id(), resource.original_id());
        let namespace = self.part(4, original.effective_namespace()) || self.part(4, now.effective_namespace());
        let name = self.part(3, &original.name) || self.part(3, &now.name);
        namespace && name && self.kind(&now.gvk) && self.labels(resource)
    }
}
