//! APIServices of this very server: one for every built-in group version, made and put right when it starts, and one for every
//! group version of custom resources, kept for as long as it is served. What somebody made without the label is theirs.

use std::collections::BTreeMap;

use machinery::gvk::GroupVersion;
use machinery::{Value, value};
use serde_json::json;

use crate::Offered;
use crate::priorities::{self, Priority};

/// Says of an APIService that the server keeps it, and when.
pub const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Looked at once, when the server starts.
const ON_START: &str = "onstart";
/// Looked at all the time.
const ALWAYS: &str = "true";

/// The name of the APIService of a group version.
pub fn name(of: &GroupVersion) -> String {
    format!("{}.{}", of.version, of.group)
}

/// What there has to be.
#[derive(Debug, Default)]
pub struct Wanted {
    built_in: BTreeMap<String, Value>,
    /// Made whenever there is none. One that is there is somebody's, whatever it says.
    offered: BTreeMap<String, Value>,
    /// Nothing until somebody has said which there are: what is not known to be gone is not removed.
    custom: Option<BTreeMap<String, Value>>,
}

impl Wanted {
    /// Those of the built-in group versions that have a place in the table.
    pub fn new(built_in: impl IntoIterator<Item = GroupVersion>, offered: &[Offered]) -> Self {
        let object = |of: GroupVersion| {
            let priority = priorities::built_in(&of.group, &of.version)?;
            Some((name(&of), object(&of, priority, ON_START)))
        };
        let offer = |offered: &Offered| (name(&offered.of), self::object(&offered.of, offered.priority, ""));
        Self {
            built_in: built_in.into_iter().filter_map(object).collect(),
            offered: offered.iter().map(offer).collect(),
            custom: None,
        }
    }

    /// Those of custom resources, all of them. Returns the names that came or went.
    pub fn set_custom(&mut self, all: impl IntoIterator<Item = GroupVersion>) -> Vec<String> {
        let new: BTreeMap<String, Value> =
            all.into_iter().map(|of| (name(&of), object(&of, priorities::CUSTOM, ALWAYS))).collect();
        let old = self.custom.take();
        let known = old.is_some();
        let old = old.unwrap_or_default();
        let came = new.keys().filter(|name| !known || !old.contains_key(*name));
        let changed = came.chain(old.keys().filter(|name| !new.contains_key(*name))).cloned().collect();
        self.custom = Some(new);
        changed
    }

    /// Whether somebody has said which there are of custom resources.
    pub fn knows_custom(&self) -> bool {
        self.custom.is_some()
    }

    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.built_in.keys().chain(self.offered.keys()).chain(self.custom.iter().flat_map(BTreeMap::keys))
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.built_in.get(name).or_else(|| self.offered.get(name)).or_else(|| self.custom.as_ref()?.get(name))
    }

    /// What to do about a name. `settled`: it was put right before; `from_before`: its object is older than this process.
    pub fn plan(&self, name: &str, current: Option<&Value>, settled: bool, from_before: bool) -> Step {
        let wanted = self.get(name);
        if wanted.is_some_and(|wanted| managed(wanted) == ON_START) && settled {
            return Step::Nothing;
        }
        let Some(current) = current else {
            return wanted.map_or(Step::Nothing, |wanted| Step::Create(wanted.clone()));
        };
        match managed(current) {
            ON_START if !from_before || settled => return Step::Nothing,
            ON_START | ALWAYS => {}
            _ => return Step::Nothing,
        }
        let Some(wanted) = wanted else {
            // Custom resources that nobody has counted yet may still be there.
            let unknown = managed(current) == ALWAYS && self.custom.is_none();
            let uid = value::text(current, "metadata.uid").to_owned();
            return if unknown { Step::Nothing } else { Step::Delete { uid } };
        };
        if value::at(current, "spec") == value::at(wanted, "spec") {
            return Step::Nothing;
        }
        let mut new = current.clone();
        value::set(&mut new, "spec", wanted["spec"].clone());
        Step::Update(new)
    }
}

/// What to do about an APIService.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It is as it should be, or not ours.
    Nothing,
    Create(Value),
    /// It is not as it should be.
    Update(Value),
    /// Its status is not as it should be.
    UpdateStatus(Value),
    /// It should not be.
    Delete {
        /// Of the object that was seen.
        uid: String,
    },
}

fn managed(object: &Value) -> &str {
    let labels = value::at(object, "metadata.labels");
    labels.and_then(|labels| labels.get(LABEL)).and_then(Value::as_str).unwrap_or_default()
}

fn object(of: &GroupVersion, priority: Priority, managed: &str) -> Value {
    let mut spec = json!({
        "groupPriorityMinimum": priority.group, "version": of.version, "versionPriority": priority.version,
    });
    if !of.group.is_empty() {
        spec["group"] = json!(of.group);
    }
    let mut metadata = json!({"name": name(of)});
    if !managed.is_empty() {
        metadata["labels"] = json!({LABEL: managed});
    }
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted::new([GroupVersion::new("apps", "v1"), GroupVersion::new("apiregistration.k8s.io", "v1")], &[])
    }

    fn current(name: &str, managed: &str, priority: i64) -> Value {
        let (version, group) = name.split_once('.').expect("a name");
        let mut object = object(&GroupVersion::new(group, version), Priority { group: priority, version: 15 }, managed);
        object["metadata"]["uid"] = json!("u");
        object
    }

    fn check(wanted: &Wanted, name: &str, current: Option<Value>, settled: bool, from_before: bool, expect: &str) {
        let step = match wanted.plan(name, current.as_ref(), settled, from_before) {
            Step::Nothing => "nothing".to_owned(),
            Step::Create(object) => format!("create {}", managed(&object)),
            Step::Update(object) => format!("update {}", object["spec"]["groupPriorityMinimum"]),
            Step::UpdateStatus(object) => format!("tell {}", object["status"]),
            Step::Delete { uid } => format!("delete {uid}"),
        };
        assert_eq!(step, expect, "{name} {current:?} {settled} {from_before}");
    }

    #[test]
    fn built_in_ones_are_put_right_once() {
        let wanted = wanted();
        assert_eq!(wanted.names().collect::<Vec<_>>(), ["v1.apps"], "the group of APIServices has none");
        check(&wanted, "v1.apps", None, false, false, "create onstart");
        check(&wanted, "v1.apps", None, true, false, "nothing");
        check(&wanted, "v1.apps", Some(current("v1.apps", ON_START, 5)), false, true, "update 17800");
        check(&wanted, "v1.apps", Some(current("v1.apps", ON_START, 17800)), false, true, "nothing");
        check(&wanted, "v1.apps", Some(current("v1.apps", ON_START, 5)), true, true, "nothing");
        check(&wanted, "v1.apps", Some(current("v1.apps", "", 5)), false, true, "nothing");
        // A group version of an older release goes, unless it came while this server runs.
        check(&wanted, "v1beta1.apps", Some(current("v1beta1.apps", ON_START, 5)), false, true, "delete u");
        check(&wanted, "v1beta1.apps", Some(current("v1beta1.apps", ON_START, 5)), false, false, "nothing");
        check(&wanted, "v1.mine", Some(current("v1.mine", "", 5)), false, true, "nothing");
    }

    #[test]
    fn an_offered_one_is_made_when_there_is_none_and_never_changed() {
        let of = GroupVersion::new("metrics.k8s.io", "v1beta1");
        let name = name(&of);
        let wanted = Wanted::new([], &[Offered { of, priority: priorities::CUSTOM, document: json!({}) }]);
        assert_eq!(wanted.names().collect::<Vec<_>>(), [&name]);
        check(&wanted, &name, None, false, false, "create ");
        check(&wanted, &name, None, true, false, "create ");
        let mut theirs = current(&name, "", 100);
        theirs["spec"]["service"] = json!({"namespace": "kube-system", "name": "metrics-server"});
        for (settled, from_before) in [(false, true), (true, false), (false, false)] {
            check(&wanted, &name, Some(theirs.clone()), settled, from_before, "nothing");
        }
    }

    #[test]
    fn custom_ones_follow_their_definitions() {
        let mut wanted = wanted();
        let stale = || Some(current("v1.gone", ALWAYS, 1000));
        check(&wanted, "v1.gone", stale(), false, true, "nothing");
        let ships = || [GroupVersion::new("harbour.example", "v1")];
        assert_eq!(wanted.set_custom(ships()), ["v1.harbour.example"]);
        assert!(wanted.set_custom(ships()).is_empty());
        check(&wanted, "v1.gone", stale(), false, true, "delete u");
        check(&wanted, "v1.harbour.example", None, true, false, "create true");
        check(
            &wanted,
            "v1.harbour.example",
            Some(current("v1.harbour.example", ALWAYS, 7)),
            true,
            false,
            "update 1000",
        );
        assert_eq!(wanted.set_custom([]), ["v1.harbour.example"]);
        check(
            &wanted,
            "v1.harbour.example",
            Some(current("v1.harbour.example", ALWAYS, 1000)),
            true,
            false,
            "delete u",
        );
    }
}
