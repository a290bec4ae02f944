//! What the server has of the objects that are applied next, asked for before it is their turn: writes stay in the order of the
//! files, and no write waits for a read.

use std::collections::HashSet;
use std::rc::Rc;

use futures::StreamExt as _;
use futures::stream::LocalBoxStream;
use serde_json::Value;

use crate::api::{Api, JSON};
use crate::error::Outcome;
use crate::resource::{Info, named};

/// How many reads are under way at once.
const MOST: usize = 16;

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

    #[test]
    fn what_is_there_twice_is_read_when_it_is_its_turn() {
        let info = |name: &str| Info {
            mapping: local("v1", "ConfigMap").expect("a mapping"),
            namespace: "n".to_owned(),
            name: name.to_owned(),
            source: String::new(),
            object: Value::Null,
        };
        let asked: Vec<bool> =
            places(&[info("a"), info("b"), info("a"), info("")]).iter().map(Option::is_some).collect();
        assert_eq!(asked, [true, true, false, false]);
    }
}
