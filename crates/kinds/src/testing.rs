//! How tests ask strategies what they say of an object, or of a change of one.

use machinery::Value;

use crate::strategy;
use crate::wording::internal;

/// What a strategy says of a new object, or of a change, as the client reads it.
pub fn said(group: &str, kind: &str, mut new: Value, old: Option<&Value>) -> Vec<String> {
    let strategy = strategy(group, kind);
    strategy.default(&mut new);
    let mut errors = match old {
        None => {
            strategy.prepare_for_create(&mut new);
            strategy.validate(&new)
        }
        Some(old) => {
            strategy.prepare_for_update(&mut new, old);
            strategy.validate_update(&new, old)
        }
    };
    internal::show(&mut errors, facts::type_of(group, "v1", kind).map(|ty| ty.def()));
    errors.iter().map(ToString::to_string).collect()
}

pub fn create(group: &str, kind: &str, new: Value, expect: &[&str]) {
    assert_eq!(said(group, kind, new.clone(), None), expect, "{new}");
}

/// The fields at these paths are behind gates that are off.
pub fn drops(group: &str, kind: &str, mut new: Value, pointers: &[&str]) {
    let strategy = strategy(group, kind);
    let old = new.clone();
    for made in [true, false] {
        let mut object = new.clone();
        match made {
            true => strategy.prepare_for_create(&mut object),
            false => strategy.prepare_for_update(&mut object, &old),
        }
        for pointer in pointers {
            assert!(new.pointer_mut(pointer).is_some(), "{kind} has no {pointer} to begin with");
            assert_eq!(object.pointer(pointer), None, "{kind} {pointer}, created: {made}");
        }
    }
}

/// What a strategy says of a change of the status, after it has put back or dropped what it does.
pub fn status(group: &str, kind: &str, mut new: Value, old: &Value) -> (Value, Vec<String>) {
    let strategy = strategy(group, kind);
    strategy.default(&mut new);
    strategy.prepare_for_status_update(&mut new, old);
    let errors = strategy.validate_status_update(&new, old);
    (new, errors.iter().map(ToString::to_string).collect())
}

/// What is said of a change from one object to another.
pub fn change(group: &str, kind: &str, old: Value, new: Value, expect: &[&str]) {
    assert_eq!(said(group, kind, new.clone(), Some(&old)), expect, "{new}");
}
