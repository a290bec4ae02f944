//! `kubectl diff TYPE/NAME --from MOMENT --to MOMENT`: what became of objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::at;
use crate::command::Invocation;
use crate::commands::diff::{Sides, file_name, mask, show};
use crate::error::{Failure, Outcome};
use crate::resource::{self, Builder, Target, arguments};

/// The two versions of an object; nothing where it was not there.
type Versions = BTreeMap<(String, String), (Value, Value)>;

/// Compares two moments, if that is what is asked for.
pub(in crate::commands) fn asked(invocation: &Invocation) -> bool {
    invocation.flags.changed("from") || invocation.flags.changed("to")
}

pub(in crate::commands) async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    if !flags.list("filename").is_empty() || !flags.text("kustomize").is_empty() {
        return Err(invocation.usage("--from and --to compare what was in the cluster, not files"));
    }
    if !flags.changed("from") {
        return Err(invocation.usage("--from is required: a revision, a time, or how long ago"));
    }
    let (from, to) = (flags.text("from").to_owned(), flags.text("to").to_owned());
    let mut builder = Builder::from_flags(&invocation.session, flags)?;
    builder.types_mean_all = true;
    let sides = Sides::new(&invocation.session.environment.variables)?;
    for target in arguments::targets(&builder, &invocation.session).await? {
        for ((namespace, name), (mut before, mut after)) in versions(invocation, &builder, &target, &from, &to).await? {
            for object in [&mut before, &mut after] {
                if !invocation.flags.is("show-managed-fields") && !object.is_null() {
                    machinery::value::remove(object, "metadata.managedFields");
                }
            }
            if !invocation.flags.is("show-secrets") && target.mapping.kind == "Secret" {
                mask(&mut before, &mut after);
            }
            let mut info =
                resource::info(&target.mapping, if after.is_null() { before.clone() } else { after.clone() }, "");
            (info.namespace, info.name) = (namespace, name);
            let file = file_name(&info);
            sides.write(&sides.live, &file, &before)?;
            sides.write(&sides.merged, &file, &after)?;
        }
    }
    show(invocation, &sides)
}

async fn versions(
    invocation: &Invocation,
    builder: &Builder,
    target: &Target,
    from: &str,
    to: &str,
) -> Outcome<Versions> {
    let api = invocation.session.api()?;
    let mut found = Versions::new();
    if let Some(name) = &target.name {
        let (before, after) = (at(&api, target, name, from).await?, at(&api, target, name, to).await?);
        if before.is_null() && after.is_null() {
            let what = format!("{}/{name} was there at neither moment", target.mapping.kind_name());
            return Err(Failure::Message(what));
        }
        found.insert((target.namespace.clone(), name.clone()), (before, after));
        return Ok(found);
    }
    for (moment, earlier) in [(from, true), (to, false)] {
        let then = Builder { at: moment.to_owned(), ..builder.clone() };
        for object in resource::list(&invocation.session, target, &then, "").await? {
            let text = |path: &str| machinery::value::text(&object, path).to_owned();
            let sides = found.entry((text("metadata.namespace"), text("metadata.name"))).or_default();
            *(if earlier { &mut sides.0 } else { &mut sides.1 }) = object;
        }
    }
    Ok(found)
}
