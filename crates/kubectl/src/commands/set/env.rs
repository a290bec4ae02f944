//! `kubectl set env`.

use machinery::status::go_quote;
use machinery::value::{list, text};
use serde_json::{Value, json};

use super::{COMMON, apply, containers, pod_spec, resolve};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::resource::Builder;

pub static COMMAND: Command = Command {
    name: "env",
    aliases: &[],
    usage: "RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N",
    short: "Update environment variables on a pod template",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::SELECTOR,
        sets::DRY_RUN,
        COMMON,
        &[
            Flag::string("containers", "*", "Containers to change; may have a *.").short('c'),
            Flag::array("env", "Variable as key=value.").short('e'),
            Flag::string("from", "", "Config map or secret that the variables come from."),
            Flag::slice("keys", "Keys of --from to take."),
            Flag::bool("list", "Show the variables."),
            Flag::bool("overwrite", "Change values that are there.").default("true"),
            Flag::string("prefix", "", "What stands before each variable of --from."),
            Flag::bool("resolve", "Show the values that references have."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// What is to be set, and what is to go.
type Wanted = (Vec<Value>, Vec<String>);

fn parse(words: &[String]) -> Result<Wanted, String> {
    let (mut set, mut remove) = (Vec::new(), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some((key, _)) if !machinery::names::is_relaxed_env_var_name(key).is_empty() => {
                let why = machinery::names::is_relaxed_env_var_name(key).join(",");
                return Err(format!("{} is not a valid key name: {why}", go_quote(key)));
            }
            // An empty value is none.
            Some((key, "")) => set.push(json!({"name": key})),
            Some((key, value)) => set.push(json!({"name": key, "value": value})),
            None => match word.strip_suffix('-') {
                Some(key) => remove.push(key.to_owned()),
                None => return Err(format!("unknown environment argument: {word}")),
            },
        }
    }
    Ok((set, remove))
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let is_change = |word: &String| word.contains('=') || (word.ends_with('-') && word.len() > 1);
    let (mut words, mut resources): (Vec<String>, Vec<String>) =
        invocation.arguments().into_iter().partition(is_change);
    if let Some(at) = resources.iter().position(|word| word == "-") {
        resources.remove(at);
        words.extend(from_input(invocation)?);
    }
    for word in invocation.flags.list("env") {
        match (word.as_str(), word.contains('=') || word.ends_with('-')) {
            ("-", _) => words.extend(from_input(invocation)?),
            (_, true) => words.push(word),
            (_, false) => return Err(Failure::Message(format!("unknown environment variable: {word}"))),
        }
    }
    let flags = &invocation.flags;
    if flags.is("all") && !flags.text("selector").is_empty() {
        return Err(Failure::message("cannot set --all and --selector at the same time"));
    }
    if resources.is_empty() && flags.list("filename").is_empty() {
        return Err(Failure::message(
            "one or more resources must be specified as <resource> <name> or <resource>/<name>",
        ));
    }
    if flags.is("list") && !flags.text("output").is_empty() {
        return Err(Failure::message("--list and --output may not be specified together"));
    }
    if !flags.list("keys").is_empty() && flags.text("from").is_empty() {
        return Err(Failure::message("when specifying --keys, a configmap or secret must be provided with --from"));
    }
    let (mut set, remove) = parse(&words).map_err(Failure::Message)?;
    check(&set, &remove).map_err(Failure::Message)?;
    if !flags.text("from").is_empty() {
        set.extend(from(invocation).await?);
    }
    if invocation.flags.is("list") {
        return show(invocation, resources, &set, &remove).await;
    }
    let pattern = invocation.flags.text("containers").to_owned();
    let overwrite = invocation.flags.is("overwrite");
    let missing = std::cell::RefCell::new(Vec::new());
    let outcome =
        apply(invocation, resources, None, ("env updated", "failed to patch env update to pod template:"), |info| {
            let kind = (super::resource(info), info.name.clone(), info.mapping.kind.clone());
            let spec = pod_spec(info).map_err(|why| vec![format!("error: {why}\n")])?;
            let found = containers(spec, &pattern, true);
            if found.is_empty() {
                missing.borrow_mut().push(nothing_fits(&kind.2, &kind.1, &pattern));
            }
            for container in found {
                change(container, &set, &remove, overwrite)
                    .map_err(|why| vec![format!("error: {}/{} {why}", kind.0, kind.1)])?;
            }
            Ok(())
        })
        .await;
    for warning in missing.take() {
        invocation.streams.error(&warning);
    }
    outcome
}

fn nothing_fits(kind: &str, name: &str, pattern: &str) -> String {
    format!("Warning: {kind}/{name} does not have any containers matching {}", go_quote(pattern))
}

/// Refuses names that no variable can have, and changes that contradict each other.
fn check(set: &[Value], remove: &[String]) -> Result<(), String> {
    for name in set.iter().map(|variable| text(variable, "name")) {
        let problems = machinery::names::is_env_var_name(name);
        if !problems.is_empty() {
            return Err(format!("{} is not a valid key name: {}", go_quote(name), problems.join(",")));
        }
        if remove.iter().any(|gone| gone == name) {
            return Err("can not both modify and remove the same environment variable in the same command".to_owned());
        }
    }
    Ok(())
}

/// Variables on standard input, a line for each.
fn from_input(invocation: &mut Invocation) -> Outcome<Vec<String>> {
    use std::io::Read as _;
    /// More than any environment may be.
    const MOST: u64 = 16 << 20;
    if invocation.flags.list("filename").iter().any(|file| file == "-") {
        return Err(Failure::message("standard input cannot be used for multiple arguments"));
    }
    let mut text = String::new();
    (&mut *invocation.streams.input).take(MOST).read_to_string(&mut text)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn change(container: &mut Value, set: &[Value], remove: &[String], overwrite: bool) -> Result<(), String> {
    let mut env = list(container, "env").to_vec();
    for variable in set {
        let name = text(variable, "name");
        match env.iter_mut().find(|known| text(known, "name") == name) {
            Some(known) if !overwrite && known != variable => {
                let value = text(known, "value");
                return Err(format!("'{name}' already has a value ({value}), and --overwrite is false"));
            }
            Some(known) => known.clone_from(variable),
            None => env.push(variable.clone()),
        }
    }
    env.retain(|known| !remove.iter().any(|name| text(known, "name") == name));
    if env.is_empty() {
        machinery::value::remove(container, "env");
    } else {
        container["env"] = Value::Array(env);
    }
    Ok(())
}

/// References to the keys of a config map or a secret.
async fn from(invocation: &mut Invocation) -> Outcome<Vec<Value>> {
    let word = invocation.flags.text("from").to_owned();
    let (mapping, name) = crate::resource::arguments::parse_single(&invocation.session, &word).await?;
    let reference = match mapping.kind.as_str() {
        "ConfigMap" => "configMapKeyRef",
        "Secret" => "secretKeyRef",
        _ => return Err(Failure::message("unsupported resource specified in --from")),
    };
    let namespace = invocation.session.namespace()?;
    let name = name.unwrap_or_default();
    let object = invocation.session.api()?.get(&mapping.path(&namespace, &name, "")).await?;
    let (keys, prefix) = (invocation.flags.list("keys"), invocation.flags.text("prefix").to_owned());
    let data = machinery::value::at(&object, "data").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut variables = Vec::new();
    for key in data.keys().filter(|key| keys.is_empty() || keys.contains(key)) {
        let upper = variable_name(key);
        if upper != *key {
            invocation.streams.error(&format!("Warning: key {key} transferred to {upper}"));
        }
        variables
            .push(json!({"name": format!("{prefix}{upper}"), "valueFrom": {reference: {"name": name, "key": key}}}));
    }
    Ok(variables)
}

/// A key as the name of a variable.
fn variable_name(key: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    key.chars().map(letter).collect()
}

/// Shows the variables as they would be, and changes nothing.
async fn show(invocation: &mut Invocation, resources: Vec<String>, set: &[Value], remove: &[String]) -> Outcome {
    let mut builder = Builder { latest: true, ..Builder::from_flags(&invocation.session, &invocation.flags)? };
    builder.arguments = resources;
    let pattern = invocation.flags.text("containers").to_owned();
    let overwrite = invocation.flags.is("overwrite");
    for mut info in builder.infos(&invocation.session, &mut invocation.streams).await?.all()? {
        let (kind, name, object) = (info.mapping.kind.clone(), info.name.clone(), info.object.clone());
        let Ok(spec) = pod_spec(&mut info) else { continue };
        let found = containers(spec, &pattern, true);
        if found.is_empty() {
            invocation.streams.error(&nothing_fits(&kind, &name, &pattern));
        }
        for container in found {
            if change(container, set, remove, overwrite).is_err() {
                continue;
            }
            let (lines, wrong) = resolve::lines(invocation, &object, container).await?;
            let head = format!("# {kind} {name}, container {}\n", text(container, "name"));
            invocation.print(&(head + &lines))?;
            for (why, mut variables) in wrong {
                variables.sort();
                let variables = variables.join(", ");
                invocation.streams.error(&format!("error retrieving reference for {variables}: {why}"));
            }
        }
    }
    Ok(())
}
