//! Words that the configuration, the cluster or the command itself knows.

use machinery::value::{list, text};

use super::super::pods;
use super::Directive;
use crate::discovery::{Mapping, query, segment};
use crate::error::Outcome;
use crate::flags::Given;
use crate::session::Session;

/// Words, each with what it is.
pub type Offers = Vec<(String, String)>;

/// How many objects are asked for: more than anybody reads.
const MOST: &str = "500";

/// What a command takes.
enum Wanted {
    /// A type, then names of its objects, as many as one likes.
    Objects,
    /// The same, of these types only.
    Of(&'static [&'static str]),
    /// A type and no name.
    Types,
    /// What may be done, then a type.
    Verbs,
    /// Names of objects of one type.
    Names(&'static str),
    /// A pod, or something that has pods.
    Pods,
    Contexts,
    Clusters,
    Users,
    Words(&'static [&'static str]),
    Files,
    /// A file here, or a pod with one.
    Copies,
}

const ROLLS: &[&str] = &["deployment", "daemonset", "statefulset"];
const TEMPLATES: &[&str] =
    &["cronjobs", "daemonsets", "deployments", "pods", "replicasets", "replicationcontrollers", "statefulsets"];
const VERBS: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// What files with objects end in.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];
const SCALES: &[&str] = &["deployment", "replicaset", "replicationcontroller", "statefulset"];

fn wanted(path: &str) -> Wanted {
    match path {
        "get"
        | "describe"
        | "delete"
        | "edit"
        | "label"
        | "annotate"
        | "patch"
        | "wait"
        | "debug"
        | "apply view-last-applied"
        | "apply edit-last-applied" => Wanted::Objects,
        "rollout history" | "rollout restart" | "rollout status" | "rollout undo" => Wanted::Of(ROLLS),
        "rollout pause" | "rollout resume" => Wanted::Of(&["deployments.apps"]),
        "scale" => Wanted::Of(SCALES),
        "autoscale" => Wanted::Of(SCALES),
        "expose" => Wanted::Of(&["pod", "service", "replicationcontroller", "deployment", "replicaset"]),
        "set image" | "set env" | "set resources" | "set serviceaccount" => Wanted::Of(TEMPLATES),
        "explain" => Wanted::Types,
        "auth can-i" => Wanted::Verbs,
        "cordon" | "uncordon" | "drain" | "top node" => Wanted::Names("nodes"),
        "taint" => Wanted::Of(&["node"]),
        "certificate approve" | "certificate deny" => Wanted::Names("certificatesigningrequests.certificates.k8s.io"),
        "create token" => Wanted::Names("serviceaccounts"),
        "top pod" | "trace" | "why" => Wanted::Names("pods"),
        "logs" | "exec" | "attach" | "port-forward" => Wanted::Pods,
        "config use-context"
        | "config delete-context"
        | "config rename-context"
        | "config get-contexts"
        | "config set-context" => Wanted::Contexts,
        "config delete-cluster" | "config set-cluster" => Wanted::Clusters,
        "config delete-user" | "config set-credentials" => Wanted::Users,
        "completion" => Wanted::Words(&["bash", "fish", "powershell", "zsh"]),
        "cp" => Wanted::Copies,
        _ => Wanted::Files,
    }
}

fn fitting<'a>(words: impl IntoIterator<Item = &'a str>, typed: &str) -> Offers {
    let fits = words.into_iter().filter(|word| word.starts_with(typed));
    fits.map(|word| (word.to_owned(), String::new())).collect()
}

/// The offers for an argument. What cannot be found out is not offered.
pub async fn arguments(
    session: &Session,
    path: &str,
    given: &Given,
    arguments: &[String],
    typed: &str,
) -> (Offers, Directive) {
    let none = || (Offers::new(), Directive::NoFiles);
    let found = match wanted(path) {
        Wanted::Files => return (Offers::new(), Directive::Files),
        Wanted::Copies => return copies(session, given, typed).await,
        Wanted::Words(words) if arguments.is_empty() => Ok(fitting(words.iter().copied(), typed)),
        Wanted::Contexts => session.config().map(|config| fitting(config.contexts.keys().map(String::as_str), typed)),
        Wanted::Clusters => session.config().map(|config| fitting(config.clusters.keys().map(String::as_str), typed)),
        Wanted::Users => session.config().map(|config| fitting(config.users.keys().map(String::as_str), typed)),
        Wanted::Names(resource) => names(session, resource, given, arguments, typed, "").await,
        Wanted::Verbs if arguments.is_empty() => Ok(fitting(VERBS.iter().copied(), typed)),
        Wanted::Verbs if arguments.len() == 1 => types(session, typed).await,
        Wanted::Types if arguments.is_empty() => types(session, typed).await,
        Wanted::Objects => return objects(session, None, given, arguments, typed).await,
        Wanted::Of(allowed) => return objects(session, Some(allowed), given, arguments, typed).await,
        Wanted::Pods if arguments.is_empty() => return with_pods(session, given, typed).await,
        Wanted::Pods if path == "logs" => containers(session, &arguments[0], typed).await,
        _ => return none(),
    };
    let found = found.unwrap_or_default();
    // Where upstream knows no words it leaves the rest to the shell.
    let is_ours = ["explain", "config get-contexts"].contains(&path);
    let directive = if is_ours && found.is_empty() { Directive::Files } else { Directive::NoFiles };
    (found, directive)
}

/// The offers for the value of a flag. What has no words is left to the shell.
pub async fn values(
    session: &Session,
    path: &str,
    flag: &str,
    given: &Given,
    arguments: &[String],
    typed: &str,
) -> (Offers, Directive) {
    let found = match flag {
        "namespace" => names(session, "namespaces", given, &[], typed, "").await,
        "context" => session.config().map(|config| fitting(config.contexts.keys().map(String::as_str), typed)),
        "cluster" => session.config().map(|config| fitting(config.clusters.keys().map(String::as_str), typed)),
        "user" => session.config().map(|config| fitting(config.users.keys().map(String::as_str), typed)),
        "output" if given.knows("template") => Ok(fitting(formats(given), typed)),
        "subresource" => Ok(fitting(["status", "scale", "resize"], typed)),
        "dry-run" => Ok(fitting(["none", "client", "server"], typed)),
        "clusterrole" if path == "create clusterrolebinding" => {
            names(session, "clusterroles", given, &[], typed, "").await
        }
        "container" => match arguments.first() {
            Some(pod) => containers(session, pod, typed).await,
            None => Ok(Offers::new()),
        },
        "filename" => return (fitting(ENDINGS, ""), Directive::Endings),
        _ => return (Offers::new(), Directive::Files),
    };
    let found = found.unwrap_or_default();
    let is_ours = matches!(flag, "container" | "dry-run") || (flag == "output" && path != "get");
    let directive = if is_ours && found.is_empty() && path != "exec" { Directive::Files } else { Directive::NoFiles };
    (found, directive)
}

/// The formats of a command that prints objects, in the order in which help names them.
fn formats(given: &Given) -> impl Iterator<Item = &'static str> {
    let allowed = if given.knows("label-columns") { crate::print::ALL } else { crate::print::OBJECTS };
    let order = [
        "json",
        "yaml",
        "kyaml",
        "name",
        "go-template",
        "go-template-file",
        "template",
        "templatefile",
        "jsonpath",
        "jsonpath-as-json",
        "jsonpath-file",
        "custom-columns",
        "custom-columns-file",
        "wide",
    ];
    order.into_iter().filter(|format| allowed.split(',').any(|one| one == *format))
}

async fn types(session: &Session, typed: &str) -> Outcome<Offers> {
    let discovery = session.discovery().await?;
    let mut names: Vec<String> =
        discovery.ordered().filter(|mapping| mapping.has_verb("get")).map(Mapping::qualified).collect();
    names.sort();
    names.dedup();
    // Types may follow each other: the last one is completed.
    let Some((before, last)) = typed.rsplit_once(',') else {
        return Ok(fitting(names.iter().map(String::as_str), typed));
    };
    let taken: Vec<&str> = before.split(',').collect();
    let others = names.iter().map(String::as_str).filter(|name| !taken.contains(name));
    Ok(fitting(others, last).into_iter().map(|(name, about)| (format!("{before},{name}"), about)).collect())
}

/// What `cp` copies: namespaces and pods of the cluster, and the way to files here. A path that is begun is the shell's.
async fn copies(session: &Session, given: &Given, typed: &str) -> (Offers, Directive) {
    if typed.contains(':') || typed.starts_with(['.', '/']) {
        let directive = if typed.contains(':') { Directive::NoSpace } else { Directive::Files };
        return (Offers::new(), directive);
    }
    let ended = |found: Outcome<Offers>, end: &str| -> Offers {
        found.unwrap_or_default().into_iter().map(|(name, about)| (format!("{name}{end}"), about)).collect()
    };
    if let Some((namespace, name)) = typed.split_once('/') {
        let found = listed(session, &format!("/api/v1/namespaces/{}/pods", segment(namespace))).await;
        let fits = |found: Vec<String>| fitting(found.iter().map(String::as_str), name);
        let found = found
            .map(fits)
            .map(|pods| pods.into_iter().map(|(pod, about)| (format!("{namespace}/{pod}"), about)).collect::<Offers>());
        return (ended(found, ":"), Directive::NoSpace);
    }
    let mut offers = ended(names(session, "namespaces", given, &[], typed, "").await, "/");
    offers.extend(ended(names(session, "pods", given, &[], typed, "").await, ":"));
    if typed.is_empty() {
        offers.extend(fitting(["./", "/"], ""));
    }
    (offers, Directive::NoSpace)
}

/// `type`, `type name…` and `type/name`.
async fn objects(
    session: &Session,
    allowed: Option<&[&str]>,
    given: &Given,
    arguments: &[String],
    typed: &str,
) -> (Offers, Directive) {
    let quiet = |found: Outcome<Offers>| (found.unwrap_or_default(), Directive::NoFiles);
    if let Some((kind, name)) = typed.split_once('/') {
        return quiet(names(session, kind, given, &[], name, &format!("{kind}/")).await);
    }
    match arguments.first() {
        Some(first) if first.contains('/') => (Offers::new(), Directive::NoFiles),
        Some(first) => quiet(names(session, first, given, &arguments[1..], typed, "").await),
        None => quiet(match allowed {
            Some(allowed) => Ok(fitting(allowed.iter().copied(), typed)),
            None => types(session, typed).await,
        }),
    }
}

/// Names of objects that are not on the command line yet.
async fn names(
    session: &Session,
    word: &str,
    given: &Given,
    taken: &[String],
    typed: &str,
    before: &str,
) -> Outcome<Offers> {
    let mapping = session.mapping(word.rsplit(',').next().unwrap_or(word)).await?;
    let everywhere = given.is("all-namespaces") || !mapping.namespaced;
    let namespace = if everywhere { String::new() } else { session.namespace()? };
    let all = listed(session, &mapping.path(&namespace, "", "")).await?;
    let fits = |name: &String| name.starts_with(typed) && !taken.contains(name);
    Ok(all.into_iter().filter(fits).map(|name| (format!("{before}{name}"), String::new())).collect())
}

/// The names of what is at a path, as many as anybody would look at.
async fn listed(session: &Session, path: &str) -> Outcome<Vec<String>> {
    // Names are all that is needed, and metadata is the least that has them.
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    let found = session.api()?.get_as(&format!("{path}{}", query(&[("limit", MOST)])), accept).await?;
    Ok(list(&found, "items").iter().map(|object| text(object, "metadata.name").to_owned()).collect())
}

/// Pods, and types of what has pods, which a name follows.
async fn with_pods(session: &Session, given: &Given, typed: &str) -> (Offers, Directive) {
    if let Some((kind, name)) = typed.split_once('/') {
        let found = names(session, kind, given, &[], name, &format!("{kind}/")).await;
        return (found.unwrap_or_default(), Directive::NoFiles);
    }
    let mut offers = names(session, "pods", given, &[], typed, "").await.unwrap_or_default();
    let pods = offers.len();
    let kinds = [
        "daemonsets/",
        "deployments/",
        "jobs/",
        "pods/",
        "replicasets/",
        "replicationcontrollers/",
        "services/",
        "statefulsets/",
    ];
    offers.extend(fitting(kinds, typed));
    // A type alone is not done.
    let directive = if pods == 0 && !offers.is_empty() { Directive::NoSpaceNoFiles } else { Directive::NoFiles };
    (offers, directive)
}

async fn containers(session: &Session, pod: &str, typed: &str) -> Outcome<Offers> {
    let name = pod.strip_prefix("pods/").or_else(|| pod.strip_prefix("pod/")).unwrap_or(pod);
    let namespace = session.namespace()?;
    let path = format!("/api/v1/namespaces/{}/pods/{}", segment(&namespace), segment(name));
    let pod = session.api()?.get(&path).await?;
    let known = pods::containers(&pod);
    Ok(fitting(known.iter().map(|(name, _)| name.as_str()), typed))
}
