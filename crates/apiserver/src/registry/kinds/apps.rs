//! Deployments, ReplicaSets, StatefulSets, DaemonSets, their revisions, and ReplicationControllers.

use std::collections::HashSet;

use machinery::object::Field;
use machinery::selector::label::LabelSelector;
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use super::super::strategy::{NameRule, Strategy, wish};
use super::claim;
use super::common::{At, Errors};
use super::pod::{self, defaults, spec as pod_spec, warnings};
use crate::rest::keep;

const TEMPLATE: &str = "spec.template";
const TEMPLATE_SPEC: &str = "spec.template.spec";

/// Deployments.
pub struct Deployments;

impl Strategy for Deployments {
    fn counts_generations(&self) -> bool {
        true
    }

    /// Annotations count too: they are copied to the ReplicaSets.
    fn wish_changed(&self, new: &Value, old: &Value) -> bool {
        let annotations = |object| value::at(object, "metadata.annotations").filter(|map| !map.is_null());
        wish(new).ne(wish(old)) || annotations(new) != annotations(old)
    }

    fn default(&self, object: &mut Value) {
        defaults::default(object, TEMPLATE_SPEC);
        value::set_default(object, "spec.replicas", 1);
        value::set_default(object, "spec.revisionHistoryLimit", 10);
        value::set_default(object, "spec.progressDeadlineSeconds", 600);
        value::set_default(object, "spec.strategy.type", "RollingUpdate");
        if value::text(object, "spec.strategy.type") == "RollingUpdate" {
            value::set_default(object, "spec.strategy.rollingUpdate.maxUnavailable", "25%");
            value::set_default(object, "spec.strategy.rollingUpdate.maxSurge", "25%");
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        value::set(object, "status", json!({}));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "metadata.labels");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        errors.not_negative(&spec.at("replicas"));
        selector_and_template(&spec, "deployment", "ReplicaSet", &mut errors);
        deployment_strategy(&spec.at("strategy"), &mut errors);
        errors.not_negative(&spec.at("minReadySeconds"));
        errors.not_negative(&spec.at("revisionHistoryLimit"));
        let deadline = spec.at("progressDeadlineSeconds");
        if let Some(seconds) = deadline.int() {
            errors.not_negative(&deadline);
            if seconds <= spec.at("minReadySeconds").int().unwrap_or(0) {
                errors.invalid(&deadline, "must be greater than minReadySeconds");
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, "spec.selector"));
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let status = root.at("status");
        let counts = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ];
        counts.iter().for_each(|field| errors.not_negative(&status.at(field)));
        not_above(&status, &["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", &mut errors);
        collisions(&status, old, &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template_warnings(new, old, TEMPLATE)
    }
}

fn deployment_strategy(at: &At<'_, '_>, errors: &mut Errors) {
    let rolling = at.at("rollingUpdate");
    match at.text_at("type") {
        "Recreate" => errors.forbidden_if_set(&rolling, "may not be specified when strategy `type` is 'Recreate'"),
        "RollingUpdate" if !rolling.is_set() => errors.required(&rolling, "this should be defaulted and never be nil"),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            number_or_percent(&unavailable, errors);
            number_or_percent(&surge, errors);
            if amount(&unavailable) == 0 && amount(&surge) == 0 {
                errors.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
            }
            not_above_all(&unavailable, errors);
        }
        _ => errors.push(not_supported(at, &["Recreate", "RollingUpdate"])),
    }
}

/// A value that upstream shows whole, though only its type is not supported.
fn not_supported(at: &At<'_, '_>, supported: &[&str]) -> FieldError {
    FieldError::not_supported(at.to_string(), at.value().clone(), supported.iter().copied())
}

/// ReplicaSets.
pub struct ReplicaSets;

impl Strategy for ReplicaSets {
    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        defaults::default(object, TEMPLATE_SPEC);
        value::set_default(object, "spec.replicas", 1);
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        value::set(object, "status", json!({"replicas": 0}));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        errors.not_negative(&spec.at("replicas"));
        errors.not_negative(&spec.at("minReadySeconds"));
        selector_and_template(&spec, "deployment", "ReplicaSet", &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, "spec.selector"));
        errors
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        replica_status(new)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template_warnings(new, old, TEMPLATE)
    }
}

/// What ReplicaSets and ReplicationControllers count.
fn replica_status(object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let root = At::root(object);
    let status = root.at("status");
    let counts = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    counts.iter().for_each(|field| errors.not_negative(&status.at(field)));
    not_above(&status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "readyReplicas", &mut errors);
    errors.into_vec()
}

/// No count is above that of all replicas, and no more are available than ready.
fn not_above(status: &At<'_, '_>, fields: &[&str], ready: &str, errors: &mut Errors) {
    let number = |field: &str| status.at(field).int().unwrap_or(0);
    for field in fields {
        if number(field) > number("replicas") {
            errors.invalid_int(&status.at(field), "cannot be greater than status.replicas");
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        errors.invalid_int(&status.at("availableReplicas"), format!("cannot be greater than {ready}"));
    }
}

fn collisions(status: &At<'_, '_>, old: &Value, errors: &mut Errors) {
    let count = status.at("collisionCount");
    if value::int(old, "status.collisionCount").is_some_and(|before| count.int().is_none_or(|after| after < before)) {
        errors.invalid_int(&count, "cannot be decremented");
    }
}

/// StatefulSets.
pub struct StatefulSets;

impl Strategy for StatefulSets {
    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn counts_generations(&self) -> bool {
        true
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

/// DaemonSets.
pub struct DaemonSets;

impl Strategy for DaemonSets {
    /// The count of templates is a part of what is wanted, though upstream keeps it in an annotation.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        set_template_generation(new, template_generation(old));
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        // Whoever writes one without the count is on record as its author, since every read has it.
        if template_generation(object) == 0 {
            set_template_generation(object, 0);
        }
        defaults::default(object, TEMPLATE_SPEC);
        value::set_default(object, "spec.revisionHistoryLimit", 10);
        value::set_default(object, "spec.updateStrategy.type", "RollingUpdate");
        if value::text(object, "spec.updateStrategy.type") == "RollingUpdate" {
            value::set_default(object, "spec.updateStrategy.rollingUpdate.maxUnavailable", 1);
            value::set_default(object, "spec.updateStrategy.rollingUpdate.maxSurge", 0);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        // Upstream still counts the templates it has seen, in an annotation.
        set_template_generation(object, 1);
        let status = json!({"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0});
        value::set(object, "status", status);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
        let before = template_generation(old);
        let changed = value::at(new, TEMPLATE) != value::at(old, TEMPLATE);
        if before != 0 || changed {
            set_template_generation(new, before + i64::from(changed));
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        let chosen = spec.at("selector");
        let template = spec.at("template");
        errors.label_selector(&chosen);
        let selector = LabelSelector::from_value(chosen.value());
        if selector.is_ok_and(|selector| !selector.matches_labels(template.at("metadata.labels").value())) {
            errors.invalid(&template.at("metadata.labels"), "`selector` does not match template `labels`");
        }
        if chosen.is_set() && chosen.at("matchLabels").is_empty() && chosen.at("matchExpressions").is_empty() {
            errors.invalid(&chosen, "empty selector is invalid for daemonset");
        }
        pod_spec::validate_template(&template, &mut errors);
        always_restarts(&template, "DaemonSet", &mut errors);
        errors.not_negative(&spec.at("minReadySeconds"));
        daemon_strategy(&spec.at("updateStrategy"), &mut errors);
        errors.not_negative(&spec.at("revisionHistoryLimit"));
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> = immutable(new, old, "spec.selector").into_iter().collect();
        errors.extend(self.validate(new));
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(new);
        let status = root.at("status");
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        counts.iter().for_each(|field| errors.not_negative(&status.at(field)));
        collisions(&status, old, &mut errors);
        errors.into_vec()
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template_warnings(new, old, TEMPLATE)
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Value) -> i64 {
    let annotation =
        value::at(object, "metadata.annotations").and_then(|annotations| annotations.get(TEMPLATE_GENERATION));
    annotation.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(object: &mut Value, generation: i64) {
    let annotations = value::object_mut(object, "metadata").entry("annotations").or_insert(Value::Null);
    value::as_object_mut(annotations).insert(TEMPLATE_GENERATION.to_owned(), json!(generation.to_string()));
}

fn daemon_strategy(at: &At<'_, '_>, errors: &mut Errors) {
    let rolling = at.at("rollingUpdate");
    match at.text_at("type") {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => errors.required(&rolling, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            for bound in [&unavailable, &surge] {
                number_or_percent(bound, errors);
            }
            for bound in [&unavailable, &surge] {
                not_above_all(bound, errors);
            }
            match (amount(&unavailable) != 0, amount(&surge) != 0) {
                (true, true) => errors.invalid(&surge, "may not be set when maxUnavailable is non-zero"),
                (false, false) => errors.required(&unavailable, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => errors.push(not_supported(at, &["RollingUpdate", "OnDelete"])),
    }
}

/// ReplicationControllers.
pub struct ReplicationControllers;

impl Strategy for ReplicationControllers {
    fn fields(&self) -> &'static [Field] {
        const { &[Field::count("status.replicas")] }
    }

    fn counts_generations(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if value::at(object, "spec.template").is_some_and(Value::is_object) {
            defaults::default(object, TEMPLATE_SPEC);
        }
        value::set_default(object, "spec.replicas", 1);
        if let Some(labels) = value::at(object, "spec.template.metadata.labels").cloned() {
            let is_empty =
                |path: &str| value::at(object, path).and_then(Value::as_object).is_none_or(|map| map.is_empty());
            let (selects, labelled) = (!is_empty("spec.selector"), !is_empty("metadata.labels"));
            if !selects {
                value::set(object, "spec.selector", labels.clone());
            }
            if !labelled {
                value::set(object, "metadata.labels", labels);
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        pod::drop_disabled(value::at_mut(object, TEMPLATE_SPEC));
        value::set(object, "status", json!({"replicas": 0}));
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        pod::drop_disabled(value::at_mut(new, TEMPLATE_SPEC));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        let spec = root.at("spec");
        errors.not_negative(&spec.at("minReadySeconds"));
        let chosen = spec.at("selector");
        if chosen.is_empty() {
            errors.required(&chosen, "");
        }
        let replicas = spec.at("replicas");
        if replicas.is_set() {
            errors.not_negative(&replicas);
        } else {
            errors.required(&replicas, "");
        }
        let template = spec.at("template");
        if !template.is_set() {
            errors.required(&template, "");
            return errors.into_vec();
        }
        let labels = template.at("metadata.labels");
        if chosen.entries().any(|(key, wanted)| labels.key(key).value() != wanted.value()) {
            errors.invalid(&labels, "`selector` does not match template `labels`");
        }
        pod_spec::validate_template(&template, &mut errors);
        always_restarts(&template, "ReplicationController", &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        replica_status(new)
    }

    fn orphans_by_default(&self) -> bool {
        true
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        // Of a change upstream takes the one before for the new one.
        let (new, old) = old.map_or((new, None), |old| (old, Some(new)));
        let chosen = value::at(new, TEMPLATE).is_some();
        if chosen { template_warnings(new, old, TEMPLATE) } else { Vec::new() }
    }
}

/// ControllerRevisions: what a set was, unchanging.
pub struct ControllerRevisions;

impl Strategy for ControllerRevisions {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(object);
        errors.not_negative(&root.at("revision"));
        let data = root.at("data");
        match data.value() {
            Value::Object(_) => {}
            Value::Null => errors.required(&data, "data is mandatory"),
            _ => errors.required(&data, "data must be a valid JSON object"),
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        errors.not_negative(&new.at("revision"));
        errors.immutable(&new.at("data"), &old.at("data"));
        errors.into_vec()
    }
}

/// Warnings about a template, unless nothing in it has changed.
pub fn template_warnings(new: &Value, old: Option<&Value>, path: &str) -> Vec<String> {
    let unchanged = old.is_some_and(|old| value::at(old, path) == value::at(new, path));
    if unchanged { Vec::new() } else { warnings::of_template(new, path) }
}

/// A selector that is there, in order, and not empty; and a template that it chooses.
fn selector_and_template(spec: &At<'_, '_>, what: &str, kind: &str, errors: &mut Errors) {
    let chosen = spec.at("selector");
    check_selector(&chosen, what, errors);
    let template = spec.at("template");
    matches_template(&chosen, &template, errors);
    pod_spec::validate_template(&template, errors);
    always_restarts(&template, kind, errors);
}

fn check_selector(at: &At<'_, '_>, what: &str, errors: &mut Errors) {
    if !at.is_set() {
        return errors.required(at, "");
    }
    errors.label_selector(at);
    if at.at("matchLabels").is_empty() && at.at("matchExpressions").is_empty() {
        errors.invalid(at, format!("empty selector is invalid for {what}"));
    }
}

fn matches_template(chosen: &At<'_, '_>, template: &At<'_, '_>, errors: &mut Errors) {
    let Ok(selector) = LabelSelector::from_value(chosen.value()) else {
        return errors.invalid(chosen, "invalid label selector");
    };
    // Without a selector nothing is chosen, so no template fits.
    if (!chosen.is_set() || !selector.is_empty()) && !selector.matches_labels(template.at("metadata.labels").value()) {
        errors.invalid(&template.at("metadata.labels"), "`selector` does not match template `labels`");
    }
}

fn always_restarts(template: &At<'_, '_>, kind: &str, errors: &mut Errors) {
    let policy = template.at("spec.restartPolicy");
    if policy.text() != "Always" {
        errors.not_supported(&policy, &["Always"]);
    }
    let deadline = template.at("spec.activeDeadlineSeconds");
    errors.forbidden_if_set(&deadline, &format!("activeDeadlineSeconds in {kind} is not Supported"));
}

/// A number, or a part of a whole.
pub fn number_or_percent(at: &At<'_, '_>, errors: &mut Errors) {
    match at.value() {
        Value::String(text) => errors.problems(at, names::is_valid_percent(text)),
        _ => errors.not_negative(at),
    }
}

/// The number, or the percentage as a number.
pub fn amount(at: &At<'_, '_>) -> i64 {
    match at.value() {
        Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}

/// Not more than all of them.
pub fn not_above_all(at: &At<'_, '_>, errors: &mut Errors) {
    let is_percent = names::is_valid_percent(at.text()).is_empty();
    if is_percent && amount(at) > 100 {
        errors.invalid(at, "must not be greater than 100%");
    }
}

/// A field that stays as it was made.
pub fn immutable(new: &Value, old: &Value, path: &str) -> Option<FieldError> {
    let (before, after) = (value::at(old, path), value::at(new, path));
    (before != after).then(|| FieldError::invalid(path, after.cloned().unwrap_or(Value::Null), "field is immutable"))
}
