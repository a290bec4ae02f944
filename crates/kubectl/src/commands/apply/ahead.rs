//! Many objects in little time. What the server has of the objects that are applied next is asked for before it is their turn, so that no
//! write waits for a read; and neighbours of one kind are written side by side, because none of them can need another. Kinds stay in the
//! order of the files: a namespace is there before what is in it, and a definition before its objects.

use std::collections::HashSet;
use std::rc::Rc;

use futures::StreamExt as _;
use futures::stream::LocalBoxStream;
use serde_json::Value;

use crate::api::{Api, JSON};
use crate::error::Outcome;
use crate::resource::{Info, named};

/// How many reads, and how many writes, are under way at once.
pub const MOST: usize = 16;

/// One answer for each object, in their order: nothing for those that must be read when it is their turn.
pub type Ahead = LocalBoxStream<'static, Option<Outcome<Value>>>;

pub fn read(api: Rc<Api>, infos: &[Info]) -> Ahead {
    let places = places(infos);
    let ask = move |place: Option<(String, String)>| {
        let api = api.clone();
        async move {
            let (namespace, path) = place?;
            Some(named(&api, &namespace, &path, JSON).await)
        }
    };
    futures::stream::iter(places).map(ask).buffered(MOST).boxed_local()
}

/// The next answers, as many as there are objects.
pub async fn take(ahead: &mut Option<Ahead>, count: usize) -> Vec<Option<Outcome<Value>>> {
    let mut taken = Vec::with_capacity(count);
    for _ in 0..count {
        taken.push(match ahead {
            Some(ahead) => ahead.next().await.flatten(),
            None => None,
        });
    }
    taken
}

/// Objects that are written side by side: neighbours of one kind, none of them twice.
pub fn batches(infos: Vec<Info>, most: usize) -> Vec<Vec<Info>> {
    let mut batches: Vec<Vec<Info>> = Vec::new();
    for info in infos {
        let fits = |batch: &&mut Vec<Info>| {
            let alike = |other: &Info| other.mapping == info.mapping && other.path() != info.path();
            batch.len() < most && batch.iter().all(alike)
        };
        match batches.last_mut().filter(fits) {
            Some(batch) => batch.push(info),
            None => batches.push(vec![info]),
        }
    }
    batches
}

/// Namespace and path of each object. What is there twice is changed by then, and what has no name cannot be asked for.
fn places(infos: &[Info]) -> Vec<Option<(String, String)>> {
    let mut seen = HashSet::new();
    let place = |info: &Info| {
        let path = info.path();
        (!info.name.is_empty() && seen.insert(path.clone())).then(|| (info.namespace.clone(), path))
    };
    infos.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::files::local;

    fn of_kind(kind: &str, name: &str) -> Info {
        Info {
            mapping: local("v1", kind).expect("a mapping"),
            namespace: "n".to_owned(),
            name: name.to_owned(),
            source: String::new(),
            object: Value::Null,
        }
    }

    #[test]
    fn neighbours_of_one_kind_are_written_together() {
        let all = [("ConfigMap", "a"), ("ConfigMap", "b"), ("ConfigMap", "a"), ("Secret", "a"), ("ConfigMap", "c")];
        let batches = |most: usize| -> Vec<String> {
            let infos = all.iter().map(|(kind, name)| of_kind(kind, name)).collect();
            let names = |batch: &Vec<Info>| batch.iter().map(|info| info.name.as_str()).collect();
            super::batches(infos, most).iter().map(names).collect()
        };
        assert_eq!(batches(16), ["ab", "a", "a", "c"], "what is there twice is changed twice, in order");
        assert_eq!(batches(1), ["a", "b", "a", "a", "c"]);
    }

    #[test]
    fn what_is_there_twice_is_read_when_it_is_its_turn() {
        let info = |name: &str| of_kind("ConfigMap", name);
        let asked: Vec<bool> =
            places(&[info("a"), info("b"), info("a"), info("")]).iter().map(Option::is_some).collect();
        assert_eq!(asked, [true, true, false, false]);
    }
}
