//! `kubectl kuberc`: what the user prefers, shown and changed.

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::PathBuf;

use machinery::codec::yaml;
use machinery::value::{list, text};
use serde_json::{Value, json};

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome, os_error};
use crate::flags::{Flag, sets};
use crate::preferences;
use crate::print::{OBJECTS, Printer, Request};

pub static COMMAND: Command = Command {
    name: "kuberc",
    aliases: &[],
    usage: "SUBCOMMAND",
    short: "Manage kuberc configuration files",
    flags: &[],
    children: &[&SET, &VIEW],
    run: None,
};

static VIEW: Command = Command {
    name: "view",
    aliases: &[],
    usage: "",
    short: "Display the current kuberc configuration",
    flags: &[&[Flag::string("output", "yaml", "Output format.").short('o')], sets::PRINT],
    children: &[],
    run: Some(|invocation| Box::pin(async move { view(invocation) })),
};

static SET: Command = Command {
    name: "set",
    aliases: &[],
    usage: "--section (defaults|aliases) --command COMMAND",
    short: "Set values in the kuberc configuration",
    flags: &[&[
        Flag::array("allowlist-entry", "Plug-in that may run, as command=value."),
        Flag::array("appendarg", "Argument after the user's; for aliases."),
        Flag::string("command", "", "The command, such as get or 'set env'."),
        Flag::string("name", "", "Name of the alias."),
        Flag::array("option", "Flag and its value, as flag=value."),
        Flag::bool("overwrite", "Replace what is there."),
        Flag::string("policy", "", "Which credential plug-ins may run: AllowAll, DenyAll or Allowlist."),
        Flag::array("prependarg", "Argument before the user's; for aliases."),
        Flag::string("section", "", "defaults, aliases or credentialplugin."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(async move { set(invocation) })),
};

fn file(invocation: &Invocation) -> Outcome<(PathBuf, bool)> {
    let found = preferences::place(&invocation.session.environment, invocation.flags.text("kuberc"));
    let off = "KUBERC is disabled via KUBERC=off environment variable";
    found.map_err(Failure::Message)?.ok_or_else(|| Failure::message(off))
}

fn load(file: &std::path::Path) -> Outcome<Option<Value>> {
    preferences::read(file).map_err(|error| Failure::Message(format!("error reading kuberc file: {error}")))
}

fn view(invocation: &mut Invocation) -> Outcome {
    let (file, wanted) = file(invocation)?;
    let shown = file.display().to_string();
    let Some(tree) = load(&file)? else {
        if wanted {
            return Err(Failure::Message(format!("kuberc file not found at {shown}")));
        }
        invocation.say(&format!("kuberc file not found at {shown}"))?;
        invocation.print("Would you like to generate a default kuberc file with recommended options? (y/N): ")?;
        invocation.streams.out.flush()?;
        return match answer(invocation)? {
            None => Ok(()),
            Some(word) if word.eq_ignore_ascii_case("y") => save(invocation, &file, &recommended()),
            Some(_) => show(invocation, json!({})),
        };
    };
    show(invocation, tree)
}

/// The one word of a line; nothing where there is no such line.
fn answer(invocation: &mut Invocation) -> Outcome<Option<String>> {
    /// Nobody answers a question with more.
    const LONGEST: u64 = 4096;
    let mut line = Vec::new();
    let mut input = std::io::BufReader::with_capacity(1, (&mut *invocation.streams.input).take(LONGEST));
    input.read_until(b'\n', &mut line)?;
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split_whitespace();
    let first = words.next().map(str::to_owned);
    Ok(first.filter(|_| words.next().is_none()))
}

/// What upstream recommends to whoever has no preferences yet.
fn recommended() -> Value {
    let default =
        |command: &str, option: &str| json!({"command": command, "options": [{"name": option, "default": "true"}]});
    json!({
        "apiVersion": "kubectl.config.k8s.io/v1beta1", "kind": "Preference",
        "defaults": [default("apply", "server-side"), default("delete", "interactive")],
    })
}

fn show(invocation: &mut Invocation, mut tree: Value) -> Outcome {
    for section in ["aliases", "defaults"] {
        if tree.get(section).is_none_or(Value::is_null) {
            tree[section] = json!([]);
        }
    }
    let request = Request { allowed: OBJECTS, typed: false };
    let printer = Printer::from_flags(&invocation.flags, &invocation.session.environment, &request)?;
    let text = match printer {
        Some(mut printer) => printer.print(&tree)?,
        None => yaml::encode(&tree),
    };
    invocation.print(&text)
}

fn validate(invocation: &Invocation) -> Outcome {
    let flags = &invocation.flags;
    if !flags.changed("section") {
        return Err(Failure::message("required flag(s) \"section\" not set"));
    }
    let (section, policy) = (flags.text("section"), flags.text("policy"));
    let (named, entries) = (!flags.text("name").is_empty(), !flags.list("allowlist-entry").is_empty());
    let more = !flags.list("prependarg").is_empty() || !flags.list("appendarg").is_empty();
    let wrong = match section {
        "defaults" | "aliases" | "credentialplugin" => {
            if section == "aliases" && !named {
                "--name is required when --section=aliases"
            } else if section == "defaults" && named {
                "--name should not be specified when --section=defaults"
            } else if section == "defaults" && more {
                "--prependarg and --appendarg are only valid for --section=aliases"
            } else if section != "credentialplugin" && flags.text("command").is_empty() {
                "--command is required when --section=aliases or --section=defaults"
            } else if section != "credentialplugin" {
                ""
            } else {
                match policy {
                    "" => "--policy is required when --section=credentialplugin",
                    "AllowAll" | "DenyAll" if entries => {
                        "--allowlist-entry may only be used when --section=credentialplugin and --policy=Allowlist"
                    }
                    "Allowlist" if !entries => {
                        "--allowlist-entry is required when --section=credentialplugin and --policy=Allowlist"
                    }
                    "AllowAll" | "DenyAll" | "Allowlist" => "",
                    other => {
                        return Err(Failure::Message(format!(
                            " --policy must be  \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: {other}"
                        )));
                    }
                }
            }
        }
        other => {
            return Err(Failure::Message(format!(
                "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: {other}"
            )));
        }
    };
    if wrong.is_empty() { Ok(()) } else { Err(Failure::message(wrong)) }
}

fn set(invocation: &mut Invocation) -> Outcome {
    validate(invocation)?;
    let (file, _) = file(invocation)?;
    let empty = || json!({"apiVersion": "kubectl.config.k8s.io/v1beta1", "kind": "Preference"});
    let mut tree = load(&file)?.unwrap_or_else(empty);
    let flags = &invocation.flags;
    let mut options = Vec::new();
    for option in flags.list("option") {
        let odd = || Failure::Message(format!("invalid option format {option:?}, expected flag=value"));
        let (name, value) = option.split_once('=').ok_or_else(odd)?;
        options.push(json!({"name": name.trim_start_matches('-'), "default": value}));
    }
    match flags.text("section") {
        "defaults" => {
            let entry = json!({"command": flags.text("command"), "options": options});
            let taken =
                format!("defaults for command {:?} already exist, use --overwrite to replace", flags.text("command"));
            put(&mut tree, "defaults", "command", entry, flags.is("overwrite"), taken)?;
        }
        "aliases" => {
            let mut entry = json!({"name": flags.text("name"), "command": flags.text("command"), "options": options});
            for (flag, field) in [("prependarg", "prependArgs"), ("appendarg", "appendArgs")] {
                let words = flags.list(flag);
                if !words.is_empty() {
                    entry[field] = json!(words);
                }
            }
            let taken = format!("alias {:?} already exists, use --overwrite to replace", flags.text("name"));
            put(&mut tree, "aliases", "name", entry, flags.is("overwrite"), taken)?;
        }
        _ => {
            tree["credentialPluginPolicy"] = flags.text("policy").into();
            if flags.text("policy") == "Allowlist" {
                tree["credentialPluginAllowlist"] = entries(&flags.list("allowlist-entry"))?;
            }
        }
    }
    save(invocation, &file, &tree)
}

/// Adds an entry, or changes the one of the same key: what is not said stays.
fn put(tree: &mut Value, section: &str, key: &str, entry: Value, overwrite: bool, taken: String) -> Outcome {
    if !tree.get(section).is_some_and(Value::is_array) {
        tree[section] = json!([]);
    }
    let Some(Value::Array(all)) = tree.get_mut(section) else { return Ok(()) };
    match all.iter_mut().find(|known| text(known, key) == text(&entry, key)) {
        Some(_) if !overwrite => return Err(Failure::Message(taken)),
        Some(known) => {
            let mut merged = known.clone();
            for (field, value) in entry.as_object().into_iter().flatten() {
                if field != "options" || !list(&entry, "options").is_empty() {
                    merged[field] = value.clone();
                }
            }
            *known = merged;
        }
        None => all.push(entry),
    }
    Ok(())
}

fn entries(given: &[String]) -> Outcome<Value> {
    let mut found = Vec::new();
    for pair in given.iter().flat_map(|pairs| pairs.split(',')) {
        let wrong = match pair.split_once('=') {
            None => format!("improperly formatted allowlist entry: {pair:?}"),
            Some(("name", _)) => "allowlist entry field \"name\" is deprecated, use \"command\" instead".to_owned(),
            Some(("command", value)) if !value.trim().is_empty() => {
                found.push(json!({"command": value}));
                continue;
            }
            Some(("command", _)) => "empty value in allowlist entry for field \"command\"".to_owned(),
            Some((field, _)) => format!("unrecognized allowlist entry field: {field:?}"),
        };
        return Err(Failure::Message(wrong));
    }
    Ok(Value::Array(found))
}

fn save(invocation: &mut Invocation, file: &std::path::Path, tree: &Value) -> Outcome {
    let shown = file.display().to_string();
    let failed = |error: std::io::Error| Failure::Message(os_error("open", &shown, &error));
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    // Written beside it and put in its place, so that nobody ever reads half of it.
    let beside = file.with_extension(format!("{}.tmp", super::random_number()));
    std::fs::write(&beside, yaml::encode(tree)).map_err(failed)?;
    std::fs::rename(&beside, file).map_err(failed)?;
    invocation.say(&format!("Updated {shown}"))
}
