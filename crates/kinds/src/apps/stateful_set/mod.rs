//! StatefulSets.

pub mod columns;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::workloads::{
    TEMPLATE, TEMPLATE_SPEC, always_restarts, amount, check_selector, collisions, matches_template, not_above,
    not_above_all, number_or_percent, template_warnings,
};
use crate::checks::{At, Errors};
use crate::core::pod::{defaults, spec as pod_spec, warnings};
use crate::core::{persistent_volume_claim as claim, pod};
use crate::strategy::{Flags, NameRule, Strategy};

pub struct StatefulSets;

impl Strategy for StatefulSets {
    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn default(&self, object: &mut Value) {
        defaults::default(object, TEMPLATE_SPEC);
        value::set_default(object, "spec.replicas", 1);
        value::set_default(object, "spec.revisionHistoryLimit", 10);
        value::set_default(object, "spec.podManagementPolicy", "OrderedReady");
        // Who names the strategy, and nothing of it, is left with that.
        let rolling = "spec.updateStrategy.rollingUpdate";
        if value::text(object, "spec.updateStrategy.type").is_empty() {
            value::set(object, "spec.updateStrategy.type", "RollingUpdate");
            value::set_default(object, rolling, json!({}));
        }
        let rolls = value::text(object, "spec.updateStrategy.type") == "RollingUpdate";
        if let Some(rolling) = value::at_mut(object, rolling).filter(|rolling| rolls && rolling.is_object()) {
            value::set_default(rolling, "partition", 0);
            value::set_default(rolling, "maxUnavailable", 1);
        }
        value::set_default(object, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain");
        value::set_default(object, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain");
        for claim in value::list_mut(object, "spec.volumeClaimTemplates") {
            value::set_default(claim, "spec.volumeMode", "Filesystem");
            value::set_default(claim, "status.phase", "Pending");
            value::set(claim, "apiVersion", "v1");
            value::set(claim, "kind", "PersistentVolumeClaim");
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        value::set(object, "status", json!({"replicas": 0, "availableReplicas": 0}));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        // The pods of a set are called after it, with an ordinal, and are hosts of that name.
        let name = value::text(object, "metadata.name");
        let problems = names::is_dns1123_label(name);
        if names::is_dns1123_subdomain(name).is_empty() {
            errors.extend(problems.into_iter().map(|problem| FieldError::invalid("metadata.name", name, problem)));
        }
        stateful_set(object, true, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        stateful_set(new, false, &mut errors);
        let (new, old) = (At::root(new), At::root(old));
        let (spec, before) = (new.at("spec"), old.at("spec"));
        for field in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
            errors.immutable(&spec.at(field), &before.at(field));
        }
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let status = root.at("status");
        let counts = [
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ];
        counts.iter().for_each(|field| errors.not_negative(&status.at(field)));
        let counted = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        not_above(&status, &counted, "status.readyReplicas", &mut errors);
        collisions(&status, old, &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = template_warnings(new, old, TEMPLATE);
        let root = At::root(new);
        for claim in root.at("spec.volumeClaimTemplates").items() {
            // Upstream has the spec in these paths now and then, and never as users write it.
            let shown = if old.is_some() { format!("{claim}.Spec") } else { claim.to_string() };
            warnings::fractional_storage(&At::part(&shown, claim.at("spec").value()), &mut warnings);
        }
        if value::int(new, "spec.revisionHistoryLimit").is_some_and(|limit| limit < 0) {
            warnings.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
        }
        warnings
    }
}

/// What holds for a set. What a change may not touch is judged only when it is made.
fn stateful_set(object: &Value, made: bool, errors: &mut Errors) {
    let root = At::root(object);
    let spec = root.at("spec");
    let policy = spec.at("podManagementPolicy");
    match policy.text() {
        "" => errors.required(&policy, ""),
        "OrderedReady" | "Parallel" => {}
        _ => errors.invalid(&policy, "must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = spec.at("updateStrategy");
    let rolling = strategy.at("rollingUpdate");
    match strategy.text_at("type") {
        "" => errors.required(&strategy, ""),
        "OnDelete" if rolling.is_set() => errors.invalid(&rolling, "only allowed for updateStrategy 'RollingUpdate'"),
        "OnDelete" => {}
        "RollingUpdate" => {
            errors.not_negative(&rolling.at("partition"));
            let unavailable = rolling.at("maxUnavailable");
            if unavailable.is_set() {
                number_or_percent(&unavailable, errors);
                if amount(&unavailable) == 0 {
                    errors.invalid(&unavailable, "cannot be 0");
                }
                not_above_all(&unavailable, errors);
            }
        }
        _ => errors.invalid(&strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    if retention.is_set() {
        errors.one_of(&retention.at("whenDeleted"), &["Retain", "Delete"]);
        errors.one_of(&retention.at("whenScaled"), &["Retain", "Delete"]);
    }
    if made {
        for template in spec.at("volumeClaimTemplates").items() {
            claim::validate_spec(&template.at("spec"), true, errors);
        }
    }
    for field in ["replicas", "minReadySeconds", "ordinals.start"] {
        errors.not_negative(&spec.at(field));
    }
    let service = spec.at("serviceName");
    if made && !service.text().is_empty() {
        errors.problems(&service, names::is_dns1123_label(service.text()));
    }
    let chosen = spec.at("selector");
    check_selector(&chosen, "statefulset", errors);
    let template = stateful_template(&spec);
    let at = At::part(TEMPLATE, &template);
    // Upstream says no more than this of a selector that is none.
    match LabelSelector::from_value(chosen.value()) {
        Ok(_) => matches_template(&chosen, &at, errors),
        Err(_) => errors.invalid(&chosen, ""),
    }
    pod_spec::validate_template(&at, errors);
    always_restarts(&at, "StatefulSet", errors);
}

/// The template as the pods will have it: with a volume for each claim, and names of their own.
fn stateful_template(spec: &At<'_, '_>) -> Value {
    let mut template = spec.at("template").value().clone();
    value::remove(&mut template, "spec.subdomain");
    value::remove(&mut template, "spec.hostname");
    let mut seen: HashSet<&str> = HashSet::new();
    let claims = value::list(spec.value(), "volumeClaimTemplates").iter();
    let claims: Vec<&str> =
        claims.map(|claim| value::text(claim, "metadata.name")).filter(|name| seen.insert(name)).collect();
    if !claims.is_empty() {
        let made = claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        let own = value::list(&template, "spec.volumes")
            .iter()
            .filter(|volume| !seen.contains(value::text(volume, "name")))
            .cloned();
        let volumes: Vec<Value> = made.chain(own).collect();
        value::set(&mut template, "spec.volumes", volumes);
    }
    template
}
