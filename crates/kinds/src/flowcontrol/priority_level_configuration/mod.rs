//! PriorityLevelConfigurations.

pub mod columns;

use std::sync::LazyLock;

use machinery::status::FieldError;
use machinery::{Value, value};
use rules::flow_control::{mandatory, priority_levels};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::flowcontrol::flow_schema::status;
use crate::keep::{keep, keep_object_meta};
use crate::strategy::{Flags, Strategy};

static MANDATORY_LEVELS: LazyLock<Vec<Value>> = LazyLock::new(|| mandatory(priority_levels()));

pub struct PriorityLevels;

impl Strategy for PriorityLevels {
    fn flags(&self) -> Flags {
        Flags { status_resets_metadata: true, counts_generations: true, ..Flags::USUAL }
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        keep_object_meta(new, old);
        keep(new, old, "metadata.deletionGracePeriodSeconds");
    }

    fn default(&self, level: &mut Value) {
        if value::at(level, "spec.exempt").is_some_and(Value::is_object) {
            value::set_default(level, "spec.exempt.nominalConcurrencyShares", 0);
            value::set_default(level, "spec.exempt.lendablePercent", 0);
        }
        if value::at(level, "spec.limited").is_some_and(Value::is_object) {
            value::set_default(level, "spec.limited.nominalConcurrencyShares", 30);
            value::set_default(level, "spec.limited.lendablePercent", 0);
        }
        if let Some(queuing) =
            value::at_mut(level, "spec.limited.limitResponse.queuing").filter(|queuing| queuing.is_object())
        {
            for (field, filling) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                if value::int(queuing, field).unwrap_or(0) == 0 {
                    value::set(queuing, field, filling);
                }
            }
        }
    }

    fn prepare_for_create(&self, level: &mut Value) {
        value::set(level, "status", json!({}));
    }

    fn validate(&self, level: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(level);
        let spec = root.at("spec");
        let kind = spec.at("type");
        if (root.text_at("metadata.name") == "exempt") != (kind.text() == "Exempt") {
            errors.invalid_text(&kind, "must be 'Exempt' if and only if `name` is 'exempt'");
        }
        let (exempt, limited) = (spec.at("exempt"), spec.at("limited"));
        match kind.text() {
            "Exempt" => {
                errors.forbidden_if_set(&limited, "");
                shares(&exempt, &mut errors);
            }
            "Limited" => {
                errors.forbidden_if_set(&exempt, "");
                if limited.is_set() {
                    validate_limited(&limited, &mut errors);
                } else {
                    errors.required(&limited, "");
                }
            }
            _ => {
                if !kind.text().is_empty() {
                    errors.not_supported(&kind, &["Exempt", "Limited"]);
                }
                errors.forbidden_if_set(&exempt, "");
                errors.forbidden_if_set(&limited, "");
            }
        }
        mandatory_level(&root, &spec, &mut errors);
        // Upstream says last what the schema alone can say.
        errors.required_text(&kind);
        if kind.text() == "Limited" && limited.is_set() {
            errors.required_text(&limited.at("limitResponse.type"));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        status(new)
    }
}

/// What is mandatory stays as it is, except how much of it the level for everything exempt lends.
fn mandatory_level(root: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    let name = root.text_at("metadata.name");
    let Some(fixed) = MANDATORY_LEVELS.iter().find(|fixed| fixed["metadata"]["name"] == name) else { return };
    let mut given = spec.value().clone();
    let mut but = "";
    if name == "exempt" {
        given["exempt"] = fixed["spec"]["exempt"].clone();
        but = " except the 'spec.exempt' field";
    }
    if given != fixed["spec"] {
        errors.invalid(spec, format!("spec of '{name}'{but} must equal the fixed value"));
    }
}

fn shares(at: &At<'_, '_>, errors: &mut Errors) {
    let nominal = at.at("nominalConcurrencyShares");
    if nominal.int().is_some_and(|shares| shares < 0) {
        errors.invalid(&nominal, "must be a non-negative integer");
    }
    let lendable = at.at("lendablePercent");
    if lendable.int().is_some_and(|percent| !(0..=100).contains(&percent)) {
        errors.invalid(&lendable, "must be between 0 and 100, inclusive");
    }
}

fn validate_limited(at: &At<'_, '_>, errors: &mut Errors) {
    shares(at, errors);
    let response = at.at("limitResponse");
    let queuing = response.at("queuing");
    match response.text_at("type") {
        "Reject" => errors.forbidden_if_set(&queuing, ""),
        "Queue" if !queuing.is_set() => errors.required(&queuing, ""),
        "Queue" => validate_queuing(&queuing, errors),
        _ => {
            let kind = response.at("type");
            if !kind.text().is_empty() {
                errors.not_supported(&kind, &["Queue", "Reject"]);
            }
            errors.forbidden_if_set(&queuing, "");
        }
    }
    let borrowing = at.at("borrowingLimitPercent");
    if borrowing.int().is_some_and(|percent| percent < 0) {
        errors.invalid(&borrowing, "if specified, must be a non-negative integer");
    }
}

fn validate_queuing(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST_QUEUES: i64 = 10_000_000;
    const MOST_BITS: u32 = 60;
    let (length, queues, hand) = (at.at("queueLengthLimit"), at.at("queues"), at.at("handSize"));
    if length.int().unwrap_or(0) <= 0 {
        errors.invalid_int(&length, "must be positive");
    }
    let decks = queues.int().unwrap_or(0);
    if decks <= 0 {
        errors.invalid_int(&queues, "must be positive");
    } else if decks > MOST_QUEUES {
        errors.invalid(&queues, format!("must not be greater than {MOST_QUEUES}"));
    }
    let cards = hand.int().unwrap_or(0);
    if cards <= 0 {
        errors.invalid_int(&hand, "must be positive");
    } else if cards > decks {
        errors.invalid(&hand, format!("should not be greater than queues ({decks})"));
    } else if entropy(decks, cards) > MOST_BITS {
        errors.invalid(
            &hand,
            format!(
                "required entropy bits of deckSize {decks} and handSize {cards} should not be greater than {MOST_BITS}"
            ),
        );
    }
}

/// How many bits it takes to deal a hand from a deck.
fn entropy(deck: i64, hand: i64) -> u32 {
    let bits: f64 = (0..hand).map(|dealt| ((deck - dealt) as f64).log2()).sum();
    bits.ceil() as u32
}
