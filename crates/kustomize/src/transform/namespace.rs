//! The namespace of all objects, and of those that they name.

use machinery::{Value, value};

use crate::Error;
use crate::fields::{FieldSpec, Make};
use crate::resource::Resource;
use crate::resources::Resources;

/// Which subjects of role bindings are moved along.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Subjects {
    /// Those that are named `default`.
    #[default]
    Default,
    ServiceAccounts,
    None,
}

pub struct Namespace<'a> {
    pub namespace: &'a str,
    pub specs: &'a [FieldSpec],
    /// Whether a namespace that is there stays.
    pub unset_only: bool,
    pub subjects: Subjects,
}

impl Namespace<'_> {
    pub fn apply(&self, resources: &mut Resources) -> Result<(), Error> {
        if self.namespace.is_empty() {
            return Ok(());
        }
        for resource in resources.iter_mut().filter(|resource| !resource.is_gone()) {
            resource.remember_id();
            self.set(resource)?;
        }
        match resources.conflict() {
            Some(id) => Err(Error::new(format!("namespace transformation produces ID conflict: {id}"))),
            None => Ok(()),
        }
    }

    pub fn set(&self, resource: &mut Resource) -> Result<(), Error> {
        let put = &mut |field: &mut Value| {
            if !(self.unset_only && field.as_str().is_some_and(|text| !text.is_empty())) {
                *field = Value::String(self.namespace.to_owned());
            }
            Ok(())
        };
        if !resource.gvk().is_cluster_scoped() {
            let own = FieldSpec { path: "metadata/namespace".to_owned(), create: true, ..FieldSpec::default() };
            own.apply(resource, Make::Scalar, put)?;
        }
        let is_binding = ["RoleBinding", "ClusterRoleBinding"].contains(&resource.kind());
        if is_binding {
            self.bind(resource);
        }
        let core = resource.text("apiVersion") == "v1";
        for spec in self.specs {
            let of_binding = is_binding
                && ["RoleBinding", "ClusterRoleBinding"].contains(&&*spec.kind)
                && spec.path == "subjects/namespace";
            let of_name = !core && spec.path == "metadata/name";
            if !of_binding && !of_name && spec.path != "metadata/namespace" {
                let done = spec.apply(resource, Make::Scalar, put);
                done.map_err(|error| error.within("namespace transformation failed"))?;
            }
        }
        Ok(())
    }

    fn bind(&self, resource: &mut Resource) {
        for subject in value::list_mut(&mut resource.value, "subjects") {
            let moves = match self.subjects {
                Subjects::Default => value::text(subject, "name") == "default",
                Subjects::ServiceAccounts => value::text(subject, "kind") == "ServiceAccount",
                Subjects::None => false,
            };
            if moves && (!self.unset_only || value::text(subject, "namespace").is_empty()) {
                value::set(subject, "namespace", self.namespace);
            }
        }
    }
}
