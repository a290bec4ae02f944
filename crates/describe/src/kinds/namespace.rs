//! Namespaces, with what is limited in them.

use machinery::{Value, value};

use super::limits;
use crate::read::Resource;
use crate::show::{CONDITIONS, Scene, conditions};
use crate::writer::{Writer, put};
use crate::{Error, Read};

const QUOTAS: Resource = Resource::new("", "v1", "resourcequotas");
const LIMIT_RANGES: Resource = Resource::new("", "v1", "limitranges");

fn within(namespace: &Value, resource: Resource) -> Read {
    Read::list(resource, value::text(namespace, "metadata.name"))
}

pub fn reads(namespace: &Value, _: bool) -> Vec<Read> {
    vec![within(namespace, QUOTAS), within(namespace, LIMIT_RANGES)]
}

/// `None` where the server has no such resource.
fn items<'a>(scene: &Scene<'a>, resource: Resource) -> Result<Option<&'a [Value]>, Error> {
    let read = within(scene.object, resource);
    match scene.answers.get(&read) {
        Some(Err(failure)) if failure.reason == "NotFound" => Ok(None),
        _ => scene.answers.needed(&read).map(Some),
    }
}

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let (quotas, ranges) = (items(scene, QUOTAS)?, items(scene, LIMIT_RANGES)?);
    scene.name(out);
    scene.labels(out);
    scene.annotations(out);
    out.field(0, "Status", scene.text("status.phase"));
    conditions(scene, out, &CONDITIONS, "\t");
    if let Some(quotas) = quotas {
        put!(out, 0, "\n");
        limits::all_quotas(out, quotas);
    }
    if let Some(ranges) = ranges {
        put!(out, 0, "\n");
        limits::all_limit_ranges(out, ranges);
    }
    Ok(())
}
