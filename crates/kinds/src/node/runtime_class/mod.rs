//! RuntimeClasses.

pub mod columns;
#[cfg(test)]
mod tests;

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::{At, Errors};
use crate::core::pod::{resources, scheduling, warnings};
use crate::strategy::{Flags, Strategy};
use crate::wording::bytes::in_bytes;

pub struct RuntimeClasses;

impl Strategy for RuntimeClasses {
    fn flags(&self) -> Flags {
        Flags { judges_finalizers: false, allows_unconditional_update: false, ..Flags::USUAL }
    }

    fn validate(&self, class: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(class);
        let handler = root.at("handler");
        if errors.required_text(&handler) {
            for problem in names::name_is_dns_label(handler.text(), false) {
                errors.invalid(&handler, in_bytes(&problem));
            }
        }
        if root.has("overhead") {
            resources::overhead(&root.named("overhead", "overhead.podFixed"), &mut errors);
        }
        let scheduling = root.at("scheduling");
        errors.labels(&scheduling.at("nodeSelector"));
        let tolerations = scheduling.at("tolerations");
        scheduling::tolerations(&tolerations, &mut errors);
        let key = |toleration: &At<'_, '_>| {
            ["key", "operator", "value", "effect"].map(|field| toleration.text_at(field).to_owned())
        };
        for (index, toleration) in tolerations.items().enumerate() {
            if tolerations.items().take(index).any(|known| key(&known) == key(&toleration)) {
                errors.duplicate(&toleration, toleration.value().clone());
            }
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        errors.extend(self.validate(new));
        let (new, old) = (At::root(new), At::root(old));
        errors.immutable_unshown(&new.at("handler"), &old.at("handler"));
        errors.into_vec()
    }

    fn warnings(&self, class: &Value, _old: Option<&Value>) -> Vec<String> {
        let selector = value::at(class, "scheduling.nodeSelector").and_then(Value::as_object).into_iter().flatten();
        let messages = selector.filter_map(|(key, _)| warnings::deprecated_label(key));
        messages.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
    }
}
