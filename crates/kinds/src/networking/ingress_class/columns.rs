//! What a table shows of IngressClasses.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, annotated, is_set};
use crate::table::{AGE, NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Controller", own("The controller that serves ingresses of this class.")),
        text("Parameters", own("The object that says more about the class.")),
        AGE,
    ],
    |object, now| {
        let mut shown = value::text(object, "metadata.name").to_owned();
        if annotated(object, "ingressclass.kubernetes.io/is-default-class") {
            shown.push_str(" (default)");
        }
        let parameters = match value::at(object, "spec.parameters").filter(|parameters| parameters.is_object()) {
            None => "<none>".to_owned(),
            Some(parameters) => {
                let group = if is_set(parameters, "apiGroup") {
                    format!(".{}", value::text(parameters, "apiGroup"))
                } else {
                    String::new()
                };
                format!("{}{group}/{}", value::text(parameters, "kind"), value::text(parameters, "name"))
            }
        };
        vec![json!(shown), json!(value::text(object, "spec.controller")), json!(parameters), age(object, now)]
    },
);
