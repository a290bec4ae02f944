//! Security contexts, of pods and of containers.

use std::collections::HashSet;

use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::{At, Errors};
use crate::core::pod::volumes::descending;

/// The annotations that did before what fields do now.
pub const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";

/// As [`SECCOMP_POD`], by container.
pub const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// As [`SECCOMP_CONTAINER`], for AppArmor.
pub const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub fn container(at: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    if !at.is_set() {
        return;
    }
    errors.user_id_if_set(&at.at("runAsUser"));
    errors.user_id_if_set(&at.at("runAsGroup"));
    let mount = at.at("procMount");
    errors.one_of_if_set(&mount, &["Default", "Unmasked"]);
    if mount.text() == "Unmasked" && spec.at("hostUsers").value() != &json!(false) {
        errors.invalid(&mount, "`hostUsers` must be false to use `Unmasked`");
    }
    seccomp(&at.at("seccompProfile"), errors);
    if at.at("allowPrivilegeEscalation").value() == &json!(false) {
        if at.at("privileged").flag() {
            errors.invalid(at, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        for _ in at.at("capabilities.add").items().filter(|capability| capability.text() == "CAP_SYS_ADMIN") {
            errors.invalid(at, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    windows_options(&at.at("windowsOptions"), errors);
    app_armor(&at.at("appArmorProfile"), errors);
}

pub fn pod(spec: &At<'_, '_>, errors: &mut Errors) {
    let at = spec.at("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        errors.user_id_if_set(&at.at(field));
    }
    for group in at.at("supplementalGroups").items() {
        errors.user_id_if_set(&group);
    }
    sysctls(spec, &at.at("sysctls"), errors);
    errors.one_of_if_set(&at.at("fsGroupChangePolicy"), &["Always", "OnRootMismatch"]);
    seccomp(&at.at("seccompProfile"), errors);
    windows_options(&at.at("windowsOptions"), errors);
    app_armor(&at.at("appArmorProfile"), errors);
    errors.one_of_if_set(&at.at("supplementalGroupsPolicy"), &["Merge", "Strict"]);
    errors.one_of_if_set(&at.at("seLinuxChangePolicy"), &["MountOption", "Recursive"]);
    let share = spec.at("shareProcessNamespace");
    if share.flag() && spec.at("hostPID").flag() {
        errors.invalid(&share, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
}

fn sysctls(spec: &At<'_, '_>, list: &At<'_, '_>, errors: &mut Errors) {
    const PATTERN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen: HashSet<&str> = HashSet::new();
    for sysctl in list.items() {
        let name = sysctl.at("name");
        if name.text().is_empty() {
            errors.required(&name, "");
        } else if !is_sysctl(name.text()) {
            errors.invalid(&name, format!("must have at most 253 characters and match regex {PATTERN}"));
        } else if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        }
        let dotted = name.text().replace('/', ".");
        if spec.at("hostNetwork").flag() && dotted.starts_with("net.") {
            errors.invalid_text(&name, "may not be specified when 'hostNetwork' is true");
        } else if spec.at("hostIPC").flag() && is_ipc(&dotted) {
            errors.invalid_text(&name, "may not be specified when 'hostIPC' is true");
        }
        seen.insert(name.text());
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().is_some_and(|byte| is_end(*byte))
            && bytes.last().is_some_and(|byte| is_end(*byte))
            && bytes.iter().all(|byte| is_end(*byte) || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_segment)
}

fn is_ipc(name: &str) -> bool {
    name == "kernel.sem" || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| name.starts_with(prefix))
}

fn seccomp(at: &At<'_, '_>, errors: &mut Errors) {
    if !at.is_set() {
        return;
    }
    let kind = at.at("type");
    if kind.text().is_empty() {
        errors.required(&kind, "type is required when seccompProfile is set");
    } else {
        errors.one_of(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
    let profile = at.at("localhostProfile");
    match (kind.text(), profile.is_set()) {
        ("Localhost", false) => errors.required(&profile, "must be set when seccomp type is Localhost"),
        ("Localhost", true) => descending(&profile, errors),
        (_, true) => {
            errors.invalid_value(&profile, at.value().clone(), "can only be set when seccomp type is Localhost")
        }
        (_, false) => {}
    }
}

fn app_armor(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST: usize = 4095;
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    if !at.is_set() {
        return;
    }
    let profile = at.at("localhostProfile");
    match at.text_at("type") {
        "Localhost" if !profile.is_set() => errors.required(&profile, NEEDED),
        "Localhost" => {
            if profile.text().trim() != profile.text() {
                errors.invalid(&profile, "must not be padded with whitespace");
            } else if profile.text().is_empty() {
                errors.required(&profile, NEEDED);
            }
            if profile.text().len() > MOST {
                errors.too_long(&profile, MOST);
            }
        }
        "RuntimeDefault" | "Unconfined" if profile.is_set() => {
            errors.invalid(&profile, "can only be set when AppArmor type is Localhost");
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(&at.at("type"), "type is required when appArmorProfile is set"),
        _ => errors.not_supported(&at.at("type"), &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

fn windows_options(at: &At<'_, '_>, errors: &mut Errors) {
    const MOST_SPEC: usize = 64 * 1024;
    let name = at.at("gmsaCredentialSpecName");
    if name.is_set() {
        errors.problems(&name, names::is_dns1123_subdomain(name.text()));
    }
    let spec = at.at("gmsaCredentialSpec");
    if spec.is_set() {
        match spec.text().len() {
            0 => errors.invalid(&spec, "gmsaCredentialSpec cannot be an empty string"),
            length if length > MOST_SPEC => errors.invalid(&spec, "gmsaCredentialSpec size must be under 64 KiB"),
            _ => {}
        }
    }
    let user = at.at("runAsUserName");
    if user.is_set() {
        windows_user(&user, errors);
    }
}

fn windows_user(at: &At<'_, '_>, errors: &mut Errors) {
    let whole = at.text();
    if whole.is_empty() {
        return errors.invalid(at, "runAsUserName cannot be an empty string");
    }
    if whole.bytes().any(|byte| byte.is_ascii_control()) {
        return errors.invalid(at, "runAsUserName cannot contain control characters");
    }
    if whole.matches('\\').count() > 1 {
        return errors.invalid(at, "runAsUserName cannot contain more than one backslash");
    }
    let (domain, user) = whole.split_once('\\').map_or((None, whole), |(domain, user)| (Some(domain), user));
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            errors.invalid(at, "runAsUserName's Domain length must be under 256 characters");
        }
        if !is_net_bios(domain) && !is_windows_domain(domain) {
            errors.invalid(at, "runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    match user.len() {
        0 => errors.invalid(at, "runAsUserName's User cannot be empty"),
        length if length > 104 => {
            errors.invalid(at, "runAsUserName's User length must not be longer than 104 characters")
        }
        _ => {}
    }
    if !user.is_empty() && user.bytes().all(|byte| matches!(byte, b'.' | b' ')) {
        errors.invalid(at, "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        errors.invalid(at, "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_net_bios(domain: &str) -> bool {
    let legal = |c: char| !matches!(c, '\\' | '/' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
    (1..=15).contains(&domain.chars().count()) && domain.chars().all(legal) && !domain.starts_with('.')
}

fn is_windows_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    domain.split('.').all(is_label)
}

/// Containers that are processes of a Windows host: all or none.
pub fn host_processes(spec: &At<'_, '_>, errors: &mut Errors) {
    let whole = spec.at("securityContext.windowsOptions.hostProcess").value().as_bool();
    let (mut all, mut on_host) = (0, 0);
    super::spec::each_container(spec, |container| {
        all += 1;
        let own = container.at("securityContext.windowsOptions.hostProcess");
        if let (Some(whole), Some(given)) = (whole, own.value().as_bool())
            && whole != given
        {
            let detail = format!("pod hostProcess value must be identical if both are specified, was {whole}");
            errors.invalid_value(&own, given, detail);
        }
        on_host += usize::from(own.value().as_bool().or(whole).unwrap_or(false));
    });
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid_value(spec, "", detail);
    }
    if !spec.at("hostNetwork").flag() {
        errors.invalid_value(
            &spec.at("hostNetwork"),
            false,
            "hostNetwork must be true if pod contains any hostProcess containers",
        );
    }
}

/// What only makes sense on the other operating system.
pub fn operating_system(spec: &At<'_, '_>, errors: &mut Errors) {
    const NOT_WINDOWS: &str = "cannot be set for a windows pod";
    const POD: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let os = spec.at("os");
    if !os.is_set() {
        return;
    }
    match os.text_at("name") {
        "" => errors.required(&os.at("name"), ""),
        "linux" => {
            const NOT_LINUX: &str = "windows options cannot be set for a linux pod";
            errors.forbidden_if_set(&spec.at("securityContext.windowsOptions"), NOT_LINUX);
            super::spec::each_container(spec, |container| {
                errors.forbidden_if_set(&container.at("securityContext.windowsOptions"), NOT_LINUX);
            });
        }
        "windows" => {
            let context = spec.at("securityContext");
            for field in POD {
                errors.forbidden_if_set(&context.at(field), NOT_WINDOWS);
            }
            errors.forbidden_if_set(&spec.at("hostUsers"), NOT_WINDOWS);
            for field in ["hostPID", "hostIPC"] {
                if spec.at(field).flag() {
                    errors.forbidden(&spec.at(field), NOT_WINDOWS);
                }
            }
            errors.forbidden_if_set(&spec.at("shareProcessNamespace"), NOT_WINDOWS);
            super::spec::each_container(spec, |container| {
                let context = container.at("securityContext");
                for field in CONTAINER {
                    errors.forbidden_if_set(&context.at(field), NOT_WINDOWS);
                }
            });
        }
        name => errors.push(machinery::status::FieldError::not_supported(os.to_string(), name, ["linux", "windows"])),
    }
}

/// What an annotation of old says, as the field says it, if it makes sense.
pub fn app_armor_field(annotation: &str) -> Option<Value> {
    const LONGEST: usize = 4095;
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let profile = annotation.strip_prefix("localhost/")?;
            let fine = !profile.is_empty() && profile.trim() == profile && profile.len() <= LONGEST;
            fine.then(|| json!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
}

/// Whoever wrote only the annotation gets the field too, unless the pod as a whole has it already.
pub fn sync_app_armor(pod: &mut Value) {
    if value::at(pod, "metadata.annotations").is_none() || value::text(pod, "spec.os.name") == "windows" {
        return;
    }
    let whole = value::at(pod, "spec.securityContext.appArmorProfile").cloned();
    let annotations = value::at(pod, "metadata.annotations").cloned().unwrap_or_default();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in value::list_mut(pod, &format!("spec.{list}")) {
            let key = format!("{APP_ARMOR}{}", value::text(container, "name"));
            let field = annotations.get(&key).and_then(Value::as_str).and_then(app_armor_field);
            let own = value::at(container, "securityContext.appArmorProfile").is_some_and(Value::is_object);
            if let Some(field) = field.filter(|field| !own && Some(field) != whole.as_ref()) {
                value::set(container, "securityContext.appArmorProfile", field);
            }
        }
    }
}

/// The annotations of old: their form, and that they say what the fields say.
pub fn annotations(metadata: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    let annotations = metadata.at("annotations");
    let find = |key: &str| annotations.value().get(key).and_then(Value::as_str);
    if let Some(annotation) = find(SECCOMP_POD) {
        match_seccomp(annotation, &spec.at("securityContext.seccompProfile"), errors);
    }
    let whole = spec.at("securityContext.appArmorProfile");
    super::spec::each_container(spec, |container| {
        let name = container.text_at("name");
        if let Some(annotation) = find(&format!("{SECCOMP_CONTAINER}{name}")) {
            match_seccomp(annotation, &container.at("securityContext.seccompProfile"), errors);
        }
        let own = container.at("securityContext.appArmorProfile");
        let effective = if own.is_set() { own.value() } else { whole.value() };
        if let Some(annotation) =
            find(&format!("{APP_ARMOR}{name}")).filter(|_| !effective.is_null() && spec.text_at("os.name") != "windows")
        {
            match_profile(annotation, effective, &own, "apparmor", &["runtime/default"], errors);
        }
    });
}

fn match_seccomp(annotation: &str, profile: &At<'_, '_>, errors: &mut Errors) {
    if profile.is_set() {
        match_profile(annotation, profile.value(), profile, "seccomp", &["runtime/default", "docker/default"], errors);
    }
}

fn match_profile(
    annotation: &str,
    profile: &Value,
    at: &At<'_, '_>,
    what: &str,
    defaults: &[&str],
    errors: &mut Errors,
) {
    let matches = match value::text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => defaults.contains(&annotation),
        "Localhost" => match annotation.strip_prefix("localhost/") {
            None => false,
            Some(name) if name != value::text(profile, "localhostProfile") => {
                return errors.forbidden(
                    &at.at("localhostProfile"),
                    format!("{what} profile in annotation and field must match"),
                );
            }
            Some(_) => true,
        },
        _ => true,
    };
    if !matches {
        errors.forbidden(&at.at("type"), format!("{what} type in annotation and field must match"));
    }
}
