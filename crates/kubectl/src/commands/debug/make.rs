//! The pods and containers that debugging makes. Pure but for the names, whose random part is handed in.

use machinery::value::{as_object_mut, at, flag, int, list, list_mut, remove, set, text};
use serde_json::{Value, json};

use super::profile::{Keeps, Profile, Style};

/// What the user wants.
pub struct Options {
    pub targets: Vec<String>,
    pub command: Vec<String>,
    pub arguments_only: bool,
    pub container: String,
    pub copy_to: String,
    pub env: Vec<(String, String)>,
    pub image: String,
    pub pull_policy: String,
    pub profile: Profile,
    pub keeps: Keeps,
    pub custom: Option<Value>,
    pub quiet: bool,
    pub same_node: bool,
    pub set_images: Vec<(String, String)>,
    pub share_processes: Option<bool>,
    pub stdin: bool,
    pub target: String,
    pub tty: bool,
}

/// A pod to be written, and the container to attach to; empty where there is none.
pub struct Debugged {
    pub pod: Value,
    pub container: String,
    /// What was decided and is to be said.
    pub notes: Vec<String>,
}

impl Options {
    /// A container of this name, as the flags want it.
    fn container(&self, name: &str) -> Value {
        let mut container =
            json!({"name": name, "image": self.image, "terminationMessagePolicy": "File", "resources": {}});
        if !self.env.is_empty() {
            container["env"] = self.variables();
        }
        if !self.pull_policy.is_empty() {
            container["imagePullPolicy"] = self.pull_policy.as_str().into();
        }
        self.streams(&mut container);
        if !self.command.is_empty() {
            container[if self.arguments_only { "args" } else { "command" }] = json!(self.command);
        }
        container
    }

    fn variables(&self) -> Value {
        self.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    }

    fn streams(&self, container: &mut Value) {
        for (field, wanted) in [("stdin", self.stdin), ("tty", self.tty)] {
            if wanted {
                container[field] = true.into();
            } else {
                remove(container, field);
            }
        }
    }

    /// The name of the debugging container: the user's, or one that no other has.
    fn name(&self, pod: &Value, suffix: &mut dyn FnMut() -> String, notes: &mut Vec<String>) -> String {
        if !self.container.is_empty() {
            return self.container.clone();
        }
        let taken = |name: &str| {
            ["spec.containers", "spec.initContainers", "spec.ephemeralContainers"]
                .iter()
                .any(|path| list(pod, path).iter().any(|container| text(container, "name") == name))
        };
        let mut name = format!("debugger-{}", suffix());
        while taken(&name) {
            name = format!("debugger-{}", suffix());
        }
        if !self.quiet {
            notes.push(format!("Defaulting debug container name to {name}."));
        }
        name
    }

    /// The user's own changes to the container, after those of the profile.
    fn customise(&self, pod: &mut Value, path: &str, name: &str) -> Result<(), String> {
        let Some(custom) = &self.custom else { return Ok(()) };
        let Some(container) = list_mut(pod, path).iter_mut().find(|container| text(container, "name") == name) else {
            return Err(format!("unable to find the {name} container in the pod"));
        };
        let of = facts::type_of("", "v1", "Pod").ok_or("no Pod is known")?;
        // A container is merged as the only one of a pod, so that its lists are merged by their keys.
        let mut custom = custom.clone();
        set(&mut custom, "name", name);
        let mut whole = json!({"spec": {"containers": [container.clone()]}});
        let patch = json!({"spec": {"containers": [custom]}});
        machinery::patch::strategic::apply(&mut whole, patch, of.def()).map_err(|error| error.to_string())?;
        if let Some(merged) = list(&whole, "spec.containers").first() {
            *container = merged.clone();
        }
        Ok(())
    }
}

/// A pod on a node, with the node's own files and processes in reach.
pub fn on_node(options: &Options, node: &str, suffix: &mut dyn FnMut() -> String) -> Result<Debugged, String> {
    let container = if options.container.is_empty() { "debugger" } else { &options.container };
    let name = format!("node-debugger-{node}-{}", suffix());
    let mut notes = Vec::new();
    if !options.quiet {
        notes.push(format!("Creating debugging pod {name} with container {container} on node {node}."));
    }
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"}},
        "spec": {
            "containers": [options.container(container)],
            "nodeName": node,
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
        },
    });
    options.profile.apply(Style::Node, options.keeps, &mut pod, container);
    options.customise(&mut pod, "spec.containers", container)?;
    Ok(Debugged { pod, container: container.to_owned(), notes })
}

/// The pod with an ephemeral container more.
pub fn beside(options: &Options, pod: &Value, suffix: &mut dyn FnMut() -> String) -> Result<Debugged, String> {
    let mut notes = Vec::new();
    let name = options.name(pod, suffix, &mut notes);
    let mut container = options.container(&name);
    if !options.target.is_empty() {
        container["targetContainerName"] = options.target.as_str().into();
    }
    let mut pod = pod.clone();
    match &mut pod["spec"]["ephemeralContainers"] {
        Value::Array(all) => all.push(container),
        none => *none = json!([container]),
    }
    options.profile.apply(Style::Ephemeral, options.keeps, &mut pod, &name);
    options.customise(&mut pod, "spec.ephemeralContainers", &name)?;
    Ok(Debugged { pod, container: name, notes })
}

/// A copy of the pod, with a container more or a container changed.
pub fn copy(options: &Options, pod: &Value, suffix: &mut dyn FnMut() -> String) -> Result<Debugged, String> {
    let mut notes = Vec::new();
    let mut copied = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": options.copy_to, "namespace": text(pod, "metadata.namespace")},
        "spec": pod["spec"],
    });
    for field in ["labels", "annotations"] {
        if let Some(all) = at(pod, &format!("metadata.{field}")) {
            copied["metadata"][field] = all.clone();
        }
    }
    remove(&mut copied, "spec.ephemeralContainers");
    if let Some(shared) = options.share_processes {
        copied["spec"]["shareProcessNamespace"] = shared.into();
    }
    if !options.same_node {
        remove(&mut copied, "spec.nodeName");
    }
    for container in list_mut(&mut copied, "spec.containers") {
        let of = |name: &str| options.set_images.iter().find(|(known, _)| known == name).map(|(_, image)| image);
        if let Some(image) = of(text(container, "name")).or_else(|| of("*")).filter(|image| !image.is_empty()) {
            container["image"] = image.as_str().into();
        }
    }
    let mut name = options.container.clone();
    let known = ["spec.containers", "spec.initContainers"]
        .into_iter()
        .find(|path| list(&copied, path).iter().any(|container| text(container, "name") == name));
    let path = match known {
        Some(path) => path,
        None if options.image.is_empty() && !options.set_images.is_empty() => {
            return Ok(Debugged { pod: copied, container: String::new(), notes });
        }
        None if options.image.is_empty() => return Err("you must specify image when creating new container".to_owned()),
        None => {
            name = options.name(&copied, suffix, &mut notes);
            let new = json!({"name": name, "terminationMessagePolicy": "File", "resources": {}});
            if let Some(Value::Array(all)) = as_object_mut(&mut copied["spec"]).get_mut("containers") {
                all.push(new);
            }
            "spec.containers"
        }
    };
    if let Some(container) = list_mut(&mut copied, path).iter_mut().find(|container| text(container, "name") == name) {
        change(options, container);
    }
    options.profile.apply(Style::Copy, options.keeps, &mut copied, &name);
    options.customise(&mut copied, "spec.containers", &name)?;
    Ok(Debugged { pod: copied, container: name, notes })
}

/// What the flags say of a container of the copy.
fn change(options: &Options, container: &mut Value) {
    if !options.command.is_empty() {
        if options.arguments_only {
            container["args"] = json!(options.command);
        } else {
            container["command"] = json!(options.command);
            remove(container, "args");
        }
    }
    if !options.env.is_empty() {
        container["env"] = options.variables();
    }
    if !options.image.is_empty() {
        container["image"] = options.image.as_str().into();
    }
    if !options.pull_policy.is_empty() {
        container["imagePullPolicy"] = options.pull_policy.as_str().into();
    }
    options.streams(container);
}

/// Whether the container was given powers that its user, who is not root, cannot use.
pub fn lacks_power(pod: &Value, name: &str) -> bool {
    let Some((container, _)) = super::pods::spec_of(pod, name) else { return false };
    let others = int(pod, "spec.securityContext.runAsUser").is_some_and(|user| user != 0);
    let own = int(container, "securityContext.runAsUser") == Some(0);
    let powers = flag(container, "securityContext.privileged")
        || !list(container, "securityContext.capabilities.add").is_empty();
    others && !own && powers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            targets: vec![],
            command: vec!["sh".to_owned()],
            arguments_only: false,
            container: String::new(),
            copy_to: "copy".to_owned(),
            env: vec![("A".to_owned(), "b".to_owned())],
            image: "busybox".to_owned(),
            pull_policy: String::new(),
            profile: Profile::General,
            keeps: Keeps {
                labels: false,
                annotations: false,
                liveness: false,
                readiness: false,
                startup: false,
                init_containers: true,
            },
            custom: None,
            quiet: false,
            same_node: false,
            set_images: vec![],
            share_processes: None,
            stdin: true,
            target: "c".to_owned(),
            tty: false,
        }
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}},
            "spec": {"nodeName": "x", "containers": [{"name": "c", "image": "i", "args": ["z"]}], "securityContext": {"runAsUser": 7}},
        })
    }

    #[test]
    fn an_ephemeral_container_is_added_under_a_new_name() {
        let made = beside(&options(), &pod(), &mut || "abcde".to_owned()).expect("made");
        assert_eq!(made.notes, ["Defaulting debug container name to debugger-abcde."]);
        let container = &made.pod["spec"]["ephemeralContainers"][0];
        assert_eq!((text(container, "name"), text(container, "targetContainerName")), ("debugger-abcde", "c"));
        assert_eq!(container["command"], json!(["sh"]));
        assert_eq!(container["securityContext"]["capabilities"]["add"], json!(["SYS_PTRACE"]));
        assert!(lacks_power(&made.pod, "debugger-abcde"));
    }

    #[test]
    fn a_copy_has_its_container_changed_or_one_more() {
        let made = copy(&options(), &pod(), &mut || "abcde".to_owned()).expect("made");
        assert_eq!(list(&made.pod, "spec.containers").len(), 2);
        assert_eq!(made.pod["metadata"], json!({"name": "copy", "namespace": "n"}));
        assert_eq!(made.pod["spec"].get("nodeName"), None);
        let changed = Options { container: "c".to_owned(), image: String::new(), ..options() };
        let made = copy(&changed, &pod(), &mut || unreachable!("the name is given")).expect("made");
        let container = &made.pod["spec"]["containers"][0];
        assert_eq!(
            (text(container, "image"), container.get("args"), &container["command"]),
            ("i", None, &json!(["sh"]))
        );
        let images = vec![("*".to_owned(), "new".to_owned())];
        let only = Options { image: String::new(), set_images: images, command: vec![], ..options() };
        let made = copy(&only, &pod(), &mut || unreachable!("there is no container")).expect("made");
        assert_eq!((made.container.as_str(), &made.pod["spec"]["containers"][0]["image"]), ("", &json!("new")));
    }

    #[test]
    fn a_node_gets_a_pod_and_the_users_changes_come_last() {
        let custom = json!({"env": [{"name": "A", "value": "z"}], "securityContext": {"runAsUser": 0}});
        let made =
            on_node(&Options { custom: Some(custom), ..options() }, "x", &mut || "abcde".to_owned()).expect("made");
        assert_eq!(made.notes, ["Creating debugging pod node-debugger-x-abcde with container debugger on node x."]);
        let container = &made.pod["spec"]["containers"][0];
        assert_eq!(container["env"], json!([{"name": "A", "value": "z"}]));
        assert_eq!(container["securityContext"], json!({"runAsUser": 0}));
        assert_eq!(made.pod["spec"]["hostNetwork"], true);
    }
}
