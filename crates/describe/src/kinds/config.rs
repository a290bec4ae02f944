//! Secrets, config maps and service accounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::{Value, value};

use crate::Error;
use crate::read;
use crate::show::{Scene, pairs};
use crate::writer::{Writer, put};

fn bytes(text: &str) -> Vec<u8> {
    STANDARD.decode(text).unwrap_or_default()
}

pub fn secret(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    scene.labels(out);
    scene.annotations(out);
    let kind = scene.text("type");
    put!(out, 0, "\nType:\t{kind}\n");
    put!(out, 0, "\nData\n====\n");
    for (key, value) in pairs(scene.at("data")) {
        let value = bytes(value);
        if key == "token" && kind == "kubernetes.io/service-account-token" {
            out.field(0, key, String::from_utf8_lossy(&value));
        } else {
            out.field(0, key, format_args!("{} bytes", value.len()));
        }
    }
    Ok(())
}

pub fn config_map(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.namespace(out);
    scene.labels(out);
    scene.annotations(out);
    put!(out, 0, "\nData\n====\n");
    for (key, value) in pairs(scene.at("data")) {
        put!(out, 0, "{key}:\n----\n");
        put!(out, 0, "{value}\n");
        put!(out, 0, "\n");
    }
    put!(out, 0, "\nBinaryData\n====\n");
    for (key, value) in pairs(scene.at("binaryData")) {
        put!(out, 0, "{key}: {} bytes\n", bytes(value).len());
    }
    put!(out, 0, "\n");
    if scene.settings.show_events {
        // Here alone upstream fails when events cannot be read.
        scene.answers.needed(&read::events(scene.object))?;
        scene.events(out);
    }
    Ok(())
}

pub fn service_account(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    const TITLE: &str = "Image pull secrets:";
    scene.name(out);
    scene.namespace(out);
    scene.labels(out);
    scene.annotations(out);
    let secrets: &[Value] = scene.list("imagePullSecrets");
    if secrets.is_empty() {
        put!(out, 0, "{TITLE}\t<none>\n");
    }
    for (at, secret) in secrets.iter().enumerate() {
        let title = if at == 0 { TITLE } else { "" };
        put!(out, 0, "{title:width$}\t{}\n", value::text(secret, "name"), width = TITLE.len());
    }
    scene.events(out);
    Ok(())
}
