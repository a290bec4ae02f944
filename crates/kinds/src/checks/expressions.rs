//! The expressions of webhooks, policies and devices' selectors must compile, to what they are for, over the variables they may use.

use std::sync::{Arc, LazyLock};

use cel::policy::{Uses, compile, declarations, variables};
use cel::{Declarations, ObjectType, Type};
use machinery::{Value, value};

use crate::checks::{At, Errors};

fn check(at: &At<'_, '_>, declarations: &Declarations, wanted: &[Type], errors: &mut Errors) {
    // One that is missing is complained of elsewhere.
    if at.text().trim().is_empty() {
        return;
    }
    if let Err(why) = compile(at.text(), declarations, wanted) {
        errors.invalid(at, why);
    }
}

/// Of a match condition of a webhook.
pub fn condition(expression: &At<'_, '_>, errors: &mut Errors) {
    check(expression, &declarations(Uses { params: false, authorizer: true }), &[Type::Bool], errors);
}

fn check_conditions(list: &At<'_, '_>, declarations: &Declarations, errors: &mut Errors) {
    for condition in list.items() {
        check(&condition.at("expression"), declarations, &[Type::Bool], errors);
    }
}

pub fn policy(tree: &Value, spec: &At<'_, '_>, mutating: bool, errors: &mut Errors) {
    let mut declared = declarations(Uses { params: spec.has("paramKind"), authorizer: true });
    let composed = variables(value::list(tree, "spec.variables"), &mut declared);
    for (variable, composed) in spec.at("variables").items().zip(&composed) {
        if let Err(why) = &composed.program
            && !variable.text_at("expression").trim().is_empty()
        {
            errors.invalid(&variable.at("expression"), why.clone());
        }
    }
    check_conditions(&spec.at("matchConditions"), &declared, errors);
    if mutating {
        declared.builds_objects = true;
        let patches = [Type::list(Type::Named("JSONPatch".into())), Type::list(Type::Dyn)];
        for mutation in spec.at("mutations").items() {
            let patch = mutation.at("jsonPatch.expression");
            // An empty list may be one of patches, which is all that the message says.
            if compile(patch.text(), &declared, &patches).is_err() {
                check(&patch, &declared, &patches[..1], errors);
            }
            let object = [Type::Named("Object".into())];
            check(&mutation.at("applyConfiguration.expression"), &declared, &object, errors);
        }
        return;
    }
    let mut plain = declared.clone();
    plain.remove("authorizer");
    plain.remove("authorizer.requestResource");
    for validation in spec.at("validations").items() {
        check(&validation.at("expression"), &declared, &[Type::Bool], errors);
        check(&validation.at("messageExpression"), &plain, &[Type::String], errors);
    }
    for annotation in spec.at("auditAnnotations").items() {
        check(&annotation.at("valueExpression"), &plain, &[Type::String, Type::Null], errors);
    }
}

static DEVICE: LazyLock<Declarations> = LazyLock::new(|| {
    let by_domain = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
    let mut declarations = Declarations::default();
    let fields = [
        ("driver", Type::String),
        ("attributes", by_domain(Type::Any)),
        ("capacity", by_domain(Type::Named("kubernetes.Quantity".into()))),
        ("allowMultipleAllocations", Type::Bool),
    ];
    declarations.add("device", ObjectType::declare("kubernetes.DRADevice", fields));
    declarations.binds = true;
    declarations
});

/// The most that a selector may cost, by estimate.
const MAX_DEVICE_COST: u64 = 1_000_000;

/// How large the parts of a device can be: names and domains, attributes and capacities.
fn device_sizes(path: &[Arc<str>]) -> Option<u64> {
    let (driver, domain, id, entries, attribute) = (63, 63, 32, 32, 64);
    let path: Vec<&str> = path.iter().map(|part| &**part).collect();
    match path.as_slice() {
        ["device", "driver"] => Some(driver),
        ["device", "allowMultipleAllocations"] => Some(1),
        ["device", "attributes" | "capacity"] | ["device", "attributes" | "capacity", "@values"] => Some(entries),
        ["device", "attributes" | "capacity", "@keys"] => Some(domain),
        ["device", "attributes" | "capacity", "@values", "@keys"] => Some(id),
        ["device", "attributes", "@values", _] => Some(attribute),
        _ => None,
    }
}

/// Of what selects devices: a truth, or an attribute, which may be one.
pub fn device(at: &At<'_, '_>, errors: &mut Errors) {
    let program = match cel::Program::compile(at.text(), &DEVICE) {
        Ok(program) => program,
        Err(why) => return errors.invalid(at, format!("compilation failed: {why}")),
    };
    if !matches!(program.output(), Type::Bool | Type::Any) {
        errors
            .invalid(at, "must evaluate to bool or the unknown type, not ".to_owned() + &program.output().to_string());
        return;
    }
    if program.estimate(&DEVICE, &device_sizes) > MAX_DEVICE_COST {
        errors.forbidden(at, "too complex, exceeds cost limit");
    }
}
