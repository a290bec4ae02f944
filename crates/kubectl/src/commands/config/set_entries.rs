//! `kubectl config set-cluster`, `set-context` and `set-credentials`.

use base64::Engine as _;
use machinery::status::go_quote;
use serde_json::{Value, json};

use crate::command::{Command, Invocation};
use crate::config::Entry;
use crate::error::{Failure, Outcome, os_error};
use crate::flags::Flag;

pub static CLUSTER: Command = Command {
    name: "set-cluster",
    aliases: &[],
    usage: "NAME [--server=server] [--certificate-authority=path/to/certificate/authority] [--insecure-skip-tls-verify=true] [--tls-server-name=example.com]",
    short: "Set a cluster entry in kubeconfig",
    flags: &[&[
        Flag::string("certificate-authority", "", "File with the authority of the server's certificate."),
        Flag::bool("embed-certs", "Put the certificate into the kubeconfig."),
        Flag::bool("insecure-skip-tls-verify", "Believe any certificate of the server."),
        Flag::string("server", "", "Address of the API server."),
        Flag::string("tls-server-name", "", "Name in the server's certificate."),
        Flag::string("proxy-url", "", "Proxy for requests to this cluster."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(cluster(invocation))),
};

pub static CONTEXT: Command = Command {
    name: "set-context",
    aliases: &[],
    usage: "[NAME | --current] [--cluster=cluster_nickname] [--user=user_nickname] [--namespace=namespace]",
    short: "Set a context entry in kubeconfig",
    flags: &[&[
        Flag::string("cluster", "", "Cluster of the context."),
        Flag::bool("current", "Change the current context."),
        Flag::string("namespace", "", "Namespace of the context.").short('n'),
        Flag::string("user", "", "User of the context."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(context(invocation))),
};

pub static CREDENTIALS: Command = Command {
    name: "set-credentials",
    aliases: &[],
    usage: "NAME [--client-certificate=path/to/certfile] [--client-key=path/to/keyfile] [--token=bearer_token] [--username=basic_user] [--password=basic_password] [--auth-provider=provider_name] [--auth-provider-arg=key=value] [--exec-command=exec_command] [--exec-api-version=exec_api_version] [--exec-arg=arg] [--exec-env=key=value]",
    short: "Set a user entry in kubeconfig",
    flags: &[&[
        Flag::array("auth-provider-arg", "Argument of the auth provider, as key=value."),
        Flag::string("auth-provider", "", "Auth provider."),
        Flag::string("client-certificate", "", "File with the user's certificate."),
        Flag::string("client-key", "", "File with the user's key."),
        Flag::string("password", "", "Password for basic authentication."),
        Flag::string("token", "", "Bearer token."),
        Flag::string("username", "", "Name for basic authentication."),
        Flag::bool("embed-certs", "Put certificate and key into the kubeconfig."),
        Flag::string("exec-api-version", "", "API version of the credential plug-in."),
        Flag::array("exec-arg", "Argument of the credential plug-in."),
        Flag::string("exec-command", "", "Command of the credential plug-in."),
        Flag::array("exec-env", "Variable for the credential plug-in, as key=value."),
        Flag::string("exec-interactive-mode", "", "Whether the plug-in talks to the user: Never, IfAvailable, Always."),
        Flag::bool("exec-provide-cluster-info", "Tell the plug-in about the cluster."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(credentials(invocation))),
};

fn name(invocation: &Invocation) -> Outcome<String> {
    match &invocation.flags.arguments[..] {
        [name] => Ok(name.clone()),
        other => {
            // Each as its upstream has it.
            let start = if invocation.command.name == "set-credentials" { "unexpected" } else { "Unexpected" };
            Err(invocation.misused(format_args!("{start} args: [{}]", other.join(" "))))
        }
    }
}

/// A file's content for `--embed-certs`, or its whole path.
fn file(invocation: &Invocation, entry: &mut Entry, field: &str) -> Outcome {
    if !invocation.flags.changed(field) {
        return Ok(());
    }
    let given = invocation.flags.text(field).to_owned();
    let data = format!("{field}-data");
    if given.is_empty() {
        entry.set(field, "");
        return Ok(());
    }
    let path = invocation.session.environment.path(&given);
    if invocation.flags.is("embed-certs") {
        let bytes = std::fs::read(&path).map_err(|error| {
            Failure::Message(format!("could not stat {field} file {given}: {}", os_error("stat", &given, &error)))
        })?;
        entry.set(&data, base64::engine::general_purpose::STANDARD.encode(bytes));
        entry.set(field, "");
    } else {
        let whole = std::path::absolute(&path).unwrap_or(path);
        entry.set(field, crate::config::load::clean(&whole));
        entry.set(&data, "");
    }
    Ok(())
}

async fn cluster(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    if invocation.flags.is("insecure-skip-tls-verify") && !invocation.flags.text("certificate-authority").is_empty() {
        return Err(Failure::message("you cannot specify a certificate authority and insecure mode at the same time"));
    }
    if invocation.flags.is("embed-certs") && invocation.flags.text("certificate-authority").is_empty() {
        return Err(Failure::message("you must specify a --certificate-authority to embed"));
    }
    let before = super::load(invocation)?;
    let mut after = before.clone();
    let entry = after.clusters.entry(name.clone()).or_default();
    for field in ["server", "tls-server-name", "proxy-url"] {
        if invocation.flags.changed(field) {
            entry.set(field, invocation.flags.text(field));
        }
    }
    if invocation.flags.changed("insecure-skip-tls-verify") {
        let insecure = invocation.flags.is("insecure-skip-tls-verify");
        entry.set("insecure-skip-tls-verify", insecure);
        if insecure {
            entry.set("certificate-authority", "");
            entry.set("certificate-authority-data", "");
        }
    }
    if !invocation.flags.text("certificate-authority").is_empty() {
        entry.set("insecure-skip-tls-verify", false);
    }
    file(invocation, entry, "certificate-authority")?;
    super::save(invocation, &before, &after)?;
    invocation.say(&format!("Cluster {} set.", go_quote(&name)))
}

async fn context(invocation: &mut Invocation) -> Outcome {
    let before = super::load(invocation)?;
    let current = invocation.flags.is("current");
    let name = match (&invocation.flags.arguments[..], current) {
        ([], true) if before.current.is_empty() => return Err(Failure::message("no current context is set")),
        ([], true) => before.current.clone(),
        ([name], false) if !name.is_empty() => name.clone(),
        ([_], true) => return Err(Failure::message("you cannot specify both a context name and --current")),
        ([] | [_], false) => {
            return Err(Failure::message("you must specify a non-empty context name or --current"));
        }
        (more, _) => return Err(invocation.misused(format_args!("Unexpected args: [{}]", more.join(" ")))),
    };
    let mut after = before.clone();
    let known = after.contexts.contains_key(&name);
    let entry = after.contexts.entry(name.clone()).or_default();
    for field in ["cluster", "user", "namespace"] {
        if invocation.flags.changed(field) {
            entry.set(field, invocation.flags.text(field));
        }
    }
    super::save(invocation, &before, &after)?;
    let done = if known { "modified" } else { "created" };
    invocation.say(&format!("Context {} {done}.", go_quote(&name)))
}

async fn credentials(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let flags = &invocation.flags;
    let given = |flag: &str| !flags.text(flag).is_empty();
    if given("token") && (given("username") || given("password")) {
        return Err(Failure::message(
            "you cannot specify more than one authentication method at the same time: --token, --username/--password",
        ));
    }
    if flags.is("embed-certs") && !given("client-certificate") && !given("client-key") {
        return Err(Failure::message("you must specify a --client-certificate or --client-key to embed"));
    }
    if !matches!(flags.text("exec-interactive-mode"), "" | "IfAvailable" | "Never" | "Always") {
        return Err(Failure::message("invalid interactive mode type, can be only IfAvailable, Never, Always"));
    }
    for (flag, why) in [("exec-env", "exec-env"), ("auth-provider-arg", "auth-provider-arg")] {
        let odd = |pair: &&String| !pair.contains('=') && !pair.ends_with('-');
        if let Some(pair) = flags.list(flag).iter().find(odd) {
            return Err(invocation.misused(format_args!("error: invalid {why} format: {pair}")));
        }
    }
    let before = super::load(invocation)?;
    let mut after = before.clone();
    let entry = after.users.entry(name.clone()).or_default();
    file(invocation, entry, "client-certificate")?;
    file(invocation, entry, "client-key")?;
    for field in ["token", "username", "password"] {
        if flags.changed(field) {
            entry.set(field, flags.text(field));
        }
    }
    // One way to log in takes the place of the other.
    if flags.changed("token") && !flags.text("token").is_empty() {
        entry.set("username", "");
        entry.set("password", "");
    } else if given("username") || given("password") {
        entry.set("token", "");
    }
    exec(invocation, entry);
    auth_provider(invocation, entry);
    super::save(invocation, &before, &after)?;
    invocation.say(&format!("User {} set.", go_quote(&name)))
}

/// Another provider begins anew; arguments of the one that is there are set and taken away.
fn auth_provider(invocation: &Invocation, entry: &mut Entry) {
    let flags = &invocation.flags;
    let mut provider = entry.fields.get("auth-provider").filter(|known| known.is_object()).cloned();
    if flags.changed("auth-provider") {
        let name = flags.text("auth-provider");
        if provider.as_ref().is_none_or(|known| known["name"] != name) {
            provider = Some(json!({"name": name, "config": {}}));
        }
    }
    let Some(mut provider) = provider else { return };
    if let Value::Object(config) = &mut provider["config"] {
        for pair in flags.list("auth-provider-arg") {
            match pair.split_once('=') {
                Some((key, value)) => drop(config.insert(key.to_owned(), value.into())),
                None => drop(config.remove(pair.trim_end_matches('-'))),
            }
        }
    }
    if flags.changed("auth-provider") || flags.changed("auth-provider-arg") {
        entry.set("auth-provider", provider);
    }
}

fn exec(invocation: &Invocation, entry: &mut Entry) {
    let flags = &invocation.flags;
    let names = [
        "exec-command",
        "exec-api-version",
        "exec-arg",
        "exec-env",
        "exec-interactive-mode",
        "exec-provide-cluster-info",
    ];
    if !names.iter().any(|name| flags.changed(name)) {
        return;
    }
    let mut exec = entry.fields.get("exec").cloned().unwrap_or_else(|| json!({}));
    for (flag, field) in
        [("exec-command", "command"), ("exec-api-version", "apiVersion"), ("exec-interactive-mode", "interactiveMode")]
    {
        if flags.changed(flag) {
            exec[field] = flags.text(flag).into();
        }
    }
    // Another command begins without the arguments of the one before.
    if flags.changed("exec-command") {
        exec["args"] = Value::Null;
    }
    if flags.changed("exec-arg") {
        exec["args"] = json!(flags.list("exec-arg"));
    }
    if flags.changed("exec-provide-cluster-info") {
        exec["provideClusterInfo"] = flags.is("exec-provide-cluster-info").into();
    }
    if flags.changed("exec-env") {
        let mut all: Vec<Value> = exec.get("env").and_then(Value::as_array).cloned().unwrap_or_default();
        for pair in flags.list("exec-env") {
            match pair.split_once('=') {
                Some((key, value)) => {
                    all.retain(|known| known["name"] != key);
                    all.push(json!({"name": key, "value": value}));
                }
                None => all.retain(|known| known["name"] != pair.trim_end_matches('-')),
            }
        }
        exec["env"] = Value::Array(all);
    }
    entry.set("exec", exec);
}
