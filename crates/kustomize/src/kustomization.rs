//! The kustomization file: its fields, the deprecated ones and what they say, and what is wrong with it.

use std::collections::BTreeMap;

use machinery::Value;
use machinery::codec::{Limits, yaml};
use serde::Deserialize;

use crate::Error;
use crate::fields::FieldSpec;
use crate::files::Root;
use crate::selector::Selector;

pub const KIND: &str = "Kustomization";
pub const COMPONENT: &str = "Component";

/// The names of the file, of which there must be one.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

type Texts = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Kustomization {
    pub kind: String,
    pub api_version: String,
    pub metadata: Option<Metadata>,
    pub openapi: Option<Texts>,
    pub name_prefix: String,
    pub name_suffix: String,
    pub namespace: String,
    pub common_labels: Option<Texts>,
    pub labels: Vec<Label>,
    pub common_annotations: Texts,
    pub patches_strategic_merge: Option<Vec<String>>,
    #[serde(rename = "patchesJson6902")]
    pub patches_json6902: Option<Vec<Patch>>,
    pub patches: Vec<Patch>,
    pub images: Vec<Image>,
    pub image_tags: Option<Vec<Image>>,
    pub replacements: Vec<ReplacementField>,
    pub replicas: Vec<Replica>,
    pub vars: Option<Vec<Var>>,
    pub sort_options: Option<SortOptions>,
    pub resources: Vec<String>,
    pub components: Vec<String>,
    pub crds: Vec<String>,
    pub bases: Option<Vec<String>>,
    pub config_map_generator: Vec<DataArgs>,
    pub secret_generator: Vec<DataArgs>,
    pub helm_globals: Option<Value>,
    pub helm_charts: Vec<Value>,
    pub helm_chart_inflation_generator: Vec<Value>,
    pub generator_options: Option<GeneratorOptions>,
    pub configurations: Vec<String>,
    pub generators: Vec<String>,
    pub transformers: Vec<String>,
    pub validators: Vec<String>,
    pub build_metadata: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub labels: Texts,
    pub annotations: Texts,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Label {
    pub pairs: Texts,
    pub include_selectors: bool,
    pub include_templates: bool,
    pub fields: Vec<FieldSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Patch {
    pub path: String,
    pub patch: String,
    pub target: Option<Selector>,
    pub options: Option<PatchOptions>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchOptions {
    pub allow_name_change: bool,
    pub allow_kind_change: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    pub name: String,
    pub new_name: String,
    pub tag_suffix: String,
    pub new_tag: String,
    pub digest: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplacementField {
    pub path: String,
    pub source: Option<Source>,
    pub source_value: Option<String>,
    pub targets: Option<Vec<Target>>,
}

/// Where a replacement's value comes from.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub field_path: String,
    pub options: Option<FieldOptions>,
}

/// Where a replacement's value goes to.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    pub select: Option<Selector>,
    pub reject: Vec<Selector>,
    pub field_paths: Vec<String>,
    pub options: Option<FieldOptions>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct FieldOptions {
    pub delimiter: String,
    pub index: i64,
    pub encoding: String,
    pub create: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Replica {
    pub name: String,
    pub count: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Var {
    pub name: String,
    pub objref: Referred,
    pub fieldref: FieldPath,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Referred {
    pub api_version: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct FieldPath {
    pub field_path: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SortOptions {
    pub order: String,
    pub legacy_sort_options: Option<LegacyOrder>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LegacyOrder {
    pub order_first: Vec<String>,
    pub order_last: Vec<String>,
}

/// What a config map or a secret is made from.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DataArgs {
    pub namespace: String,
    pub name: String,
    pub behavior: String,
    pub literals: Vec<String>,
    pub files: Vec<String>,
    pub envs: Vec<String>,
    pub env: String,
    pub options: Option<GeneratorOptions>,
    /// Of secrets only.
    #[serde(rename = "type")]
    pub secret_type: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct GeneratorOptions {
    pub labels: Texts,
    pub annotations: Texts,
    pub disable_name_suffix_hash: bool,
    pub immutable: bool,
}

impl GeneratorOptions {
    /// What one generator says, and what all of them say where it says nothing.
    pub fn merged(own: Option<Self>, all: Option<&Self>) -> Option<Self> {
        let Some(all) = all else { return own };
        let mut own = own.unwrap_or_default();
        for (of, more) in [(&mut own.labels, &all.labels), (&mut own.annotations, &all.annotations)] {
            for (key, value) in more {
                of.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        own.disable_name_suffix_hash |= all.disable_name_suffix_hash;
        own.immutable |= all.immutable;
        Some(own)
    }
}

impl Kustomization {
    /// The kustomization of a directory. Deprecated fields are moved to where they belong now, and told of.
    pub fn load(root: &Root, warn: &mut dyn FnMut(&str)) -> Result<(Self, &'static str), Error> {
        let mut found = NAMES.iter().filter_map(|name| Some((root.read(name).ok()?, *name)));
        let directory = root.directory().display();
        let Some((content, name)) = found.next() else {
            let names = "'kustomization.yaml', 'kustomization.yml' or 'Kustomization'";
            return Err(Error::new(format!("unable to find one of {names} in directory '{directory}'")));
        };
        if found.next().is_some() {
            return Err(Error::new(format!("Found multiple kustomization files under: {directory}\n")));
        }
        let mut read = Self::parse(&content)?;
        read.deprecated().iter().for_each(|line| warn(line));
        read.fix();
        read.check(&directory.to_string())?;
        Ok((read, name))
    }

    fn parse(content: &[u8]) -> Result<Self, Error> {
        let invalid = |why: String| Error::new(format!("invalid Kustomization: {why}"));
        let decoded = yaml::decode(content, Limits::default());
        let mut value = decoded
            .map_err(|error| invalid(error.message.trim_start_matches("error converting YAML to JSON: ").to_owned()))?;
        if value.value.is_null() {
            return Ok(Self::default());
        }
        respell(&mut value.value);
        if let Some(why) = mistyped(&value.value) {
            return Err(invalid(why));
        }
        serde_json::from_value(without_nulls(value.value)).map_err(|error| invalid(in_go_words(&error.to_string())))
    }

    fn deprecated(&self) -> Vec<String> {
        const FIX: &str = "Run 'kustomize edit fix' to update your Kustomization automatically.";
        let used = [
            (self.bases.is_some(), "bases", "resources", ""),
            (self.common_labels.is_some(), "commonLabels", "labels", ""),
            (self.image_tags.is_some(), "imageTags", "images", ""),
            (self.patches_json6902.is_some(), "patchesJson6902", "patches", ""),
            (self.patches_strategic_merge.is_some(), "patchesStrategicMerge", "patches", ""),
            (self.vars.is_some(), "vars", "replacements", "[EXPERIMENTAL] "),
        ];
        let lines = used.iter().filter(|(used, ..)| *used).map(|(_, old, new, experimental)| {
            format!("# Warning: '{old}' is deprecated. Please use '{new}' instead. {experimental}{FIX}")
        });
        lines.collect()
    }

    fn fix(&mut self) {
        if self.kind.is_empty() {
            self.kind = KIND.to_owned();
        }
        if self.api_version.is_empty() {
            self.api_version = Self::version(&self.kind).to_owned();
        }
        self.resources.extend(self.bases.take().unwrap_or_default());
        self.images.extend(self.image_tags.take().unwrap_or_default());
        for args in self.config_map_generator.iter_mut().chain(&mut self.secret_generator) {
            if !args.env.is_empty() {
                args.envs.push(std::mem::take(&mut args.env));
            }
        }
        self.helm_charts.append(&mut self.helm_chart_inflation_generator);
    }

    fn version(kind: &str) -> &'static str {
        if kind == COMPONENT { "kustomize.config.k8s.io/v1alpha1" } else { "kustomize.config.k8s.io/v1beta1" }
    }

    fn check(&self, directory: &str) -> Result<(), Error> {
        let empty = Self { kind: self.kind.clone(), api_version: self.api_version.clone(), ..Self::default() };
        if *self == empty {
            return Err(Error::new("kustomization.yaml is empty"));
        }
        let mut errors = Vec::new();
        if self.kind != KIND && self.kind != COMPONENT {
            errors.push(format!("kind should be {KIND} or {COMPONENT}"));
        }
        let version = Self::version(&self.kind);
        if self.api_version != version {
            errors.push(format!("apiVersion for {} should be {version}", self.kind));
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::new(format!("Failed to read kustomization file under {directory}:\n{}", errors.join("\n"))))
    }
}

/// Names of fields.
const SPELLED: &str = "apiVersion namePrefix nameSuffix commonLabels commonAnnotations patchesStrategicMerge patchesJson6902 \
    imageTags sortOptions configMapGenerator secretGenerator helmGlobals helmCharts helmChartInflationGenerator \
    generatorOptions buildMetadata includeSelectors includeTemplates allowNameChange allowKindChange newName tagSuffix \
    newTag sourceValue fieldPath fieldPaths legacySortOptions orderFirst orderLast disableNameSuffixHash \
    annotationSelector labelSelector kind metadata openapi namespace labels patches images replacements replicas vars \
    resources components crds bases configurations generators transformers validators pairs fields path patch target \
    options name group version digest source targets delimiter index encoding create select reject count objref \
    fieldref order behavior literals files envs env type immutable annotations";

/// Go does not care how the names of fields are spelled. Maps whose keys are the user's are left alone.
fn respell(value: &mut Value) {
    const USERS: [&str; 8] = [
        "commonLabels",
        "commonAnnotations",
        "pairs",
        "annotations",
        "metadata",
        "openapi",
        "helmCharts",
        "helmGlobals",
    ];
    match value {
        Value::Array(items) => items.iter_mut().for_each(respell),
        Value::Object(fields) => {
            let spelled = |name: &str| SPELLED.split_whitespace().find(|known| known.eq_ignore_ascii_case(name));
            for (name, mut inner) in std::mem::take(fields) {
                let name = spelled(&name).map_or(name.clone(), str::to_owned);
                // Labels of an option are a map, those of the file a list.
                if !USERS.contains(&&*name) && (name != "labels" || inner.is_array()) {
                    respell(&mut inner);
                }
                fields.insert(name, inner);
            }
        }
        _ => {}
    }
}

/// What Go says of a field of the file that has a wrong type.
fn mistyped(file: &Value) -> Option<String> {
    const TEXTS: [&str; 5] = ["kind", "apiVersion", "namePrefix", "nameSuffix", "namespace"];
    const LISTS: [&str; 10] = [
        "resources",
        "components",
        "crds",
        "bases",
        "configurations",
        "generators",
        "transformers",
        "validators",
        "buildMetadata",
        "patchesStrategicMerge",
    ];
    const MAPS: [&str; 3] = ["commonLabels", "commonAnnotations", "openapi"];
    let Value::Object(fields) = file else {
        let what = machinery::patch::json_type(file);
        return Some(format!("json: cannot unmarshal {what} into Go value of type types.Kustomization"));
    };
    fields.iter().filter(|(_, value)| !value.is_null()).find_map(|(name, value)| {
        let name = name.as_str();
        let wrong_text = |value: &&Value| !value.is_string() && !value.is_null();
        let (wrong, wanted) = match value {
            value if TEXTS.contains(&name) => (Some(value).filter(|value| !value.is_string()).cloned(), "string"),
            Value::Array(items) if LISTS.contains(&name) => (items.iter().find(wrong_text).cloned(), "string"),
            value if LISTS.contains(&name) => (Some(value.clone()), "[]string"),
            Value::Object(fields) if MAPS.contains(&name) => (fields.values().find(wrong_text).cloned(), "string"),
            value if MAPS.contains(&name) => (Some(value.clone()), "map[string]string"),
            _ => (None, ""),
        };
        let what = machinery::patch::json_type(&wrong?);
        Some(format!("json: cannot unmarshal {what} into Go struct field Kustomization.{name} of type {wanted}"))
    })
}

/// Fields that are null are as if they were absent, as Go reads them.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, field)| !field.is_null())
            .map(|(key, field)| (key, without_nulls(field)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// What a reader of a struct objects to, as Go says it where that is simple.
pub fn in_go_words(error: &str) -> String {
    match error.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((field, _)) => format!("json: unknown field {field:?}"),
        None => format!("json: {error}"),
    }
}
