//! Writes of objects, with the parameters that all of them take.

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::Info;
use crate::api::{Api, JSON};
use crate::discovery::query;
use crate::error::{Failure, Outcome};

pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// `--dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DryRun {
    #[default]
    No,
    Client,
    Server,
}

impl DryRun {
    pub fn from_flags(flags: &crate::flags::Given) -> Outcome<Self> {
        match flags.text("dry-run") {
            "" if !flags.changed("dry-run") => Ok(Self::No),
            "none" | "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Self::No),
            // Left out, or a boolean: deprecated, and warned of where the command begins.
            "client" | "unchanged" | "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Self::Client),
            "server" => Ok(Self::Server),
            other => Err(Failure::Message(format!(
                "Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\"."
            ))),
        }
    }

    /// What messages say of it.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::No => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// Parameters of a write.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    pub dry_run: DryRun,
    pub manager: String,
    /// `Strict`, `Warn` or `Ignore`; empty leaves it to the server.
    pub validation: String,
    pub subresource: String,
}

impl Writing {
    pub fn from_flags(flags: &crate::flags::Given) -> Outcome<Self> {
        Ok(Self {
            dry_run: DryRun::from_flags(flags)?,
            manager: flags.text("field-manager").to_owned(),
            validation: validation(flags)?,
            subresource: flags.text("subresource").to_owned(),
        })
    }

    fn query(&self, more: &[(&str, &str)]) -> String {
        let mut pairs = vec![
            ("dryRun", if self.dry_run == DryRun::Server { "All" } else { "" }),
            ("fieldManager", self.manager.as_str()),
            ("fieldValidation", self.validation.as_str()),
        ];
        pairs.extend(more.iter().copied());
        query(&pairs)
    }

    pub async fn create(&self, api: &Api, info: &Info) -> Outcome<Value> {
        let path = info.mapping.path(&info.namespace, "", "") + &self.query(&[]);
        // What was read from a server may be made again.
        let mut object = info.object.clone();
        machinery::value::remove(&mut object, "metadata.resourceVersion");
        api.send(Method::POST, &path, JSON, &object).await
    }

    pub async fn replace(&self, api: &Api, info: &Info, object: &Value) -> Outcome<Value> {
        if info.name.is_empty() {
            return Err(Failure::message("resource name may not be empty"));
        }
        let path = info.mapping.path(&info.namespace, &info.name, &self.subresource) + &self.query(&[]);
        api.send(Method::PUT, &path, JSON, object).await
    }

    pub async fn patch(&self, api: &Api, info: &Info, content_type: &str, patch: &Value) -> Outcome<Value> {
        let path = info.mapping.path(&info.namespace, &info.name, &self.subresource) + &self.query(&[]);
        // A patch that is no JSON is sent as it is, for the server to say what is wrong with it.
        if let Value::String(text) = patch {
            let body = Some((content_type, Bytes::from(text.clone())));
            let (_, bytes) = api.call(Method::PATCH, &path, body, JSON).await?;
            return serde_json::from_slice(&bytes).map_err(|error| Failure::Message(error.to_string()));
        }
        api.send(Method::PATCH, &path, content_type, patch).await
    }

    /// Server-side apply; the text is sent as it is.
    pub async fn apply(&self, api: &Api, info: &Info, object: &Value, force: bool) -> Outcome<Value> {
        let force = if force { "true" } else { "false" };
        let path = info.mapping.path(&info.namespace, &info.name, &self.subresource) + &self.query(&[("force", force)]);
        let body = Bytes::from(serde_json::to_vec(object).map_err(|error| Failure::Message(error.to_string()))?);
        let (_, bytes) = api.call(Method::PATCH, &path, Some((APPLY, body)), JSON).await?;
        serde_json::from_slice(&bytes).map_err(|error| Failure::Message(error.to_string()))
    }

    /// Server-side apply that takes nothing from others, and leaves it to the server what it does where they disagree.
    pub async fn apply_unforced(&self, api: &Api, info: &Info, object: &Value) -> Outcome<Value> {
        let path = info.mapping.path(&info.namespace, &info.name, &self.subresource) + &self.query(&[]);
        api.send(Method::PATCH, &path, APPLY, object).await
    }

    pub async fn delete(&self, api: &Api, info: &Info, options: &Value) -> Outcome<Value> {
        api.send(Method::DELETE, &info.path(), JSON, options).await
    }
}

/// `--validate`, in the words of the server's parameter.
pub fn validation(flags: &crate::flags::Given) -> Outcome<String> {
    if !flags.knows("validate") {
        return Ok(String::new());
    }
    Ok(match flags.text("validate") {
        "" | "true" | "strict" => "Strict",
        "warn" => "Warn",
        "false" | "ignore" => "Ignore",
        other => {
            return Err(Failure::Message(format!(
                "invalid - validate option {}; must be one of: strict (or true), warn, ignore (or false)",
                machinery::status::go_quote(other)
            )));
        }
    }
    .to_owned())
}

#[cfg(test)]
mod tests {
    use super::DryRun;
    use crate::flags::{self, sets};

    #[test]
    fn an_empty_value_is_no_dry_run_and_no_write() {
        for (line, expected) in [
            ("", Some(DryRun::No)),
            ("--dry-run", Some(DryRun::Client)),
            ("--dry-run=server", Some(DryRun::Server)),
            ("--dry-run=false", Some(DryRun::No)),
            ("--dry-run=", None),
            ("--dry-run=x", None),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let given = flags::parse([&sets::DRY_RUN], &words).expect(line);
            assert_eq!(DryRun::from_flags(&given).ok(), expected, "{line}");
        }
    }
}
