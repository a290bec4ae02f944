//! What holds for the objects of a custom resource: its schema, its expressions, its scale.

use std::sync::Arc;

use apiextensions::Version;
use kinds::strategy::{Flags, Scaling};
use machinery::status::FieldError;
use machinery::{Value, names, value};
use rest::registry::Strategy;

/// The rules of one version of a custom resource.
pub struct Custom {
    version: Arc<Version>,
}

impl Custom {
    pub fn new(version: Arc<Version>) -> Self {
        Self { version }
    }
}

impl Strategy for Custom {
    fn flags(&self) -> Flags {
        Flags {
            counts_generations: true,
            allows_unconditional_update: false,
            judges_finalizers: false,
            says_once: false,
            keeps_status_on_create: !self.version.status,
            ..Flags::USUAL
        }
    }

    fn desired_state_changed(&self, new: &Value, old: &Value) -> bool {
        fn desired(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
            object.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata")
        }
        desired(new).ne(desired(old))
    }

    fn resets(&self, subresource: &str, _has_status: bool) -> &'static [&'static str] {
        match subresource {
            "" if self.version.status => &["status"],
            "status" => &["spec", "metadata"],
            _ => &[],
        }
    }

    fn scaling(&self) -> Scaling<'_> {
        match &self.version.scale {
            None => Scaling { replicas: "", observed: "", selector: "" },
            Some(scale) => {
                Scaling { replicas: &scale.spec_replicas, observed: &scale.status_replicas, selector: &scale.selector }
            }
        }
    }

    fn read(&self, object: &mut Value) -> Option<Result<Vec<String>, String>> {
        Some(self.version.meaning().schema.coerce(object))
    }

    fn read_applied(&self, object: &mut Value) -> Option<Result<Vec<String>, String>> {
        // The server says when an object was made, whatever a client says, and be it no time at all.
        value::remove(object, "metadata.creationTimestamp");
        let read = apiextensions::Schema::coerce_metadata(object);
        // What an apply may name and the schema does not know is in no field with a type, and nobody is told of it.
        self.version.meaning().schema.prune(object);
        Some(read)
    }

    fn default(&self, object: &mut Value) {
        self.version.meaning().schema.default(object);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        let (status, record) = (value::remove(new, "status"), value::remove(new, "metadata.managedFields"));
        *new = old.clone();
        for (path, kept) in [("status", status), ("metadata.managedFields", record)] {
            match kept {
                Some(kept) => value::set(new, path, kept),
                None => drop(value::remove(new, path)),
            }
        }
    }

    fn validate(&self, new: &Value) -> Vec<FieldError> {
        self.version.meaning().judge(new, None, self.version.scale.as_ref()).errors
    }

    fn judge_update(&self, new: &Value, old: &Value) -> (Vec<FieldError>, Vec<String>) {
        let mut judged = self.version.meaning().judge(new, Some(old), self.version.scale.as_ref());
        judged.warnings.extend(self.warnings(new, Some(old)));
        (judged.errors, judged.warnings)
    }

    fn judge_status_update(&self, new: &Value, old: &Value) -> (Vec<FieldError>, Vec<String>) {
        let judged = self.version.meaning().judge_status(new, old, self.version.scale.as_ref());
        (judged.errors, judged.warnings)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        const AT: &str = "metadata.finalizers";
        let known: Vec<&str> =
            old.map(|old| value::list(old, AT).iter().filter_map(Value::as_str).collect()).unwrap_or_default();
        let mut added: Vec<&str> = value::list(new, AT).iter().filter_map(Value::as_str).collect();
        added.retain(|name| !known.contains(name));
        added.sort_unstable();
        added.dedup();
        let mut warnings = Vec::new();
        for name in added {
            warnings.extend(names::is_qualified_name(name).into_iter().map(|why| format!("{AT}: {name:?}: {why}")));
            if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
                let with = if name.contains('.') { " including a path (/)" } else { "" };
                warnings.push(format!(
                    "{AT}: {name:?}: prefer a domain-qualified finalizer name{with} to avoid accidental conflicts with other finalizer writers"
                ));
            }
        }
        warnings
    }
}
