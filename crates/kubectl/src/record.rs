//! `--record`: the command line that changed an object, in an annotation of it.

use serde_json::{Value, json};

use crate::command::Invocation;

const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// The command line, where it is to be recorded: arguments first, then flags by their long names.
fn cause(invocation: &Invocation) -> Option<String> {
    if !invocation.flags.is("record") {
        return None;
    }
    let mut line = invocation.path.clone();
    for argument in &invocation.flags.arguments {
        line += &format!(" {argument}");
    }
    for (flag, value) in invocation.flags.in_order() {
        line += &format!(" --{flag}={value}");
    }
    Some(line)
}

/// Notes the command line in an object that is about to be sent.
pub fn note(invocation: &Invocation, object: &mut Value) {
    let Some(cause) = cause(invocation) else { return };
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][CHANGE_CAUSE] = cause.into();
}

/// The patch that notes it in an object that was changed already.
pub fn patch(invocation: &Invocation) -> Option<Value> {
    Some(json!({"metadata": {"annotations": {CHANGE_CAUSE: cause(invocation)?}}}))
}
