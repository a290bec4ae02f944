//! Where a container mounts volumes and devices.

use std::collections::HashSet;

use machinery::Value;

use crate::checks::{At, Errors};
use crate::core::pod::volumes::{Volumes, descending};

pub fn mounts(container: &At<'_, '_>, volumes: &Volumes<'_>, errors: &mut Errors) {
    let list = container.at("volumeMounts");
    let devices = container.at("volumeDevices");
    let mut points: HashSet<&str> = HashSet::new();
    for mount in list.items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        errors.required_text(&name);
        let volume = volumes.get(name.text()).copied();
        if volume.is_none() {
            errors.not_found(&name, name.text());
        }
        errors.required_text(&path);
        if points.contains(&path.text()) {
            errors.invalid_text(&path, "must be unique");
        }
        points.insert(path.text());
        if devices.items().any(|device| device.text_at("name") == name.text()) {
            errors.invalid_text(&name, "must not already exist in volumeDevices");
        }
        if devices.items().any(|device| device.text_at("devicePath") == path.text()) {
            errors.invalid_text(&path, "must not already exist as a path in volumeDevices");
        }
        // Upstream speaks of these as fields of the list.
        let whole = list.to_string();
        let shown = At::part(&whole, mount.value());
        if !mount.text_at("subPath").is_empty() {
            descending(&shown.at("subPath"), errors);
        }
        let expression = mount.at("subPathExpr");
        if !expression.text().is_empty() {
            if !mount.text_at("subPath").is_empty() {
                errors.invalid(&expression, "subPathExpr and subPath are mutually exclusive");
            }
            descending(&shown.at("subPathExpr"), errors);
        }
        propagation(&shown, container, errors);
        recursive_read_only(&shown, errors);
        bind_options(&mount, volume, errors);
    }
}

fn propagation(mount: &At<'_, '_>, container: &At<'_, '_>, errors: &mut Errors) {
    let mode = mount.at("mountPropagation");
    errors.one_of_if_set(&mode, &["Bidirectional", "HostToContainer", "None"]);
    if mode.text() == "Bidirectional" && !container.at("securityContext.privileged").flag() {
        errors.forbidden(&mode, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn recursive_read_only(mount: &At<'_, '_>, errors: &mut Errors) {
    let mode = mount.at("recursiveReadOnly");
    match mode.text() {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").flag() {
                errors.forbidden(&mode, "may only be specified when readOnly is true");
            }
            if !matches!(mount.text_at("mountPropagation"), "" | "None") {
                errors.forbidden(&mode, "may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => errors.one_of_if_set(&mode, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn bind_options(mount: &At<'_, '_>, volume: Option<&Value>, errors: &mut Errors) {
    let options = mount.at("bindMountOptions");
    let mut seen: HashSet<&str> = HashSet::new();
    for option in options.items() {
        errors.one_of(&option, &["nodev", "noexec", "nosuid"]);
        if seen.contains(&option.text()) {
            errors.duplicate(&option, option.text());
        }
        seen.insert(option.text());
    }
    if !options.is_empty() && volume.is_some_and(|volume| volume.get("image").is_some()) {
        errors.invalid(&options, "bindMountOptions may not be used with image volumes");
    }
}

pub fn devices(container: &At<'_, '_>, volumes: &Volumes<'_>, errors: &mut Errors) {
    let mounts = container.at("volumeMounts");
    let (mut names, mut paths): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    for device in container.at("volumeDevices").items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        errors.required_text(&name);
        if names.contains(&name.text()) {
            errors.invalid_text(&name, "must be unique");
        }
        match volumes.get(name.text()) {
            None => errors.not_found(&name, name.text()),
            Some(volume) if volume.get("persistentVolumeClaim").is_none() && volume.get("ephemeral").is_none() => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid_text(&name, detail);
            }
            Some(_) => {}
        }
        errors.required_text(&path);
        if paths.contains(&path.text()) {
            errors.invalid_text(&path, "must be unique");
        }
        if path.text().split('/').any(|step| step == "..") {
            errors.invalid_text(&path, "can not contain backsteps ('..')");
        } else {
            paths.insert(path.text());
        }
        if mounts.items().any(|mount| mount.text_at("name") == name.text()) {
            errors.invalid_text(&name, "must not already exist in volumeMounts");
        }
        if mounts.items().any(|mount| mount.text_at("mountPath") == path.text()) {
            errors.invalid_text(&path, "must not already exist as a path in volumeMounts");
        }
        if !name.text().is_empty() {
            names.insert(name.text());
        }
    }
}
