//! Finalizers that keep what is in use: they come with the object, and go once it is being deleted and nobody uses it.

use client::{Client, Kind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::meta::MetaExt;
use crate::Error;

/// The finalizers that an object should have instead of its own; `None` if they are right.
pub fn finalizers(meta: &ObjectMeta, finalizer: &str, used: bool) -> Option<Vec<String>> {
    let known = meta.finalizers.clone().unwrap_or_default().into_iter();
    match (meta.is_deleting(), meta.has_finalizer(finalizer), used) {
        (false, false, _) => Some(known.chain([finalizer.to_owned()]).collect()),
        (true, true, false) => Some(known.filter(|name| name != finalizer).collect()),
        _ => None,
    }
}

/// Adds a finalizer to what lives, takes it from what goes and is not used.
pub async fn protect<K: Kind>(client: &Client, object: &K, finalizer: &str, used: bool) -> Result<(), Error> {
    let Some(finalizers) = finalizers(object.metadata(), finalizer, used) else { return Ok(()) };
    let mut changed = object.clone();
    changed.metadata_mut().finalizers = Some(finalizers);
    match client.update(&changed).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_finalizer_stays_on_what_lives_and_on_what_is_used() {
        for (own, deleting, used, expected) in [
            (&[][..], false, false, Some(&["f"][..])),
            (&["x"], false, true, Some(&["x", "f"])),
            (&["x", "f"], false, false, None),
            (&["x", "f"], true, true, None),
            (&["x", "f"], true, false, Some(&["x"])),
            (&["f"], true, false, Some(&[])),
            // It is too late to protect what goes already.
            (&["x"], true, false, None),
        ] {
            let meta = ObjectMeta {
                finalizers: Some(own.iter().map(|name| (*name).to_owned()).collect()),
                deletion_timestamp: deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            };
            let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            assert_eq!(finalizers(&meta, "f", used), expected, "{own:?}, deleting {deleting}, used {used}");
        }
    }
}
