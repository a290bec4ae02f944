//! Ingress classes, ranges of service addresses, and the addresses.

use machinery::value;

use crate::Error;
use crate::show::{CONDITIONS, Scene, at, conditions, joined};
use crate::writer::{Writer, put};

pub fn ingress_class(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.labels(out);
    scene.annotations(out);
    out.field(0, "Controller", scene.text("spec.controller"));
    if let Some(parameters) = scene.at("spec.parameters") {
        put!(out, 0, "Parameters:\n");
        if at(parameters, "apiGroup").is_some() {
            out.field(1, "APIGroup", value::text(parameters, "apiGroup"));
        }
        out.field(1, "Kind", value::text(parameters, "kind"));
        out.field(1, "Name", value::text(parameters, "name"));
    }
    scene.events(out);
    Ok(())
}

pub fn service_cidr(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.labels(out);
    scene.annotations(out);
    out.field(0, "CIDRs", joined(scene.list("spec.cidrs"), ", "));
    if !scene.list("status.conditions").is_empty() {
        put!(out, 0, "Status:\n");
    }
    conditions(scene, out, &CONDITIONS, "\t");
    scene.events(out);
    Ok(())
}

pub fn ip_address(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.labels(out);
    scene.annotations(out);
    if let Some(parent) = scene.at("spec.parentRef") {
        put!(out, 0, "Parent Reference:\n");
        for (title, field) in
            [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")]
        {
            out.field(1, title, value::text(parent, field));
        }
    }
    scene.events(out);
    Ok(())
}
