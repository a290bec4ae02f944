//! Disruption budgets and priority classes.

use machinery::value;

use crate::Error;
use crate::show::{Scene, format_labels, format_selector, plain};
use crate::writer::{Writer, put};

pub fn pod_disruption_budget(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    if let Some(least) = scene.at("spec.minAvailable") {
        out.field(0, "Min available", plain(least));
    } else if let Some(most) = scene.at("spec.maxUnavailable") {
        out.field(0, "Max unavailable", plain(most));
    }
    match scene.at("spec.selector") {
        Some(selector) => out.field(0, "Selector", format_selector(selector)),
        None => out.field(0, "Selector", "<unset>"),
    }
    put!(out, 0, "Status:\n");
    for (title, field) in [
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ] {
        out.field(2, title, scene.int(&format!("status.{field}")));
    }
    scene.events(out);
    Ok(())
}

pub fn priority_class(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    out.field(0, "Value", scene.int("value"));
    out.field(0, "GlobalDefault", value::flag(scene.object, "globalDefault"));
    out.field(0, "PreemptionPolicy", scene.text("preemptionPolicy"));
    out.field(0, "Description", scene.text("description"));
    out.field(0, "Annotations", format_labels(scene.at("metadata.annotations")));
    scene.events(out);
    Ok(())
}
