//! `kubectl run`: one pod from an image.

use serde_json::{Value, json};

use super::create::{LAST_APPLIED, remember};
use super::expose;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::report::Report;
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{files, info};

pub static COMMAND: Command = Command {
    name: "run",
    aliases: &[],
    usage: "NAME --image=image [--env=\"key=value\"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] [--command] -- [COMMAND] [args...]",
    short: "Run a particular image on the cluster",
    flags: &[
        sets::PRINT,
        sets::DRY_RUN,
        sets::SAVE_CONFIG,
        &[
            sets::field_manager("kubectl-run"),
            Flag::array("annotations", "Annotations of the pod, as key=value."),
            Flag::bool("command", "What follows is the command, not its arguments."),
            Flag::array("env", "Variables of the container, as key=value."),
            Flag::bool("expose", "Make a service for --port, too."),
            Flag::string("image", "", "Image of the container."),
            Flag::string("image-pull-policy", "", "When the image is pulled."),
            Flag::string("labels", "", "Labels of the pod.").short('l'),
            Flag::string("override-type", "merge", "Kind of --overrides: json, merge or strategic."),
            Flag::string("overrides", "", "JSON that changes the pod before it is made."),
            Flag::string("port", "", "Port that the container exposes."),
            Flag::bool("privileged", "Run the container in privileged mode."),
            Flag::bool("quiet", "Say nothing but what was asked for.").short('q'),
            Flag::string("restart", "Always", "Restart policy: Always, OnFailure or Never."),
            Flag::bool("stdin", "Keep standard input open.").short('i'),
            Flag::bool("tty", "Give the container a terminal.").short('t'),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

fn validate(invocation: &Invocation) -> Outcome<String> {
    let flags = &invocation.flags;
    if !flags.changed("image") {
        return Err(Failure::message("required flag(s) \"image\" not set"));
    }
    let Some(name) = flags.arguments.first().filter(|_| flags.dash != Some(0)) else {
        return Err(invocation.usage("NAME is required for run"));
    };
    let image = flags.text("image");
    if image.is_empty() {
        return Err(Failure::message("--image is required"));
    }
    let odd = |letter: char| letter.is_ascii_uppercase() || letter.is_whitespace();
    let repository = image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(image, |(before, _)| before);
    if repository.contains(odd) || repository.is_empty() || image.contains(char::is_whitespace) {
        let quoted = machinery::status::go_quote(image);
        return Err(Failure::Message(format!("invalid image name {quoted}: invalid reference format")));
    }
    if flags.is("tty") && !flags.is("stdin") {
        return Err(Failure::message("-i/--stdin is required for containers with -t/--tty=true"));
    }
    if flags.is("expose") && flags.text("port").is_empty() {
        return Err(Failure::message("--port must be set when exposing a service"));
    }
    let restart = flags.text("restart");
    if !matches!(restart, "" | "Always" | "OnFailure" | "Never") {
        return Err(Failure::Message(format!(
            "invalid restart policy: {restart}, valid values are: Always, OnFailure, Never"
        )));
    }
    let policy = flags.text("image-pull-policy");
    if !matches!(policy, "" | "Always" | "IfNotPresent" | "Never") {
        return Err(Failure::Message(format!(
            "invalid image pull policy: {policy}, valid values are: Always, IfNotPresent, Never"
        )));
    }
    Ok(name.clone())
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let name = validate(invocation)?;
    let writing = Writing::from_flags(&invocation.flags)?;
    let mut object = pod(invocation, &name).map_err(Failure::Message)?;
    if let Some(overrides) = invocation.flags.given("overrides") {
        let patch: Value = serde_json::from_str(overrides).map_err(|error| Failure::Message(error.to_string()))?;
        machinery::patch::merge::apply(&mut object, patch);
    }
    let labels = machinery::value::at(&object, "metadata.labels").cloned().unwrap_or_default();
    make(invocation, &writing, object).await?;
    if invocation.flags.is("expose") {
        let port: i64 =
            invocation.flags.text("port").parse().map_err(|_| Failure::message("--port must be a number"))?;
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": port, "protocol": "TCP", "targetPort": port}], "selector": labels},
            "status": {"loadBalancer": {}},
        });
        make(invocation, &writing, service).await?;
    }
    Ok(())
}

async fn make(invocation: &mut Invocation, writing: &Writing, mut object: Value) -> Outcome {
    let connection = invocation.session.connection()?.clone();
    if connection.namespace_given {
        machinery::value::set(&mut object, "metadata.namespace", connection.namespace.as_str());
    }
    if invocation.flags.is("save-config") {
        remember(&mut object);
        debug_assert!(object["metadata"]["annotations"].get(LAST_APPLIED).is_some());
    }
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mapping = files::local(&text("apiVersion"), &text("kind")).unwrap_or_default();
    let mut made = info(&mapping, object, "");
    made.namespace.clone_from(&connection.namespace);
    let object = if writing.dry_run == DryRun::Client {
        made.object
    } else {
        writing.create(&*invocation.session.api()?, &made).await?
    };
    Report::new(invocation, writing.dry_run, true)?.say(invocation, &object, "created")
}

fn pod(invocation: &Invocation, name: &str) -> Result<Value, String> {
    let flags = &invocation.flags;
    let mut container = json!({"name": name, "image": flags.text("image"), "resources": {}});
    let words = &flags.arguments[1..];
    if !words.is_empty() {
        container[if flags.is("command") { "command" } else { "args" }] = json!(words);
    }
    let mut variables = Vec::new();
    for pair in flags.list("env") {
        let odd = || format!("invalid env: {pair}");
        let (key, value) = pair.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(odd)?;
        variables.push(json!({"name": key, "value": value}));
    }
    if !variables.is_empty() {
        container["env"] = Value::Array(variables);
    }
    if let Some(port) = flags.given("port") {
        let number: i64 = port.parse().map_err(|_| format!("strconv.Atoi: parsing {port:?}: invalid syntax"))?;
        container["ports"] = json!([{"containerPort": number}]);
    }
    if let Some(policy) = flags.given("image-pull-policy") {
        container["imagePullPolicy"] = policy.into();
    }
    if flags.changed("privileged") {
        container["securityContext"] = json!({"privileged": flags.is("privileged")});
    }
    if flags.is("stdin") {
        container["stdin"] = true.into();
        container["stdinOnce"] = true.into();
    }
    if flags.is("tty") {
        container["tty"] = true.into();
    }
    let labels = match flags.text("labels") {
        "" => json!({"run": name}),
        given => Value::Object(expose::labels(given)?),
    };
    let mut metadata = json!({"name": name, "labels": labels});
    for annotation in flags.list("annotations") {
        let (key, value) =
            annotation.split_once('=').ok_or_else(|| format!("unexpected annotation spec: {annotation}"))?;
        metadata["annotations"][key] = value.into();
    }
    let spec = json!({"containers": [container], "restartPolicy": flags.text("restart"), "dnsPolicy": "ClusterFirst"});
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}))
}
