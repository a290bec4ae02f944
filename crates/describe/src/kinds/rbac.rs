//! Roles and their bindings.

use machinery::{Value, value};

use crate::Error;
use crate::show::Scene;
use crate::writer::{Writer, put};

/// A rule with at most one group, one resource and one name, or one path.
#[derive(Clone, PartialEq, Eq)]
struct Rule<'a> {
    verbs: Vec<&'a str>,
    /// The group and the resource.
    resource: Option<(&'a str, &'a str)>,
    name: Option<&'a str>,
    path: Option<&'a str>,
}

impl Rule<'_> {
    /// What upstream sorts by: the text of Go's type.
    fn key(&self) -> String {
        let (group, resource) = self.resource.map_or((None, None), |(group, resource)| (Some(group), Some(resource)));
        format!(
            "&PolicyRule{{Verbs:[{}],APIGroups:{},Resources:{},ResourceNames:{},NonResourceURLs:{},}}",
            self.verbs.join(" "),
            one(group),
            one(resource),
            one(self.name),
            one(self.path)
        )
    }

    /// The resource with its group, before what follows a slash.
    fn target(&self) -> String {
        let Some((group, resource)) = self.resource else { return String::new() };
        let (resource, below) = resource.split_once('/').map_or((resource, None), |(it, below)| (it, Some(below)));
        let group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let below = below.map_or_else(String::new, |below| format!("/{below}"));
        format!("{resource}{group}{below}")
    }
}

/// A list of at most one.
fn one(item: Option<&str>) -> String {
    format!("[{}]", item.unwrap_or_default())
}

/// Every rule taken apart, with the verbs of what is the same put together again; paths stay apart.
fn compact(rules: &[Value]) -> Vec<Rule<'_>> {
    let mut compacted: Vec<Rule<'_>> = Vec::new();
    for rule in rules {
        let texts = |field: &str| value::list(rule, field).iter().filter_map(Value::as_str).collect::<Vec<_>>();
        let names = texts("resourceNames");
        let names: Vec<Option<&str>> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        let (groups, resources, verbs) = (texts("apiGroups"), texts("resources"), texts("verbs"));
        for (group, resource) in
            groups.iter().flat_map(|group| resources.iter().map(move |resource| (*group, *resource)))
        {
            for (verb, name) in verbs.iter().flat_map(|verb| names.iter().map(move |name| (*verb, *name))) {
                let wanted = Some((group, resource));
                match compacted.iter_mut().find(|known| known.resource == wanted && known.name == name) {
                    Some(known) if known.verbs.contains(&verb) => {}
                    Some(known) => known.verbs.push(verb),
                    None => compacted.push(Rule { verbs: vec![verb], resource: wanted, name, path: None }),
                }
            }
        }
        for path in texts("nonResourceURLs") {
            let each =
                verbs.iter().map(|verb| Rule { verbs: vec![verb], resource: None, name: None, path: Some(path) });
            compacted.extend(each);
        }
    }
    compacted.sort_by_key(Rule::key);
    compacted
}

pub fn role(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.labels(out);
    scene.annotations(out);
    put!(out, 0, "PolicyRule:\n");
    put!(out, 1, "Resources\tNon-Resource URLs\tResource Names\tVerbs\n");
    put!(out, 1, "---------\t-----------------\t--------------\t-----\n");
    for rule in compact(scene.list("rules")) {
        put!(out, 1, "{}\t{}\t{}\t[{}]\n", rule.target(), one(rule.path), one(rule.name), rule.verbs.join(" "));
    }
    Ok(())
}

pub fn binding(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.labels(out);
    scene.annotations(out);
    put!(out, 0, "Role:\n");
    out.field(1, "Kind", scene.text("roleRef.kind"));
    out.field(1, "Name", scene.text("roleRef.name"));
    put!(out, 0, "Subjects:\n");
    put!(out, 1, "Kind\tName\tNamespace\n");
    put!(out, 1, "----\t----\t---------\n");
    for subject in scene.list("subjects") {
        let [kind, name, namespace] = ["kind", "name", "namespace"].map(|field| value::text(subject, field));
        put!(out, 1, "{kind}\t{name}\t{namespace}\n");
    }
    Ok(())
}
