//! `kubectl set selector` and `serviceaccount`.

use machinery::value::{list, text};
use serde_json::{Value, json};

use super::{COMMON, apply, pod_spec};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::selector::of_query;

pub static COMMAND: Command = Command {
    name: "selector",
    aliases: &[],
    usage: "(-f FILENAME | TYPE NAME) EXPRESSIONS [--resource-version=version]",
    short: "Set the selector on a resource",
    flags: &[
        sets::PRINT,
        sets::FILES_DEEP,
        sets::DRY_RUN,
        sets::RECORD,
        COMMON,
        &[Flag::string("resource-version", "", "Change only this version of the object.")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(selector(invocation))),
};

pub static SERVICE_ACCOUNT: Command = Command {
    name: "serviceaccount",
    aliases: &["sa"],
    usage: "(-f FILENAME | TYPE NAME) SERVICE_ACCOUNT",
    short: "Update the service account of a resource",
    flags: &[sets::PRINT, sets::FILENAME, sets::DRY_RUN, sets::RECORD, COMMON],
    children: &[],
    run: Some(|invocation| Box::pin(service_account(invocation))),
};

async fn selector(invocation: &mut Invocation) -> Outcome {
    // The last word is the selector, whatever it looks like.
    let mut resources = invocation.arguments();
    let Some(last) = resources.pop() else {
        return Err(Failure::message("one selector is required"));
    };
    let wanted = if last.contains('=') || !resources.is_empty() {
        of_query(&last).map_err(Failure::Message)?
    } else {
        json!({})
    };
    let labels = wanted.get("matchLabels").cloned().unwrap_or_else(|| json!({}));
    let expressions = list(&wanted, "matchExpressions");
    let version = invocation.flags.text("resource-version").to_owned();
    apply(invocation, resources, None, ("selector updated", ""), |info| {
        if info.mapping.kind != "Service" {
            return Err(vec![format!("setting a selector is only supported for Services")]);
        }
        if !expressions.is_empty() {
            let shown: Vec<String> = expressions.iter().map(shown).collect();
            return Err(vec![format!("match expression [{}] not supported on this object", shown.join(" "))]);
        }
        machinery::value::set(&mut info.object, "spec.selector", labels.clone());
        if !version.is_empty() {
            machinery::value::set(&mut info.object, "metadata.resourceVersion", version.as_str());
        }
        Ok(())
    })
    .await
}

/// An expression of a selector as Go shows it.
fn shown(expression: &Value) -> String {
    let values: Vec<&str> = list(expression, "values").iter().filter_map(Value::as_str).collect();
    format!("{{{} {} [{}]}}", text(expression, "key"), text(expression, "operator"), values.join(" "))
}

async fn service_account(invocation: &mut Invocation) -> Outcome {
    let mut resources = invocation.arguments();
    let Some(account) = resources.pop() else {
        return Err(Failure::message("serviceaccount is required"));
    };
    apply(invocation, resources, None, ("serviceaccount updated", "failed to patch ServiceAccountName"), |info| {
        let spec = pod_spec(info).map_err(|why| vec![format!("error: {why}\n")])?;
        spec["serviceAccountName"] = json!(account);
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_shown_as_go_shows_them() {
        for (query, expected) in [("a in (b,c)", "{a In [b c]}"), ("a", "{a Exists []}")] {
            let selector = of_query(query).expect(query);
            assert_eq!(shown(&list(&selector, "matchExpressions")[0]), expected, "{query}");
        }
    }
}
