//! The past in the terminal: `history`, `undo`, and `diff` between two moments. Upstream has no such commands; the server has to be this one.
//!
//! A moment is a revision, a time, or how long ago: the server reads it (`?at=`), so that everybody means the same by it.

pub(super) mod between;
pub(super) mod history;
pub(super) mod undo;

use serde_json::Value;

use crate::api::{Api, JSON};
use crate::discovery::query;
use crate::error::Outcome;
use crate::resource::{self, Target};

/// An object as it was; nothing if it was not there.
async fn at(api: &Api, target: &Target, name: &str, moment: &str) -> Outcome<Value> {
    let path = target.mapping.path(&target.namespace, name, "") + &query(&[("at", moment)]);
    match resource::named(api, &target.namespace, &path, JSON).await {
        Err(error) if error.is_not_found() => Ok(Value::Null),
        answer => answer,
    }
}
