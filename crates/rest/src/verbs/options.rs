//! The options of writes: `CreateOptions`, `UpdateOptions`, `PatchOptions` and `DeleteOptions`.

use machinery::query::Query;
use machinery::status::{ApiError, FieldError};
use machinery::{Value, objectmeta};

/// How strictly unknown and duplicate fields are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    /// They are dropped, with a warning.
    Warn,
    /// They refuse the request.
    Strict,
}

/// What every write may say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    /// Everything but the write itself.
    pub dry_run: bool,
    /// Who is changing fields.
    pub field_manager: String,
    /// How strictly to read.
    pub field_validation: FieldValidation,
}

impl WriteOptions {
    /// Reads the query. `kind` is the options' kind, for the error.
    pub fn parse(query: &Query, kind: &str) -> Result<Self, ApiError> {
        Self::read(query, kind, Vec::new())
    }

    /// Reads the query of a patch.
    pub fn of_patch(query: &Query, applies: bool) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        if !applies && query.has("force") {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        if applies && query.get("fieldManager").is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        Self::read(query, "PatchOptions", errors)
    }

    fn read(query: &Query, kind: &str, mut errors: Vec<FieldError>) -> Result<Self, ApiError> {
        let manager = query.get("fieldManager");
        objectmeta::validate_field_manager(manager, "fieldManager", &mut errors);
        let dry_run = dry_run(query.all("dryRun"), &mut errors);
        let field_validation = match query.get("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(FieldError::not_supported("fieldValidation", other, ["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        if errors.is_empty() {
            Ok(Self { dry_run, field_manager: manager.to_owned(), field_validation })
        } else {
            Err(ApiError::invalid("meta.k8s.io", kind, "", &errors))
        }
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|value| *value != "All") {
        errors.push(FieldError::not_supported("dryRun", values.clone(), ["All"]));
    }
    values.contains(&"All")
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    Orphan,
}

/// `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Everything but the deletion itself.
    pub dry_run: bool,
    /// Seconds until the object goes; negative is 1.
    pub grace_period: Option<i64>,
    pub propagation: Option<Propagation>,
    /// The deprecated form of [`Propagation::Orphan`].
    pub orphan_dependents: Option<bool>,
    /// Only the object with this uid.
    pub uid: Option<String>,
    /// Only the object at this version.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// From the body, if there is one, otherwise from the query.
    pub fn parse(query: &Query, body: Option<&Value>) -> Result<Self, ApiError> {
        let mut errors = Vec::new();
        let mut options = Self::default();
        let propagation;
        match body {
            Some(body) => {
                let text = |path: &str| machinery::value::at(body, path).and_then(Value::as_str).map(str::to_owned);
                options.grace_period = machinery::value::int(body, "gracePeriodSeconds");
                options.orphan_dependents = body.get("orphanDependents").and_then(Value::as_bool);
                options.uid = text("preconditions.uid");
                options.resource_version = text("preconditions.resourceVersion");
                propagation = text("propagationPolicy");
                let values = machinery::value::list(body, "dryRun").iter().filter_map(Value::as_str);
                options.dry_run = dry_run(values, &mut errors);
            }
            None => {
                options.grace_period = query.int("gracePeriodSeconds")?;
                options.orphan_dependents = query.has("orphanDependents").then(|| query.flag("orphanDependents"));
                propagation = query.has("propagationPolicy").then(|| query.get("propagationPolicy").to_owned());
                options.dry_run = dry_run(query.all("dryRun"), &mut errors);
            }
        }
        if let Some(policy) = propagation {
            match policy.as_str() {
                "Background" => options.propagation = Some(Propagation::Background),
                "Foreground" => options.propagation = Some(Propagation::Foreground),
                "Orphan" => options.propagation = Some(Propagation::Orphan),
                other => {
                    let supported = ["Foreground", "Background", "Orphan", "nil"];
                    errors.push(FieldError::not_supported("propagationPolicy", other, supported));
                }
            }
            if options.orphan_dependents.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", policy, detail));
            }
        }
        if let Some(period) = &mut options.grace_period
            && *period < 0
        {
            *period = 1;
        }
        if errors.is_empty() {
            Ok(options)
        } else {
            Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &errors))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bad_options_are_named() {
        let error = WriteOptions::parse(&Query::parse("dryRun=Some&fieldValidation=x"), "CreateOptions");
        let message = error.expect_err("refused").message;
        assert!(message.starts_with("CreateOptions.meta.k8s.io \"\" is invalid: [dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""), "{message}");
    }

    #[test]
    fn a_patch_says_who_applies_and_forces_nothing_else() {
        let refused =
            |query: &str, applies| WriteOptions::of_patch(&Query::parse(query), applies).expect_err("refused").message;
        assert_eq!(
            refused("force=false", false),
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
        );
        assert_eq!(
            refused("dryRun=x", true),
            "PatchOptions.meta.k8s.io \"\" is invalid: [fieldManager: Required value: is required for apply patch, dryRun: Unsupported value: [\"x\"]: supported values: \"All\"]"
        );
        assert!(WriteOptions::of_patch(&Query::parse("fieldManager=m&force=false"), true).is_ok());
    }

    #[test]
    fn deletion_reads_the_body_before_the_query() {
        let body = json!({"gracePeriodSeconds": -5, "propagationPolicy": "Orphan", "preconditions": {"uid": "u"}});
        let options = DeleteOptions::parse(&Query::parse("gracePeriodSeconds=3"), Some(&body)).expect("options");
        assert_eq!(options.grace_period, Some(1));
        assert_eq!(options.propagation, Some(Propagation::Orphan));
        assert_eq!(options.uid.as_deref(), Some("u"));
        // All that counts is in the body, also what it does not say.
        assert!(!DeleteOptions::parse(&Query::parse("dryRun=All"), Some(&json!({}))).expect("options").dry_run);
        let options = DeleteOptions::parse(&Query::parse("gracePeriodSeconds=3"), None).expect("options");
        assert_eq!(options.grace_period, Some(3));
    }
}
