//! Built-in transformers and generators that a kustomization asks for by name, each configured by an object of its own. All
//! others would be programs, and are refused.

use std::collections::BTreeMap;

use machinery::Value;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::Error;
use crate::config::Config;
use crate::fields::{FieldSpec, Make};
use crate::files::Root;
use crate::generate;
use crate::kustomization::{
    DataArgs, Image, Patch, ReplacementField, Replica, SortOptions, in_go_words, without_nulls,
};
use crate::resource::Resource;
use crate::resources::Resources;
use crate::schema::Schemas;
use crate::selector::Selector;
use crate::transform::namespace::{Namespace, Subjects};
use crate::transform::prefixes::{End, add};
use crate::transform::{images, labels, order, patches, replacements, replicas};

fn checked(plugin: &Resource) -> Result<(), Error> {
    let gvk = plugin.gvk();
    if gvk.group.is_empty() && gvk.version == "builtin" {
        return Ok(());
    }
    Err(Error::new(format!(
        "external plugins disabled; unable to load external plugin '{}'",
        plugin.original_id().gvk.kind
    )))
}

/// The configuration, without what makes it an object.
fn configuration<T: DeserializeOwned>(plugin: &Resource) -> Result<T, Error> {
    let mut value = without_nulls(plugin.value.clone());
    if let Some(fields) = value.as_object_mut() {
        ["apiVersion", "kind", "metadata"].iter().for_each(|field| drop(fields.remove(*field)));
    }
    let read = serde_json::from_value(value);
    read.map_err(|error| {
        Error::new(in_go_words(&error.to_string()))
            .within(format!("plugin {} fails configuration", plugin.original_id()))
    })
}

/// What a generator makes.
pub fn generate(plugin: &Resource, root: &Root) -> Result<Resource, Error> {
    checked(plugin).map_err(|error| error.within("failed to load generator"))?;
    if plugin.kind() == "IAMPolicyGenerator" {
        return policy(plugin);
    }
    const KNOWN: [&str; 9] = ["namespace", "name", "behavior", "literals", "files", "envs", "env", "options", "type"];
    let mut known = plugin.clone();
    if let Some(fields) = known.value.as_object_mut() {
        fields.retain(|field, _| KNOWN.contains(&field.as_str()));
    }
    let mut args: DataArgs = configuration(&known)?;
    if !args.env.is_empty() {
        args.envs.push(std::mem::take(&mut args.env));
    }
    if args.name.is_empty() {
        args.name = plugin.name().to_owned();
    }
    if args.namespace.is_empty() {
        args.namespace = plugin.namespace().to_owned();
    }
    match plugin.kind() {
        "ConfigMapGenerator" => generate::config_map(root, &args),
        "SecretGenerator" => generate::secret(root, &args),
        _ => Err(Error::new(format!("failed to load generator: unable to load builtin {}", plugin.gvk()))),
    }
}

/// The service account that stands for one of a cloud.
fn policy(plugin: &Resource) -> Result<Resource, Error> {
    let text = |path: &str| plugin.text(path);
    if text("cloud") != "gke" {
        return Err(Error::new(format!("cloud provider {} not supported yet", text("cloud"))));
    }
    let account =
        format!("{}@{}.iam.gserviceaccount.com", text("serviceAccount.name"), text("serviceAccount.projectId"));
    let mut made = Resource::new(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
        "annotations": {"iam.gke.io/gcp-service-account": account}, "name": text("kubernetesService.name")}}));
    made.set_namespace(text("kubernetesService.namespace"));
    Ok(made)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Fields {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    field_specs: Vec<FieldSpec>,
    prefix: String,
    suffix: String,
    image_tag: Image,
    replica: Replica,
    replacements: Vec<ReplacementField>,
    sort_options: Option<SortOptions>,
    unset_only: bool,
    set_role_binding_subjects: String,
    paths: Vec<String>,
    patches: String,
    path: String,
    patch: String,
    json_op: String,
    target: Option<Selector>,
    options: Option<crate::kustomization::PatchOptions>,
    value: String,
    targets: Vec<Place>,
}

/// Where a value is added.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Place {
    selector: Option<Selector>,
    field_path: String,
}

pub fn transform(plugin: &Resource, root: &Root, schemas: &Schemas, resources: &mut Resources) -> Result<(), Error> {
    checked(plugin)?;
    let given: Fields = configuration(plugin)?;
    let specs = &given.field_specs;
    match plugin.kind() {
        "LabelTransformer" => labels::set(resources, &given.labels, specs),
        "AnnotationsTransformer" => labels::set(resources, &given.annotations, specs),
        "PrefixTransformer" => add(resources, End::Prefix, &given.prefix, specs),
        "PrefixSuffixTransformer" => {
            add(resources, End::Prefix, &given.prefix, specs)?;
            add(resources, End::Suffix, &given.suffix, specs)
        }
        "SuffixTransformer" => add(resources, End::Suffix, &given.suffix, specs),
        "ImageTagTransformer" => images::set(resources, &given.image_tag, specs),
        "ReplicaCountTransformer" => replicas::set(resources, &given.replica, specs),
        "ReplacementTransformer" => replacements::apply(resources, &replacements::load(&given.replacements, root)?),
        "NamespaceTransformer" => namespace(&given, plugin.namespace()).and_then(|it| it.apply(resources)),
        "PatchTransformer" => {
            let patch = Patch { path: given.path, patch: given.patch, target: given.target, options: given.options };
            patches::Prepared::of(&patch, root)?.apply(resources, schemas)
        }
        "PatchStrategicMergeTransformer" => {
            let mut entries = given.paths;
            entries.extend(Some(given.patches).filter(|inline| !inline.is_empty()));
            patches::strategic(resources, &entries, root, schemas)
        }
        "PatchJson6902Transformer" => {
            let patch = Patch { path: given.path, patch: given.json_op, target: given.target, options: None };
            patches::json6902(resources, &patch, root)
        }
        "SortOrderTransformer" => order::sort(resources, given.sort_options.as_ref(), true),
        "LegacyOrderTransformer" => order::sort(resources, None, false),
        "HashTransformer" => {
            hash(resources);
            Ok(())
        }
        "ValueAddTransformer" => value_add(&given, root, resources),
        _ => Err(Error::new(format!("unable to load builtin {}", plugin.gvk()))),
    }
}

fn namespace<'a>(given: &'a Fields, namespace: &'a str) -> Result<Namespace<'a>, Error> {
    let subjects = match &*given.set_role_binding_subjects {
        "" | "defaultOnly" => Subjects::Default,
        "allServiceAccounts" => Subjects::ServiceAccounts,
        "none" => Subjects::None,
        other => {
            return Err(Error::new(format!(
                "invalid value {other:?} for setRoleBindingSubjects: must be one of \"defaultOnly\", \"none\" or \"allServiceAccounts\""
            )));
        }
    };
    Ok(Namespace { namespace, specs: &given.field_specs, unset_only: given.unset_only, subjects })
}

/// Adds the hashes of their contents to names.
pub fn hash(resources: &mut Resources) {
    for resource in resources.iter_mut().filter(|resource| resource.needs_hash) {
        let name = format!("{}-{}", resource.name(), generate::hash(&resource.value));
        resource.remember_id();
        resource.set_name(&name);
    }
}

fn value_add(given: &Fields, root: &Root, resources: &mut Resources) -> Result<(), Error> {
    let name = root.directory().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let value = if given.value.trim().is_empty() { name } else { given.value.trim().to_owned() };
    if given.targets.is_empty() {
        return Err(Error::new("must specify at least one target"));
    }
    for place in &given.targets {
        if place.field_path.is_empty() {
            return Err(Error::new("fieldPath cannot be empty"));
        }
        let matcher = place.selector.as_ref().map(Selector::compiled).transpose()?;
        for resource in resources.iter_mut().filter(|it| matcher.as_ref().is_none_or(|matcher| matcher.selects(it))) {
            if place.field_path == "metadata/namespace" {
                let specs = Config::default().namespace;
                let own =
                    Namespace { namespace: &value, specs: &specs, unset_only: false, subjects: Subjects::Default };
                own.set(resource)?;
                continue;
            }
            let spec = FieldSpec { path: place.field_path.clone(), create: true, ..FieldSpec::default() };
            spec.apply(resource, Make::Scalar, &mut |field| {
                *field = Value::String(value.clone());
                Ok(())
            })?;
        }
    }
    Ok(())
}
