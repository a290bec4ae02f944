//! `kubectl debug`: a container beside those of a pod, a copy of a pod, or a pod on a node, to look into what is wrong.

mod make;
mod profile;

use std::time::Duration;

use machinery::codec::{Limits, yaml};
use machinery::value::{list, text};
use serde_json::{Value, json};

use super::talk::{self, StreamOptions};
use super::{logs, pods, run};
use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome, os_error};
use crate::flags::{Flag, Given};
use crate::resource::helper::STRATEGIC;
use crate::resource::{Builder, Info};
use make::{Debugged, Options};
use profile::Profile;

pub static COMMAND: Command = Command {
    name: "debug",
    aliases: &[],
    usage: "(POD | TYPE[[.VERSION].GROUP]/NAME) [ -- COMMAND [args...] ]",
    short: "Create debugging sessions for troubleshooting workloads and nodes",
    flags: &[&[
        Flag::bool("arguments-only", "What follows -- are arguments, not the command."),
        Flag::bool("attach", "Wait until the container runs and attach to it; with -i this is the default."),
        Flag::string("container", "", "Name of the container to debug with.").short('c'),
        Flag::string("copy-to", "", "Name of a copy of the pod to make."),
        Flag::string("custom", "", "File with a partial container that changes the profile."),
        Flag::slice("env", "Variables of the container, as key=value."),
        Flag::slice("filename", "Files or directories with the object to debug.").short('f'),
        Flag::string("image", "", "Image to debug with."),
        Flag::string("image-pull-policy", "", "When the image is pulled."),
        Flag::bool("keep-annotations", "A copy keeps the annotations of the pod."),
        Flag::bool("keep-init-containers", "A copy keeps the init containers of the pod.").default("true"),
        Flag::bool("keep-labels", "A copy keeps the labels of the pod."),
        Flag::bool("keep-liveness", "A copy keeps the liveness probes of the pod."),
        Flag::bool("keep-readiness", "A copy keeps the readiness probes of the pod."),
        Flag::bool("keep-startup", "A copy keeps the startup probes of the pod."),
        Flag::string("profile", "general", "general, baseline, restricted, netadmin or sysadmin."),
        Flag::bool("quiet", "Say nothing but what was asked for.").short('q'),
        Flag::bool("replace", "With --copy-to, delete the original pod."),
        Flag::bool("same-node", "With --copy-to, put the copy on the same node."),
        Flag::slice("set-image", "With --copy-to, other images of containers, as name=image."),
        Flag::bool("share-processes", "With --copy-to, containers see each other's processes.").default("true"),
        Flag::bool("stdin", "Keep standard input open.").short('i'),
        Flag::string("target", "", "Container whose processes are to be seen."),
        Flag::bool("tty", "Give the container a terminal.").short('t'),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run_it(invocation))),
};

/// `a=b,c=d`, once or often, in the order of keys.
fn pairs(flags: &Given, name: &str) -> Outcome<Vec<(String, String)>> {
    let mut found = std::collections::BTreeMap::new();
    for pair in flags.list(name) {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            Failure::Message(format!(
                "invalid argument {pair:?} for \"--{name}\" flag: {pair} must be formatted as key=value\nSee 'kubectl debug --help' for usage."
            ))
        })?;
        found.insert(key.to_owned(), value.to_owned());
    }
    Ok(found.into_iter().collect())
}

fn options(invocation: &Invocation) -> Outcome<Options> {
    let flags = &invocation.flags;
    let (targets, command) = match flags.dash {
        Some(at) if flags.arguments.len() > at => (&flags.arguments[..at], &flags.arguments[at..]),
        _ => (&flags.arguments[..], &[][..]),
    };
    let keeps = profile::Keeps {
        labels: flags.is("keep-labels"),
        annotations: flags.is("keep-annotations"),
        liveness: flags.is("keep-liveness"),
        readiness: flags.is("keep-readiness"),
        startup: flags.is("keep-startup"),
        init_containers: flags.is("keep-init-containers"),
    };
    Ok(Options {
        targets: targets.to_vec(),
        command: command.to_vec(),
        arguments_only: flags.is("arguments-only"),
        container: flags.text("container").to_owned(),
        copy_to: flags.text("copy-to").to_owned(),
        env: pairs(flags, "env")?,
        image: flags.text("image").to_owned(),
        pull_policy: flags.text("image-pull-policy").to_owned(),
        profile: Profile::named(flags.text("profile")).map_err(Failure::Message)?,
        keeps,
        custom: custom(invocation)?,
        quiet: flags.is("quiet"),
        same_node: flags.is("same-node"),
        set_images: pairs(flags, "set-image")?,
        share_processes: flags.changed("share-processes").then(|| flags.is("share-processes")),
        stdin: flags.is("stdin"),
        target: flags.text("target").to_owned(),
        tty: flags.is("tty"),
    })
}

/// A partial container of the user's.
fn custom(invocation: &Invocation) -> Outcome<Option<Value>> {
    let Some(file) = invocation.flags.given("custom") else { return Ok(None) };
    let bytes = std::fs::read(invocation.session.environment.path(file)).map_err(|error| {
        let why = os_error("open", file, &error);
        Failure::Message(format!("must pass a container spec json file for custom profile: {why}"))
    })?;
    let read = yaml::decode(&bytes, Limits::default());
    let read = read.map_err(|error| {
        Failure::Message(format!("{file} does not contain a valid container spec: {}", error.message))
    })?;
    container(file, read.value)
}

/// What a file has to hold: a container, or nothing.
fn container(file: &str, value: Value) -> Outcome<Option<Value>> {
    match value {
        Value::Null => Ok(None),
        Value::Object(_) => Ok(Some(value)),
        other => {
            let found = machinery::patch::json_type(&other);
            Err(Failure::Message(format!(
                "{file} does not contain a valid container spec: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type v1.Container"
            )))
        }
    }
}

fn validate(invocation: &mut Invocation, options: &Options) -> Outcome {
    let flags = &invocation.flags;
    let attach = flags.is("attach");
    let custom_names = ["name", "command", "image", "lifecycle", "volumeDevices"];
    let wrong = if attach && options.image.is_empty() && options.container.is_empty() {
        "you must specify --container or create a new container using --image in order to attach.".to_owned()
    } else if !options.copy_to.is_empty() {
        if options.image.is_empty() && options.set_images.is_empty() && options.command.is_empty() {
            "you must specify --image, --set-image or command arguments.".to_owned()
        } else if !options.command.is_empty() && options.container.is_empty() && options.image.is_empty() {
            "you must specify an existing container or a new image when specifying args.".to_owned()
        } else {
            String::new()
        }
    } else if flags.is("replace") {
        "--replace may only be used with --copy-to.".to_owned()
    } else if options.same_node {
        "--same-node may only be used with --copy-to.".to_owned()
    } else if !options.set_images.is_empty() {
        "--set-image may only be used with --copy-to.".to_owned()
    } else if options.image.is_empty() {
        "you must specify --image when not using --copy-to.".to_owned()
    } else {
        String::new()
    };
    let odd_image = options.set_images.iter().find(|(_, image)| !run::is_image(image));
    let wrong = if !wrong.is_empty() {
        wrong
    } else if !options.image.is_empty() && !run::is_image(&options.image) {
        format!("invalid image name {:?}: invalid reference format", options.image)
    } else if options.targets.is_empty() && flags.list("filename").is_empty() {
        "NAME or filename is required for debug".to_owned()
    } else if !matches!(options.pull_policy.as_str(), "" | "Always" | "IfNotPresent" | "Never") {
        format!("invalid image pull policy: {}", options.pull_policy)
    } else if let Some((name, image)) = odd_image {
        format!("invalid image name {image:?} for container {name:?}: invalid reference format")
    } else if !options.target.is_empty() && !options.copy_to.is_empty() {
        "--target is incompatible with --copy-to. Use --share-processes instead.".to_owned()
    } else {
        String::new()
    };
    if !wrong.is_empty() {
        return Err(Failure::Message(wrong));
    }
    if !options.target.is_empty() && !options.quiet {
        invocation.say(&format!(
            "Targeting container {:?}. If you don't see processes from this container it may be because the container runtime doesn't support this feature.",
            options.target
        ))?;
    }
    if options.tty && !options.stdin {
        return Err(Failure::message("-i/--stdin is required for containers with -t/--tty=true"));
    }
    if options.custom.as_ref().is_some_and(|custom| custom_names.iter().any(|name| custom.get(name).is_some())) {
        return Err(Failure::message(
            "name, command, image, lifecycle and volume devices are not modifiable via custom profile",
        ));
    }
    if options.profile == Profile::Legacy {
        invocation.streams.error("--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify other profile, for example \"--profile=general\".");
    }
    Ok(())
}

async fn run_it(invocation: &mut Invocation) -> Outcome {
    let options = options(invocation)?;
    validate(invocation, &options)?;
    let word = |word: &String| if word.contains('/') { word.clone() } else { format!("pods/{word}") };
    let builder = Builder {
        arguments: options.targets.iter().map(word).collect(),
        ends_at_first: true,
        ..Builder::from_flags(&invocation.session, &invocation.flags)?
    };
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let flags = &invocation.flags;
    let attaches = if flags.changed("attach") { flags.is("attach") } else { options.stdin };
    for info in found.infos {
        let (pod, container) = match info.mapping.kind.as_str() {
            "Node" => on_node(invocation, &options, &info).await?,
            "Pod" if options.copy_to.is_empty() => beside(invocation, &options, &info).await?,
            "Pod" => in_copy(invocation, &options, &info).await?,
            kind => {
                let named = format!("{}/{}, Kind={kind}", info.mapping.group, info.mapping.version);
                return Err(Failure::Message(format!("{named:?} not supported by debug")));
            }
        };
        invocation.warn();
        if attaches && !container.is_empty() {
            attach(invocation, &options, &pod, &container).await?;
        }
    }
    Failure::all(found.errors)
}

async fn create(invocation: &Invocation, namespace: &str, pod: &Value) -> Outcome<Value> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    invocation.session.api()?.send(http::Method::POST, &path, JSON, pod).await
}

/// Says what was decided for the user.
fn announce(invocation: &mut Invocation, made: &Debugged) -> Outcome {
    for line in &made.notes {
        invocation.say(line)?;
    }
    if make::lacks_power(&made.pod, &made.container) {
        invocation.streams.error("Warning: Non-root user is configured for the entire target Pod, and some capabilities granted by debug profile may not work. Please consider using \"--custom\" with a custom profile that specifies \"securityContext.runAsUser: 0\".");
    }
    Ok(())
}

async fn on_node(invocation: &mut Invocation, options: &Options, node: &Info) -> Outcome<(Value, String)> {
    let made = make::on_node(options, &node.name, &mut super::suffix).map_err(Failure::Message)?;
    announce(invocation, &made)?;
    let namespace = invocation.session.namespace()?;
    Ok((create(invocation, &namespace, &made.pod).await?, made.container))
}

async fn in_copy(invocation: &mut Invocation, options: &Options, pod: &Info) -> Outcome<(Value, String)> {
    let made = make::copy(options, &pod.object, &mut super::suffix).map_err(Failure::Message)?;
    announce(invocation, &made)?;
    let created = create(invocation, &pod.namespace, &made.pod).await?;
    if invocation.flags.is("replace") {
        let now = json!({"gracePeriodSeconds": 0});
        invocation.session.api()?.send(http::Method::DELETE, &pod.path(), JSON, &now).await?;
    }
    Ok((created, made.container))
}

async fn beside(invocation: &mut Invocation, options: &Options, pod: &Info) -> Outcome<(Value, String)> {
    let made = make::beside(options, &pod.object, &mut super::suffix).map_err(Failure::Message)?;
    announce(invocation, &made)?;
    let all = list(&made.pod, "spec.ephemeralContainers");
    let order: Vec<Value> = all.iter().map(|container| json!({"name": container["name"]})).collect();
    let patch = json!({"spec": {"$setElementOrder/ephemeralContainers": order, "ephemeralContainers": [all.last()]}});
    let path = pod.mapping.path(&pod.namespace, &pod.name, "ephemeralcontainers");
    let patched = invocation.session.api()?.send(http::Method::PATCH, &path, STRATEGIC, &patch).await;
    let patched = patched.map_err(|error| match error {
        Failure::Api(error)
            if error.code == 404 && error.details.as_ref().is_none_or(|details| details.name.is_empty()) =>
        {
            Failure::Message(format!(
                "ephemeral containers are disabled for this cluster (error from server: {:?})",
                error.message
            ))
        }
        other => other,
    })?;
    Ok((patched, made.container))
}

fn status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    ["status.initContainerStatuses", "status.containerStatuses", "status.ephemeralContainerStatuses"]
        .iter()
        .flat_map(|path| list(pod, path))
        .find(|status| text(status, "name") == container)
        .map(|status| &status["state"])
}

/// Waits until the container runs, and joins its streams; one that has ended already left its log.
async fn attach(invocation: &mut Invocation, options: &Options, pod: &Value, container: &str) -> Outcome {
    let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
    // As long as it takes.
    let forever = Duration::from_secs(365 * 24 * 3600);
    let streams = &mut invocation.streams;
    let begun = |pod: &Value| {
        let Some(state) = status(pod, container) else { return false };
        if state["running"].is_object() || state["terminated"].is_object() {
            return true;
        }
        let message = text(state, "waiting.message");
        if !options.quiet && !message.is_empty() {
            streams.error(&format!("Warning: container {container}: {message}"));
        }
        false
    };
    let pod = pods::until(&invocation.session, namespace, name, forever, begun).await?;
    if status(&pod, container).is_some_and(|state| state["terminated"].is_object()) {
        return logs::show(invocation, &pod, container, "").await;
    }
    let stream = StreamOptions {
        stdin: options.stdin,
        tty: options.tty,
        quiet: options.quiet,
        detach_keys: "ctrl-p,ctrl-q".to_owned(),
    };
    match talk::attach(invocation, &pod, container, &stream, "kubectl attach").await {
        Ok(()) => Ok(()),
        Err(failure @ Failure::Exit(_)) => Err(failure),
        Err(error) => {
            invocation.streams.error(&format!(
                "warning: couldn't attach to pod/{name}, falling back to streaming logs: {}",
                error.bare()
            ));
            logs::show(invocation, &pod, container, "").await
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::container;

    #[test]
    fn a_custom_profile_is_a_container_or_nothing() {
        let said = |value| container("f", value).map_err(|failure| failure.bare());
        assert_eq!(said(json!({"env": []})), Ok(Some(json!({"env": []}))));
        assert_eq!(said(json!(null)), Ok(None));
        assert!(
            said(json!("x"))
                .is_err_and(|why| why.ends_with("cannot unmarshal string into Go value of type v1.Container"))
        );
    }
}
