//! `kubectl create configmap` and `secret`.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::names;
use machinery::status::go_quote;
use serde_json::{Map, Value, json};

use super::{GENERATOR, generated, name};
use crate::command::{Command, Environment, Invocation};
use crate::error::{Failure, Outcome, os_error};
use crate::flags::Flag;

pub static CONFIG_MAP: Command = Command {
    name: "configmap",
    aliases: &["cm"],
    usage: "NAME [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    short: "Create a config map from a local file, directory or literal value",
    flags: &[GENERATOR, SOURCES],
    children: &[],
    run: Some(|invocation| Box::pin(config_map(invocation))),
};

pub static SECRET: Command = Command {
    name: "secret",
    aliases: &[],
    usage: "(docker-registry | generic | tls)",
    short: "Create a secret using a specified subcommand",
    flags: &[],
    children: &[&DOCKER_REGISTRY, &GENERIC, &TLS],
    run: None,
};

static SOURCES: &[Flag] = &[
    Flag::bool("append-hash", "Put a hash of the content behind the name."),
    Flag::array("from-env-file", "File with lines of key=value."),
    Flag::array("from-file", "File or directory, as path or key=path."),
    Flag::array("from-literal", "Entry as key=value."),
];

static GENERIC: Command = Command {
    name: "generic",
    aliases: &[],
    usage: "NAME [--type=string] [--from-file=[key=]source] [--from-literal=key1=value1] [--dry-run=server|client|none]",
    short: "Create a secret from a local file, directory, or literal value",
    flags: &[GENERATOR, SOURCES, &[Flag::string("type", "", "Type of the secret.")]],
    children: &[],
    run: Some(|invocation| Box::pin(generic(invocation))),
};

static TLS: Command = Command {
    name: "tls",
    aliases: &[],
    usage: "NAME --cert=path/to/cert/file --key=path/to/key/file [--dry-run=server|client|none]",
    short: "Create a TLS secret",
    flags: &[
        GENERATOR,
        &[
            Flag::bool("append-hash", "Put a hash of the content behind the name."),
            Flag::string("cert", "", "File with the certificate."),
            Flag::string("key", "", "File with its key."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(tls(invocation))),
};

static DOCKER_REGISTRY: Command = Command {
    name: "docker-registry",
    aliases: &[],
    usage: "NAME --docker-username=user --docker-password=password --docker-email=email [--docker-server=string] [--from-file=[key=]source] [--dry-run=server|client|none]",
    short: "Create a secret for use with a Docker registry",
    flags: &[
        GENERATOR,
        &[
            Flag::bool("append-hash", "Put a hash of the content behind the name."),
            Flag::string("docker-email", "", "Address of the user."),
            Flag::string("docker-password", "", "Password for the registry."),
            Flag::string("docker-server", "https://index.docker.io/v1/", "The registry."),
            Flag::string("docker-username", "", "User at the registry."),
            Flag::array("from-file", "File with the configuration, as path or key=path."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(docker_registry(invocation))),
};

type Entries = Vec<(String, Vec<u8>)>;

/// What `--from-literal`, `--from-file` and `--from-env-file` give.
fn entries(invocation: &Invocation, what: &str) -> Result<Entries, String> {
    let flags = &invocation.flags;
    let environment = &invocation.session.environment;
    let (files, literals, env) = (flags.list("from-file"), flags.list("from-literal"), flags.list("from-env-file"));
    if !env.is_empty() && (!files.is_empty() || !literals.is_empty()) {
        return Err("from-env-file cannot be combined with from-file or from-literal".to_owned());
    }
    let mut all = Vec::new();
    for literal in &literals {
        let odd = || format!("invalid literal source {literal}, expected key=value");
        let (key, value) = literal.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(odd)?;
        let plain = value.strip_prefix(['"', '\'']).and_then(|rest| rest.strip_suffix(['"', '\'']));
        let same = value.len() > 1 && value.chars().next() == value.chars().last();
        all.push((key.to_owned(), plain.filter(|_| same).unwrap_or(value).as_bytes().to_vec()));
    }
    for file in &files {
        from_file(environment, file, &mut all)?;
    }
    for file in &env {
        from_env_file(environment, file, what, &mut all)?;
    }
    Ok(all)
}

fn from_file(environment: &Environment, source: &str, all: &mut Entries) -> Result<(), String> {
    let (key, path) = match source.split_once('=') {
        None => (None, source),
        Some(("", _)) => return Err(format!("key name for file path {} missing", source.trim_start_matches('='))),
        Some((_, "")) => return Err(format!("file path for key name {} missing", source.trim_end_matches('='))),
        Some((_, path)) if path.contains('=') => {
            return Err("key names or file paths cannot contain '='".to_owned());
        }
        Some((key, path)) => (Some(key), path),
    };
    let real = environment.path(path);
    let failed = |operation: &str, error: &std::io::Error| {
        let whole = os_error(operation, path, error);
        format!("error reading {path}: {}", whole.rsplit(": ").next().unwrap_or_default())
    };
    let about = std::fs::metadata(&real).map_err(|error| failed("stat", &error))?;
    if !about.is_dir() {
        let bytes = std::fs::read(&real).map_err(|error| failed("open", &error))?;
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        all.push((key.map_or(name, str::to_owned), bytes));
        return Ok(());
    }
    if key.is_some() {
        return Err("cannot give a key name for a directory path".to_owned());
    }
    let listed = std::fs::read_dir(&real).map_err(|error| format!("error listing files in {path}: {error}"))?;
    let mut files: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
    files.sort();
    for file in files {
        let bytes = std::fs::read(&file).map_err(|error| failed("open", &error))?;
        all.push((file.file_name().unwrap_or_default().to_string_lossy().into_owned(), bytes));
    }
    Ok(())
}

fn from_env_file(environment: &Environment, path: &str, what: &str, all: &mut Entries) -> Result<(), String> {
    let real = environment.path(path);
    if real.is_dir() {
        return Err(format!("env {what} file cannot be a directory"));
    }
    let text = std::fs::read_to_string(&real).map_err(|error| {
        let whole = os_error("stat", path, &error);
        format!("error reading {path}: {}", whole.rsplit(": ").next().unwrap_or_default())
    })?;
    for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key, value.to_owned()),
            // A name alone takes its value from the environment.
            None => (line, environment.variables.get(line).cloned().unwrap_or_default()),
        };
        let wrong = names::is_env_var_name(key);
        if !wrong.is_empty() {
            return Err(format!("{} is not a valid key name: {}", go_quote(key), wrong.join(";")));
        }
        all.push((key.to_owned(), value.into_bytes()));
    }
    Ok(())
}

async fn config_map(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let (mut data, mut binary) = (Map::new(), Map::new());
    for (key, value) in entries(invocation, "config").map_err(Failure::Message)? {
        let wrong = names::is_config_map_key(&key);
        if !wrong.is_empty() {
            return Err(Failure::Message(format!(
                "{} is not a valid key name for a ConfigMap: {}",
                go_quote(&key),
                wrong.join(",")
            )));
        }
        if data.contains_key(&key) || binary.contains_key(&key) {
            let place = if data.contains_key(&key) { "Data" } else { "BinaryData" };
            return Err(Failure::Message(format!(
                "cannot add key {}, another key by that name already exists in {place} for ConfigMap {}",
                go_quote(&key),
                go_quote(&name)
            )));
        }
        match String::from_utf8(value) {
            Ok(text) => data.insert(key, text.into()),
            Err(error) => binary.insert(key, STANDARD.encode(error.as_bytes()).into()),
        };
    }
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    if !data.is_empty() {
        object["data"] = Value::Object(data.clone());
    }
    if !binary.is_empty() {
        object["binaryData"] = Value::Object(binary.clone());
    }
    if invocation.flags.is("append-hash") {
        let mut content = json!({"kind": "ConfigMap", "name": name, "data": data});
        if !binary.is_empty() {
            content["binaryData"] = Value::Object(binary);
        }
        object["metadata"]["name"] = format!("{name}-{}", kustomize::content_hash(&content)).into();
    }
    generated(invocation, "configmap:", object).await
}

async fn secret(invocation: &mut Invocation, name: &str, kind: &str, entries: Entries) -> Outcome {
    let mut data = Map::new();
    for (key, value) in entries {
        let wrong = names::is_config_map_key(&key);
        if !wrong.is_empty() {
            return Err(Failure::Message(format!(
                "{} is not valid key name for a Secret {}",
                go_quote(&key),
                wrong.join(";")
            )));
        }
        if data.contains_key(&key) {
            return Err(Failure::Message(format!("cannot add key {key}, another key by that name already exists")));
        }
        data.insert(key, STANDARD.encode(value).into());
    }
    let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    if !data.is_empty() {
        object["data"] = Value::Object(data.clone());
    }
    if !kind.is_empty() {
        object["type"] = kind.into();
    }
    if invocation.flags.is("append-hash") {
        let content = json!({"kind": "Secret", "type": kind, "name": name, "data": data});
        object["metadata"]["name"] = format!("{name}-{}", kustomize::content_hash(&content)).into();
    }
    generated(invocation, "secret", object).await
}

async fn generic(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let entries = entries(invocation, "secret").map_err(Failure::Message)?;
    let kind = invocation.flags.text("type").to_owned();
    secret(invocation, &name, &kind, entries).await
}

async fn tls(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let (cert, key) = (invocation.flags.text("cert").to_owned(), invocation.flags.text("key").to_owned());
    if cert.is_empty() || key.is_empty() {
        return Err(Failure::message("key and cert must be specified"));
    }
    let read = |path: &str| {
        std::fs::read(invocation.session.environment.path(path))
            .map_err(|error| Failure::Message(format!("Cannot read file {path}, {}", os_error("open", path, &error))))
    };
    let (chain, private) = (read(&cert)?, read(&key)?);
    if !String::from_utf8_lossy(&chain).contains("-----BEGIN ") {
        return Err(Failure::message("tls: failed to find any PEM data in certificate input"));
    }
    if !String::from_utf8_lossy(&private).contains("-----BEGIN ") {
        return Err(Failure::message("tls: failed to find any PEM data in key input"));
    }
    let has = |text: &[u8], what: &str| String::from_utf8_lossy(text).contains(what);
    if !has(&chain, "-----BEGIN CERTIFICATE") {
        let keyed = has(&chain, "PRIVATE KEY-----") && has(&private, "-----BEGIN CERTIFICATE");
        return Err(Failure::message(if keyed {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
        } else {
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks"
        }));
    }
    if !has(&private, "PRIVATE KEY-----") {
        return Err(Failure::message("tls: found a certificate rather than a key in the PEM for the private key"));
    }
    if client::config::Credentials::certificate(&chain, &private).is_err() {
        return Err(Failure::message("tls: private key does not match public key"));
    }
    let entries = vec![("tls.crt".to_owned(), chain), ("tls.key".to_owned(), private)];
    secret(invocation, &name, "kubernetes.io/tls", entries).await
}

async fn docker_registry(invocation: &mut Invocation) -> Outcome {
    const KIND: &str = "kubernetes.io/dockerconfigjson";
    let name = name(invocation)?;
    let flags = &invocation.flags;
    if !flags.list("from-file").is_empty() {
        let mut all = entries(invocation, "secret").map_err(Failure::Message)?;
        for (key, _) in &mut all {
            ".dockerconfigjson".clone_into(key);
        }
        return secret(invocation, &name, KIND, all).await;
    }
    let (user, password) = (flags.text("docker-username"), flags.text("docker-password"));
    let (email, server) = (flags.text("docker-email"), flags.text("docker-server"));
    if user.is_empty() || password.is_empty() || server.is_empty() {
        return Err(Failure::message(
            "either --from-file or the combination of --docker-username, --docker-password and --docker-server is required",
        ));
    }
    let quote = |text: &str| machinery::codec::json::html_safe(&Value::from(text).to_string());
    // The order of the fields is upstream's, so that the same secret comes out.
    let mut entry = format!("{{\"username\":{},\"password\":{}", quote(user), quote(password));
    if !email.is_empty() {
        entry += &format!(",\"email\":{}", quote(email));
    }
    entry += &format!(",\"auth\":\"{}\"}}", STANDARD.encode(format!("{user}:{password}")));
    let text = format!("{{\"auths\":{{{}:{entry}}}}}", quote(server));
    secret(invocation, &name, KIND, vec![(".dockerconfigjson".to_owned(), text.into_bytes())]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_upstream() {
        assert_eq!(
            kustomize::content_hash(&json!({"kind": "ConfigMap", "name": "c", "data": {"k": "v"}})),
            "tgfmcfgbt5"
        );
    }
}
