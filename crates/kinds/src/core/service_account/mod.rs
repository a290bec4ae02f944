//! ServiceAccounts.

pub mod columns;

use machinery::{Value, value};

use crate::strategy::{Action, Strategy, Subresource};

pub struct ServiceAccounts;

impl Strategy for ServiceAccounts {
    fn subresource(&self, name: &str) -> Option<Subresource> {
        (name == "token").then_some(Subresource::Action(Action::IssueToken))
    }

    fn prepare_for_create(&self, account: &mut Value) {
        name_secrets(account);
    }

    fn prepare_for_update(&self, new: &mut Value, _old: &Value) {
        name_secrets(new);
    }

    fn warnings(&self, account: &Value, _old: Option<&Value>) -> Vec<String> {
        const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
        let annotated =
            value::at(account, "metadata.annotations").is_some_and(|annotations| annotations.get(MOUNTABLE).is_some());
        let warning = format!(
            "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        );
        annotated.then_some(warning).into_iter().collect()
    }
}

/// A secret of an account is in its namespace: nothing but its name counts.
fn name_secrets(account: &mut Value) {
    for secret in value::list_mut(account, "secrets") {
        if let Some(fields) = secret.as_object_mut() {
            fields.retain(|field, _| field == "name");
        }
    }
}
