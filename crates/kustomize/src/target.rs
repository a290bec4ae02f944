//! One kustomization: its resources are accumulated, its generators add to them, its components and transformers change them.

use std::cell::OnceCell;
use std::rc::Rc;

use machinery::codec::yaml;
use machinery::{Value, value};

use crate::accumulator::Accumulator;
use crate::config::Config;
use crate::files::Root;
use crate::kustomization::{COMPONENT, DataArgs, GeneratorOptions, Kustomization};
use crate::origin::{self, Origin};
use crate::resource::Resource;
use crate::resources::Resources;
use crate::schema::Schemas;
use crate::transform::namespace::{Namespace, Subjects};
use crate::transform::prefixes::{End, add};
use crate::transform::{images, labels, order, patches, replacements, replicas};
use crate::{Error, Options, crds, documents, generate, names, plugins};

/// How deep kustomizations may be inside each other. Roots cannot contain each other, so no circle gets here.
const DEEPEST: usize = 128;

/// The kustomize that is imitated, as it names itself in labels.
const VERSION: &str = "v5.8.1";

pub struct Target {
    root: Root,
    given: Kustomization,
    /// The name of the kustomization file.
    file_name: &'static str,
    depth: usize,
    /// The way here from the top, if origins are wanted.
    place: Option<String>,
    /// The schemas of the whole build: the first kustomization that names some decides.
    schemas: Rc<OnceCell<Schemas>>,
}

type Warn<'a> = &'a mut dyn FnMut(&str);

impl Target {
    pub fn load(root: Root, warn: Warn<'_>) -> Result<Self, Error> {
        let (given, file_name) = Kustomization::load(&root, warn)?;
        let place = Some(String::new()).filter(|_| !given.build_metadata.is_empty());
        let target = Self { root, given, file_name, depth: 0, place, schemas: Rc::default() };
        target.choose_schemas()?;
        Ok(target)
    }

    fn choose_schemas(&self) -> Result<(), Error> {
        let Some(openapi) = self.given.openapi.as_ref().filter(|_| self.schemas.get().is_none()) else { return Ok(()) };
        let chosen = match (openapi.get("path"), openapi.get("version")) {
            (Some(_), Some(_)) => {
                return Err(Error::new("builtin version and custom schema provided, cannot use both"));
            }
            (Some(path), None) => Schemas::custom(&self.root.read(path)?)?,
            (None, Some(version)) => Schemas::version(version)?,
            (None, None) => return Ok(()),
        };
        // It was looked at above: nobody else chose.
        let _ = self.schemas.set(chosen);
        Ok(())
    }

    /// A kustomization that this one names.
    fn inner(&self, root: Root, path: &str, warn: Warn<'_>) -> Result<Self, Error> {
        let (mut given, file_name) = Kustomization::load(&root, warn)?;
        given.build_metadata.clone_from(&self.given.build_metadata);
        let place = self.place.as_ref().map(|place| origin::join(place, path));
        Ok(Self { root, given, file_name, depth: self.depth + 1, place, schemas: Rc::clone(&self.schemas) })
    }

    /// All that is to be written, in its order.
    pub fn build(&self, options: Options, warn: Warn<'_>) -> Result<Resources, Error> {
        let mut all = self.accumulate(Accumulator::default(), warn)?;
        plugins::hash(&mut all.resources);
        names::fix(&mut all.resources, &all.config.name_reference)?;
        all.variables.resolve(&mut all.resources, &all.config.var_reference, warn)?;
        all.resources.drop_local();
        order::sort(&mut all.resources, self.given.sort_options.as_ref(), options.keep_order)?;
        if options.managed_by_label || self.given.build_metadata.iter().any(|wanted| wanted == "managedByLabel") {
            let label = [("app.kubernetes.io/managed-by".to_owned(), format!("kustomize-{VERSION}"))].into();
            labels::set(&mut all.resources, &label, &labels::specs(&Default::default(), &Config::default())?)?;
        }
        for resource in all.resources.iter_mut() {
            clean(resource);
            origin::annotate(resource, &self.given.build_metadata);
        }
        Ok(all.resources)
    }

    fn accumulate(&self, all: Accumulator, warn: Warn<'_>) -> Result<Accumulator, Error> {
        let mut all =
            self.resources(all, &self.given.resources, warn).map_err(|error| error.within("accumulating resources"))?;
        all.config.merge(&Config::load(&self.root, &self.given.configurations)?)?;
        let definitions = crds::config(&self.root, &self.given.crds);
        let definitions =
            definitions.map_err(|error| error.within(format!("loading CRDs [{}]", self.given.crds.join(" "))))?;
        all.config.merge(&definitions)?;
        self.generate(&mut all, warn)?;
        for path in &self.given.components {
            all = self.component(all, path, warn).map_err(|error| error.within("accumulating components"))?;
        }
        self.transform(&mut all, warn)?;
        self.validate(&all, warn)?;
        let vars = self.given.vars.clone().unwrap_or_default();
        all.variables.add(&vars, &mut all.resources)?;
        Ok(all)
    }

    /// Adds what paths lead to: files of objects, or directories with kustomizations.
    fn resources(&self, mut all: Accumulator, paths: &[String], warn: Warn<'_>) -> Result<Accumulator, Error> {
        for path in paths {
            let Err(as_file) = self.file(&mut all, path) else { continue };
            let root = match self.root.base(path) {
                Ok(root) => root,
                Err(_) if as_file.to_string().contains("MalformedYAMLError") => return Err(as_file),
                Err(error) => return Err(error.within(format!("accumulation err='{as_file}'"))),
            };
            all = self
                .directory(all, (root, path), false, warn)
                .map_err(|error| error.within(format!("accumulation err='{as_file}'")))?;
        }
        Ok(all)
    }

    fn file(&self, all: &mut Accumulator, path: &str) -> Result<(), Error> {
        let from = |error: Error| error.within(format!("accumulating resources from '{path}'"));
        let content = self.root.read(path).map_err(from)?;
        let found = documents::resources(&content).map_err(|error| {
            let malformed = error.to_string().starts_with("MalformedYAMLError");
            from(if malformed { Error::new(format!("{error} in File: {path}")) } else { error })
        })?;
        let appended = all.resources.append_all(self.from(path, found));
        appended.map_err(|error| error.within(format!("merging resources from '{path}'")))
    }

    /// Resources that say which file they are from, if that is wanted.
    fn from(&self, path: &str, resources: Vec<Resource>) -> impl Iterator<Item = Resource> {
        let origin = self.place.as_ref().map(|place| Origin::file(origin::join(place, path)));
        resources.into_iter().map(move |mut resource| {
            resource.origin.clone_from(&origin);
            resource
        })
    }

    fn component(&self, all: Accumulator, path: &str, warn: Warn<'_>) -> Result<Accumulator, Error> {
        let root = self.root.base(path).map_err(|error| Error::new(format!("loader.New {:?}", error.to_string())))?;
        let added = self.directory(all, (root, path), true, warn);
        added.map_err(|error| Error::new(format!("accumulateDirectory: {:?}", error.to_string())))
    }

    fn directory(
        &self,
        mut all: Accumulator,
        (root, from): (Root, &str),
        component: bool,
        warn: Warn<'_>,
    ) -> Result<Accumulator, Error> {
        let path = root.directory().display().to_string();
        if self.depth >= DEEPEST {
            return Err(Error::new(format!("kustomizations are more than {DEEPEST} levels deep at '{path}'")));
        }
        let inner = self
            .inner(root, from, warn)
            .map_err(|error| error.within(format!("couldn't make target for path '{path}'")))?;
        inner.choose_schemas()?;
        match (component, inner.given.kind == COMPONENT) {
            (true, false) => {
                let kind = &inner.given.kind;
                return Err(Error::new(format!("expected kind '{COMPONENT}' for path '{path}' but got '{kind}'")));
            }
            (false, true) => return Err(Error::new(format!("expected kind != '{COMPONENT}' for path '{path}'"))),
            _ => {}
        }
        // A component works on what is there; a base stands alone first.
        let start = if component { std::mem::take(&mut all) } else { Accumulator::default() };
        let made = inner
            .accumulate(start, warn)
            .map_err(|error| error.within(format!("recursed accumulation of path '{path}'")))?;
        all.merge(made).map_err(|error| error.within(format!("recursed merging from path '{path}'")))?;
        Ok(all)
    }

    fn generate(&self, all: &mut Accumulator, warn: Warn<'_>) -> Result<(), Error> {
        let global = self.given.generator_options.as_ref();
        type Make = fn(&Root, &DataArgs) -> Result<Resource, Error>;
        let kinds: [(&[DataArgs], Make, &str); 2] = [
            (&self.given.config_map_generator, generate::config_map, "ConfigMapGenerator"),
            (&self.given.secret_generator, generate::secret, "SecretGenerator"),
        ];
        let mut made = Vec::new();
        for (args, make, kind) in kinds {
            for args in args {
                let mut args = args.clone();
                args.options = GeneratorOptions::merged(args.options, global);
                let mut resource = make(&self.root, &args)?;
                resource.origin = self.built_in(kind);
                made.push(resource);
            }
        }
        if let Some(chart) = self.given.helm_charts.first() {
            let chart = yaml::encode(chart);
            return Err(Error::new(format!(
                "trouble configuring builtin HelmChartInflationGenerator with config: `\n{chart}`: must specify --enable-helm"
            )));
        }
        let loading = |error: Error| error.within("loading generator plugins");
        for plugin in self.plugins(&self.given.generators, warn).map_err(loading)?.iter() {
            let resource = plugins::generate(plugin, &self.root);
            let mut resource = resource.map_err(loading)?;
            resource.origin = Origin::plugin(plugin);
            made.push(resource);
        }
        made.into_iter()
            .try_for_each(|made| all.resources.absorb(made).map_err(|error| error.within("merging from generator")))
    }

    /// Configurations of plug-ins: objects in the list itself, in files, or in directories.
    fn plugins(&self, entries: &[String], warn: Warn<'_>) -> Result<Resources, Error> {
        let mut all = Accumulator::default();
        let mut paths = Vec::new();
        for entry in entries {
            match documents::resources(entry.as_bytes()) {
                Ok(inline) => all.resources.append_all(self.from(self.file_name, inline))?,
                Err(_) => paths.push(entry.clone()),
            }
        }
        Ok(self.resources(all, &paths, warn)?.resources)
    }

    fn transform(&self, all: &mut Accumulator, warn: Warn<'_>) -> Result<(), Error> {
        let (given, root) = (&self.given, &self.root);
        let (resources, config) = (&mut all.resources, &all.config);
        let prepared: Vec<patches::Prepared> =
            given.patches.iter().map(|patch| patches::Prepared::of(patch, root)).collect::<Result<_, _>>()?;
        let plugins = self.plugins(&given.transformers, warn)?;
        if let Some(entries) = given.patches_strategic_merge.as_ref().filter(|entries| !entries.is_empty()) {
            patches::strategic(resources, entries, root, self.schemas())?;
            self.note(resources, "PatchStrategicMergeTransformer");
        }
        for patch in &prepared {
            patch.apply(resources, self.schemas())?;
            self.note(resources, "PatchTransformer");
        }
        if !given.namespace.is_empty() {
            let (namespace, specs) = (&given.namespace, &config.namespace);
            let moved = Namespace { namespace, specs, unset_only: false, subjects: Subjects::Default };
            moved.apply(resources)?;
            self.note(resources, "NamespaceTransformer");
        }
        if !given.name_prefix.is_empty() {
            add(resources, End::Prefix, &given.name_prefix, &config.name_prefix)?;
            self.note(resources, "PrefixTransformer");
        }
        if !given.name_suffix.is_empty() {
            add(resources, End::Suffix, &given.name_suffix, &config.name_suffix)?;
            self.note(resources, "SuffixTransformer");
        }
        self.label(resources, config)?;
        for patch in given.patches_json6902.iter().flatten() {
            patches::json6902(resources, patch, root)?;
            self.note(resources, "PatchJson6902Transformer");
        }
        for replica in &given.replicas {
            replicas::set(resources, replica, &config.replicas)?;
            self.note(resources, "ReplicaCountTransformer");
        }
        for image in &given.images {
            images::set(resources, image, &config.images)?;
            self.note(resources, "ImageTagTransformer");
        }
        if !given.replacements.is_empty() {
            replacements::apply(resources, &replacements::load(&given.replacements, root)?)?;
            self.note(resources, "ReplacementTransformer");
        }
        for plugin in plugins.iter() {
            plugins::transform(plugin, root, self.schemas(), resources)?;
            origin::transformed(resources.iter_mut(), Origin::plugin(plugin).as_ref());
            resources.drop_gone();
        }
        Ok(())
    }

    fn label(&self, resources: &mut Resources, config: &Config) -> Result<(), Error> {
        let given = &self.given;
        let common = given.common_labels.clone().unwrap_or_default();
        for label in &given.labels {
            labels::set(resources, &label.pairs, &labels::specs(label, config)?)?;
            self.note(resources, "LabelTransformer");
        }
        if !given.labels.is_empty() || !common.is_empty() {
            labels::set(resources, &common, &config.common_labels)?;
            self.note(resources, "LabelTransformer");
        }
        if !given.common_annotations.is_empty() {
            labels::set(resources, &given.common_annotations, &config.common_annotations)?;
            self.note(resources, "AnnotationsTransformer");
        }
        Ok(())
    }

    /// A built-in transformer is done: what it deleted goes, and what it changed says so.
    fn note(&self, resources: &mut Resources, kind: &str) {
        origin::transformed(resources.iter_mut(), self.built_in(kind).as_ref());
        resources.drop_gone();
    }

    /// The origin of what a built-in generator or transformer makes, where somebody wants to know.
    fn built_in(&self, kind: &str) -> Option<Origin> {
        let path = self.place.as_ref()?;
        Some(Origin::built_in(origin::join(path, self.file_name), kind))
    }

    fn schemas(&self) -> &Schemas {
        self.schemas.get().unwrap_or(&Schemas::BuiltIn)
    }

    /// Validators are transformers that change nothing.
    fn validate(&self, all: &Accumulator, warn: Warn<'_>) -> Result<(), Error> {
        for plugin in self.plugins(&self.given.validators, warn)?.iter() {
            let mut copy = all.resources.clone();
            plugins::transform(plugin, &self.root, self.schemas(), &mut copy)?;
            let same = copy.len() == all.resources.len()
                && copy.iter().zip(all.resources.iter()).all(|(one, other)| one.value == other.value);
            if !same {
                return Err(Error::new("validator shouldn't modify the resource map: nodes unequal"));
            }
        }
        Ok(())
    }
}

/// Takes out what only the build needed, and annotations that are empty.
fn clean(resource: &mut Resource) {
    let annotations = value::at(&resource.value, "metadata.annotations");
    if annotations.is_some_and(|all| all.is_null() || all.as_object().is_some_and(serde_json::Map::is_empty)) {
        value::remove(&mut resource.value, "metadata.annotations");
    }
    if let Some(Value::Object(all)) = value::at_mut(&mut resource.value, "metadata.annotations") {
        all.retain(|key, _| !key.starts_with("internal.config.kubernetes.io/"));
        // Annotations are texts, quoted or not.
        for text in all.values_mut().filter(|text| text.is_boolean() || text.is_number()) {
            *text = Value::String(text.to_string());
        }
    }
}
