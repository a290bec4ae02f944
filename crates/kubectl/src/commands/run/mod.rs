//! `kubectl run`: one pod from an image.

mod session;

use serde_json::{Value, json};

use super::create::remember_typed;
use super::expose;
use super::overrides;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, Given, sets};
use crate::record;
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
        sets::RECORD,
        sets::SAVE_CONFIG,
        &[
            sets::field_manager("kubectl-run"),
            Flag::array("annotations", "Annotations of the pod, as key=value."),
            Flag::bool("attach", "Wait until the pod runs and attach to it; with -i this is the default."),
            Flag::string("cascade", "background", "What becomes of dependents: background, orphan or foreground.")
                .or_bare("background"),
            Flag::bool("command", "What follows is the command, not its arguments."),
            Flag::string("detach-keys", "ctrl-p,ctrl-q", "Keys that end the session and not the container."),
            Flag::array("env", "Variables of the container, as key=value."),
            Flag::bool("expose", "Make a service for --port, too."),
            Flag::slice("filename", "Ignored.")
                .short('f')
                .deprecated("it is ignored by kubectl run and will be removed in a future release"),
            Flag::bool("force", "Do not wait for the end of containers."),
            Flag::int("grace-period", "-1", "Seconds that a pod gets to end; negative is the pod's own."),
            Flag::string("image", "", "Image of the container."),
            Flag::string("image-pull-policy", "", "When the image is pulled."),
            Flag::string("kustomize", "", "Directory with a kustomization.").short('k'),
            Flag::string("labels", "", "Labels of the pod.").short('l'),
            Flag::bool("leave-stdin-open", "Standard input stays open after the first session."),
            Flag::string("override-type", "merge", "Kind of --overrides: json, merge or strategic."),
            Flag::string("overrides", "", "JSON that changes the pod before it is made."),
            Flag::duration("pod-running-timeout", "1m0s", "How long to wait for a pod that runs."),
            Flag::string("port", "", "Port that the container exposes."),
            Flag::bool("privileged", "Run the container in privileged mode."),
            Flag::bool("quiet", "Say nothing but what was asked for.").short('q'),
            Flag::bool("recursive", "Look into directories below.").short('R'),
            Flag::string("restart", "Always", "Restart policy: Always, OnFailure or Never."),
            Flag::bool("rm", "Delete the pod when the session is over."),
            Flag::bool("stdin", "Keep standard input open.").short('i'),
            Flag::duration("timeout", "0s", "How long to wait for a deletion."),
            Flag::bool("tty", "Give the container a terminal.").short('t'),
            Flag::bool("wait", "Wait for a deletion to be done."),
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
        return Err(Failure::message("NAME is required for run"));
    };
    let image = flags.text("image");
    if image.is_empty() {
        return Err(Failure::message("--image is required"));
    }
    if !is_image(image) {
        let quoted = machinery::status::go_quote(image);
        return Err(Failure::Message(format!("invalid image name {quoted}: invalid reference format")));
    }
    if flags.is("tty") && !flags.is("stdin") {
        return Err(Failure::message("-i/--stdin is required for containers with -t/--tty=true"));
    }
    if flags.is("expose") && flags.text("port").is_empty() {
        return Err(Failure::message("--port must be set when exposing a service"));
    }
    if flags.given("port").is_some_and(|port| port.parse::<i64>().is_err()) {
        return Err(Failure::message("--port must be a number"));
    }
    if flags.is("rm") && !attaches(flags) {
        return Err(Failure::message("--rm should only be used for attached containers"));
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

/// Whether a text can be the name of an image.
pub fn is_image(image: &str) -> bool {
    let odd = |letter: char| letter.is_ascii_uppercase() || letter.is_whitespace();
    let (tagged, digest) = image.split_once('@').map_or((image, None), |(before, digest)| (before, Some(digest)));
    let is_digest = |digest: &str| {
        let hex = |hex: &str| hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        digest.split_once(':').is_some_and(|(algorithm, value)| !algorithm.is_empty() && hex(value))
    };
    let repository = tagged.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(tagged, |(before, _)| before);
    // A colon besides the tag's is that of a port.
    let path = repository.split_once('/').map_or(repository, |(first, rest)| match first.split_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => repository,
    });
    let fits = !path.contains(':') && !repository.contains(odd) && digest.is_none_or(is_digest);
    fits && !repository.is_empty() && !image.contains(char::is_whitespace)
}

/// Whether the user wants to be in the container.
fn attaches(flags: &Given) -> bool {
    if flags.changed("attach") { flags.is("attach") } else { flags.is("stdin") }
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let name = validate(invocation)?;
    super::patience(invocation).map_err(|error| Failure::message(error.bare().lines().next().unwrap_or_default()))?;
    let writing = Writing::from_flags(&invocation.flags)?;
    let attaches = attaches(&invocation.flags);
    if attaches && writing.dry_run != DryRun::No {
        return Err(Failure::message(
            "--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)",
        ));
    }
    let mut object = pod(invocation, &name).map_err(Failure::Message)?;
    overrides::apply(invocation, &mut object)?;
    record::note(invocation, &mut object);
    let labels = machinery::value::at(&object, "metadata.labels").cloned().unwrap_or_default();
    let mut made = vec![make(invocation, &writing, object).await?];
    if invocation.flags.is("expose") {
        let port = invocation.flags.int("port");
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": port, "protocol": "TCP", "targetPort": port}], "selector": labels},
            "status": {"loadBalancer": {}},
        });
        made.push(make(invocation, &writing, service).await?);
    }
    if attaches {
        return session::hold(invocation, &made).await;
    }
    let mut report = Report::new(invocation, writing.dry_run, true)?;
    for object in &made {
        report.say(invocation, object, "created")?;
    }
    Ok(())
}

/// Makes an object; as the server has it then.
async fn make(invocation: &mut Invocation, writing: &Writing, mut object: Value) -> Outcome<Value> {
    let connection = invocation.session.connection()?.clone();
    if connection.namespace_given {
        machinery::value::set(&mut object, "metadata.namespace", connection.namespace.as_str());
    }
    if invocation.flags.is("save-config") && writing.dry_run != DryRun::Client {
        remember_typed(&mut object);
    }
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mapping = files::local(&text("apiVersion"), &text("kind")).unwrap_or_default();
    let mut made = info(&mapping, object, "");
    made.namespace.clone_from(&connection.namespace);
    if writing.dry_run == DryRun::Client {
        return Ok(made.object);
    }
    writing.create(&*invocation.session.api()?, &made).await
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
        if !flags.is("leave-stdin-open") {
            container["stdinOnce"] = true.into();
        }
    }
    if flags.is("tty") {
        container["tty"] = true.into();
    }
    let labels = match flags.text("labels") {
        "" => json!({"run": name}),
        given => Value::Object(expose::labels(given)?),
    };
    let mut metadata = json!({"name": name, "labels": labels});
    for (key, value) in annotations(&flags.list("annotations"))? {
        metadata["annotations"][key] = value.into();
    }
    let spec = json!({"containers": [container], "restartPolicy": flags.text("restart"), "dnsPolicy": "ClusterFirst"});
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}))
}

/// Pairs of `--annotations`; all that are none are named.
fn annotations(given: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let pair = |one: &&String| !one.starts_with('=') && one.contains('=');
    let odd: Vec<&str> = given.iter().filter(|one| !pair(one)).map(String::as_str).collect();
    if odd.is_empty() {
        Ok(given.iter().filter_map(|one| one.split_once('=')).collect())
    } else {
        Err(format!("invalid annotations format: {}", odd.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::{annotations, is_image};

    #[test]
    fn annotations_are_pairs_and_all_that_are_none_are_named() {
        let own = |given: &[&str]| given.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(annotations(&own(&["a=b", "c=d=e"])), Ok(vec![("a", "b"), ("c", "d=e")]));
        let refused = Err("invalid annotations format: x, =y".to_owned());
        assert_eq!(annotations(&own(&["x", "a=b", "=y"])), refused);
    }

    #[test]
    fn images_have_a_name_and_maybe_a_port_a_tag_and_a_digest() {
        let digest = format!("sha256:{}", "0f".repeat(32));
        for image in ["web", "web:V1", "host:5000/a/web", "host:5000/a/web:1"] {
            assert!(is_image(image), "{image}");
            assert!(is_image(&format!("{image}@{digest}")), "{image} with a digest");
        }
        for image in ["", ":1", "Web", "bad:image:x", "host:x/web", "a b", "web@", "web@sha256:0f", "web:1@latest"] {
            assert!(!is_image(image), "{image}");
        }
    }
}
