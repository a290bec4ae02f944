//! `kubectl config use-context`, `rename-context`, `set` and `unset`.

use base64::Engine as _;
use machinery::status::go_quote;
use serde_json::Value;

use crate::command::{Command, Invocation};
use crate::config::Section;
use crate::config::file::{Config, Field};
use crate::config::types::bytes;
use crate::error::{Failure, Outcome};
use crate::flags::Flag;

pub static USE_CONTEXT: Command = Command {
    name: "use-context",
    aliases: &["use"],
    usage: "CONTEXT_NAME",
    short: "Set the current-context in a kubeconfig file",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(use_context(invocation))),
};

pub static RENAME_CONTEXT: Command = Command {
    name: "rename-context",
    aliases: &[],
    usage: "CONTEXT_NAME NEW_NAME",
    short: "Rename a context from the kubeconfig file",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(rename_context(invocation))),
};

pub static SET: Command = Command {
    name: "set",
    aliases: &[],
    usage: "PROPERTY_NAME PROPERTY_VALUE",
    short: "Set an individual value in a kubeconfig file",
    flags: &[&[Flag::bool("set-raw-bytes", "The value of data is given as it is, not in base64.")]],
    children: &[],
    run: Some(|invocation| Box::pin(set(invocation))),
};

pub static UNSET: Command = Command {
    name: "unset",
    aliases: &[],
    usage: "PROPERTY_NAME",
    short: "Unset an individual value in a kubeconfig file",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(unset(invocation))),
};

async fn use_context(invocation: &mut Invocation) -> Outcome {
    let [name] = &invocation.flags.arguments[..] else {
        return Err(invocation.misused(format_args!("Unexpected args: [{}]", invocation.flags.arguments.join(" "))));
    };
    let name = name.clone();
    let before = super::load(invocation)?;
    if !before.contexts.contains_key(&name) {
        return Err(Failure::Message(format!("no context exists with the name: {}", go_quote(&name))));
    }
    let after = Config { current: name.clone(), ..before.clone() };
    super::save(invocation, &before, &after)?;
    invocation.say(&format!("Switched to context {}.", go_quote(&name)))
}

async fn rename_context(invocation: &mut Invocation) -> Outcome {
    let [old, new] = &invocation.flags.arguments[..] else {
        return Err(invocation.misused(format_args!("Unexpected args: [{}]", invocation.flags.arguments.join(" "))));
    };
    let (old, new) = (old.clone(), new.clone());
    let before = super::load(invocation)?;
    let file = super::file(invocation);
    let mut after = before.clone();
    let Some(context) = after.contexts.remove(&old) else {
        return Err(Failure::Message(format!("cannot rename the context {}, it's not in {file}", go_quote(&old))));
    };
    if before.contexts.contains_key(&new) {
        return Err(Failure::Message(format!(
            "cannot rename the context {}, the context {} already exists in {file}",
            go_quote(&old),
            go_quote(&new)
        )));
    }
    after.contexts.insert(new.clone(), context);
    if after.current == old {
        after.current.clone_from(&new);
    }
    super::save(invocation, &before, &after)?;
    invocation.say(&format!("Context {} renamed to {}.", go_quote(&old), go_quote(&new)))
}

async fn set(invocation: &mut Invocation) -> Outcome {
    let [name, value] = &invocation.flags.arguments[..] else {
        return Err(invocation.misused(format_args!("Unexpected args: [{}]", invocation.flags.arguments.join(" "))));
    };
    let (name, value) = (name.clone(), value.clone());
    if value.is_empty() {
        return Err(Failure::message("you cannot use set to unset a property"));
    }
    if name.is_empty() {
        return Err(Failure::message("you must specify a property"));
    }
    let before = super::load(invocation)?;
    let mut after = before.clone();
    change(&mut after, &name, Some(&value), invocation.flags.is("set-raw-bytes")).map_err(Failure::Message)?;
    super::save(invocation, &before, &after)?;
    invocation.say(&format!("Property {} set.", go_quote(&name)))
}

async fn unset(invocation: &mut Invocation) -> Outcome {
    let [name] = &invocation.flags.arguments[..] else {
        return Err(invocation.misused(format_args!("Unexpected args: [{}]", invocation.flags.arguments.join(" "))));
    };
    let name = name.clone();
    if name.is_empty() {
        return Err(Failure::message("you must specify a property"));
    }
    let before = super::load(invocation)?;
    let mut after = before.clone();
    change(&mut after, &name, None, false).map_err(Failure::Message)?;
    super::save(invocation, &before, &after)?;
    invocation.say(&format!("Property {} unset.", go_quote(&name)))
}

/// Sets what a dotted name means, or takes it away. Names of entries may have dots: the field is what a known word ends it with.
fn change(config: &mut Config, path: &str, value: Option<&str>, raw: bool) -> Result<(), String> {
    if path == "current-context" {
        value.unwrap_or_default().clone_into(&mut config.current);
        return Ok(());
    }
    if path == "preferences" || path == "preferences.colors" {
        // Preferences are read by nobody any more, and are not kept.
        return match value {
            Some(_) if path == "preferences" => Err(format!("unable to parse one or more field values of {path}")),
            Some(value) if !matches!(value, "true" | "false") => {
                Err(format!("strconv.ParseBool: parsing {}: invalid syntax", go_quote(value)))
            }
            _ => Ok(()),
        };
    }
    let unknown = || format!("unable to parse {path} after [] at api.Config");
    let (list, rest) = path.split_once('.').map_or((path, ""), |(list, rest)| (list, rest));
    let section = Section::ALL.into_iter().find(|section| section.list() == list).ok_or_else(unknown)?;
    if rest.is_empty() {
        if value.is_some() {
            return Err("can't set a map to a value: map[]".to_owned());
        }
        config.section_mut(section).clear();
        return Ok(());
    }
    let known = |word: &str| section.fields().iter().find(|(name, _)| *name == word);
    let parts: Vec<&str> = rest.split('.').collect();
    let end = (1..parts.len()).find(|at| known(parts[*at]).is_some()).unwrap_or(parts.len());
    let name = parts[..end].join(".");
    let entries = config.section_mut(section);
    let Some((field, kind)) = parts.get(end).and_then(|word| known(word)) else {
        if value.is_some() {
            return Err("can't set a map to a value: map[]".to_owned());
        }
        entries.remove(&name);
        return Ok(());
    };
    if end + 1 < parts.len() {
        return Err(format!("unable to parse one or more field values of {path}"));
    }
    if value.is_none() && !entries.contains_key(&name) {
        return Err(format!("current map key `{name}` is invalid"));
    }
    let entry = entries.entry(name).or_default();
    match (value, kind) {
        (None, _) => entry.set(field, Value::Null),
        (Some(value), Field::Text | Field::Path) => entry.set(field, value),
        (Some(value), Field::Bool) => {
            let parsed = match value {
                "true" => true,
                "false" => false,
                other => return Err(format!("strconv.ParseBool: parsing {}: invalid syntax", go_quote(other))),
            };
            entry.set(field, parsed);
        }
        (Some(value), Field::Bytes) => {
            let standard = base64::engine::general_purpose::STANDARD;
            if raw {
                entry.set(field, standard.encode(value));
            } else {
                let bytes = bytes(value).map_err(|error| format!("error decoding input value: {error}"))?;
                entry.set(field, standard.encode(bytes));
            }
        }
        (Some(_), Field::Other) => return Err(format!("unable to parse one or more field values of {path}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_may_be_given_on_several_lines() {
        let mut config = Config::default();
        config.clusters.entry("c".to_owned()).or_default();
        let path = "clusters.c.certificate-authority-data";
        change(&mut config, path, Some("aGVs\nbG8="), false).expect("set");
        assert_eq!(config.clusters["c"].text("certificate-authority-data"), "aGVsbG8=");
        let wrong = change(&mut config, path, Some("hello"), false);
        assert_eq!(wrong, Err("error decoding input value: illegal base64 data at input byte 4".to_owned()));
    }

    #[test]
    fn dotted_names_find_their_field() {
        let mut config = Config::default();
        change(&mut config, "clusters.10.1.2.3.server", Some("https://a"), false).expect("set");
        assert_eq!(config.clusters["10.1.2.3"].text("server"), "https://a");
        change(&mut config, "clusters.c.insecure-skip-tls-verify", Some("true"), false).expect("set");
        assert!(config.clusters["c"].flag("insecure-skip-tls-verify"));
        change(&mut config, "users.u.client-key-data", Some("key"), true).expect("set");
        assert_eq!(config.users["u"].text("client-key-data"), "a2V5");
        change(&mut config, "clusters.10.1.2.3.server", None, false).expect("unset");
        assert_eq!(config.clusters["10.1.2.3"].text("server"), "");
        change(&mut config, "clusters.c", None, false).expect("unset");
        assert!(!config.clusters.contains_key("c"));
        for (path, value) in [
            ("foo.bar", Some("x")),
            ("clusters", Some("x")),
            ("users.v.token", None),
            ("users.u.client-key-data", Some("%")),
        ] {
            assert!(change(&mut config, path, value, false).is_err(), "{path}");
        }
    }
}
