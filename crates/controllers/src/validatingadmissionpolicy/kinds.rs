//! What is known of kinds: those that are built in, and those that definitions make.

use std::sync::Arc;

use cel::Type;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};

/// The kinds that a policy can be about.
pub(super) struct Kinds {
    pub(super) definitions: Vec<Arc<CustomResourceDefinition>>,
}

impl Kinds {
    /// The kind of a resource.
    pub(super) fn kind(&self, group: &str, version: &str, resource: &str) -> Option<String> {
        if let Some(known) = facts::resource(group, version, resource) {
            return Some(known.kind.to_string());
        }
        let (definition, _) = self.find(group, version, |definition| definition.spec.names.plural == resource)?;
        Some(definition.spec.names.kind.clone())
    }

    /// The type of the objects of a kind.
    pub(super) fn type_of(&self, group: &str, version: &str, kind: &str) -> Option<Type> {
        if let Some(known) = cel::schema::of_kind(group, version, kind) {
            return Some(known);
        }
        let (_, version) = self.find(group, version, |definition| definition.spec.names.kind == kind)?;
        let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
        let schema = apiextensions::Schema::read(&serde_json::to_value(schema).ok()?).ok()?;
        apiextensions::rules::of_kind(&schema, kind)
    }

    fn find(
        &self,
        group: &str,
        version: &str,
        is_it: impl Fn(&CustomResourceDefinition) -> bool,
    ) -> Option<(&CustomResourceDefinition, &CustomResourceDefinitionVersion)> {
        let definition = self.definitions.iter().find(|one| one.spec.group == group && is_it(one))?;
        let version = definition.spec.versions.iter().find(|one| one.name == version && one.served)?;
        Some((definition, version))
    }
}
