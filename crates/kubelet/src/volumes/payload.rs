//! Which files a volume of objects has: config maps, secrets, the downward API, and all of these projected into one.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, Volume};

use super::Resolved;
use crate::cri_config::{NodeFacts, fields};
use crate::pod::spec;

/// Rights of a file when nobody says otherwise.
const DEFAULT_MODE: u32 = 0o644;

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub data: Vec<u8>,
    pub mode: u32,
    /// Its owner, root when not given.
    pub owner: Option<u32>,
}

/// Files by their path in the volume.
pub type Files = BTreeMap<String, File>;

/// A volume of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The name of the kind of volume in paths.
    pub plugin: &'static str,
    /// Whether the files must never reach a disk.
    pub in_memory: bool,
    pub files: Files,
}

/// The files of a volume; nothing when it is not a volume of files.
pub fn of_volume(
    pod: &Pod,
    volume: &Volume,
    resolved: &Resolved,
    facts: &NodeFacts,
) -> Result<Option<Payload>, String> {
    let mode = |mode: Option<i32>| mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(DEFAULT_MODE);
    let references = &resolved.references;
    if let Some(source) = &volume.config_map {
        let map = references.config_maps.get(&source.name).map(|map| &**map);
        let optional = source.optional == Some(true);
        let files = config_map(&source.name, map, source.items.as_deref(), mode(source.default_mode), optional)?;
        return Ok(Some(Payload { plugin: "configmap", in_memory: false, files }));
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let secret_object = references.secrets.get(name).map(|secret| &**secret);
        let optional = source.optional == Some(true);
        let files = secret(name, secret_object, source.items.as_deref(), mode(source.default_mode), optional)?;
        return Ok(Some(Payload { plugin: "secret", in_memory: true, files }));
    }
    if let Some(source) = &volume.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        let files = downward(pod, items, mode(source.default_mode), &resolved.ips, facts)?;
        return Ok(Some(Payload { plugin: "downward-api", in_memory: true, files }));
    }
    let Some(source) = &volume.projected else { return Ok(None) };
    let default = mode(source.default_mode);
    let mut files = Files::new();
    for (index, part) in source.sources.iter().flatten().enumerate() {
        if let Some(part) = &part.config_map {
            let map = references.config_maps.get(&part.name).map(|map| &**map);
            files.extend(config_map(&part.name, map, part.items.as_deref(), default, part.optional == Some(true))?);
        } else if let Some(part) = &part.secret {
            let object = references.secrets.get(&part.name).map(|secret| &**secret);
            files.extend(secret(&part.name, object, part.items.as_deref(), default, part.optional == Some(true))?);
        } else if let Some(part) = &part.downward_api {
            files.extend(downward(pod, part.items.as_deref().unwrap_or_default(), default, &resolved.ips, facts)?);
        } else if let Some(part) = &part.service_account_token {
            let token = resolved.tokens.get(&(volume.name.clone(), index));
            let token = token.ok_or_else(|| "failed to fetch token: not available yet".to_owned())?;
            files.insert(part.path.clone(), private(pod, default, token.clone().into_bytes()));
        } else if let Some(part) = &part.cluster_trust_bundle {
            let anchors = super::trust::anchors(part, references.trust_bundles.as_deref())?;
            files.insert(part.path.clone(), private(pod, default, anchors.into_bytes()));
        } else if let Some(part) = &part.pod_certificate {
            let issued = resolved.certificates.get(&(volume.name.clone(), index));
            let issued = issued.ok_or("credential bundle is not issued yet")?;
            let bundle = || format!("{}{}", issued.key, issued.chain);
            let parts: [(&Option<String>, &dyn Fn() -> String); 3] = [
                (&part.credential_bundle_path, &bundle),
                (&part.key_path, &|| issued.key.clone()),
                (&part.certificate_chain_path, &|| issued.chain.clone()),
            ];
            for (path, text) in parts {
                if let Some(path) = path.as_ref().filter(|path| !path.is_empty()) {
                    files.insert(path.clone(), private(pod, default, text().into_bytes()));
                }
            }
        } else {
            return Err("unsupported projection source".to_owned());
        }
    }
    Ok(Some(Payload { plugin: "projected", in_memory: true, files }))
}

/// A file for whoever runs the pod, and nobody else; a group is let in afterwards.
fn private(pod: &Pod, default: u32, data: Vec<u8>) -> File {
    let owner = common_user(pod);
    let mode = if owner.is_some() || super::fs_group(pod).is_some() { 0o600 } else { default };
    File { data, mode, owner }
}

fn config_map(
    name: &str,
    map: Option<&ConfigMap>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<Files, String> {
    let none = ConfigMap::default();
    let map = map.or(optional.then_some(&none)).ok_or_else(|| format!("configmap {name:?} not found"))?;
    let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, ByteString(value))| (key.clone(), value.clone()));
    pick(text.chain(binary).collect(), items, mode, optional, "config")
}

fn secret(
    name: &str,
    secret: Option<&Secret>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<Files, String> {
    let none = Secret::default();
    let secret = secret.or(optional.then_some(&none)).ok_or_else(|| format!("secret {name:?} not found"))?;
    let data = secret.data.iter().flatten().map(|(key, ByteString(value))| (key.clone(), value.clone()));
    pick(data.collect(), items, mode, optional, "secret")
}

/// All keys under their own names, or the chosen ones under chosen names.
fn pick(
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
    what: &str,
) -> Result<Files, String> {
    let file = |data, mode| File { data, mode, owner: None };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.into_iter().map(|(key, value)| (key, file(value, mode))).collect());
    };
    let mut files = Files::new();
    for item in items {
        match data.get_mut(&item.key) {
            Some(value) => {
                let own = item.mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(mode);
                files.insert(item.path.clone(), file(value.clone(), own));
            }
            None if optional => {}
            None => return Err(format!("references non-existent {what} key: {}", item.key)),
        }
    }
    Ok(files)
}

fn downward(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    mode: u32,
    ips: &[String],
    facts: &NodeFacts,
) -> Result<Files, String> {
    let mut files = Files::new();
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            fields::field(&field.field_path, pod, ips, facts)
        } else if let Some(selector) = &item.resource_field_ref {
            fields::resource(selector, pod, &Default::default(), facts)
        } else {
            continue;
        };
        let data = text.map_err(|e| e.to_string())?.into_bytes();
        let mode = item.mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(mode);
        files.insert(item.path.clone(), File { data, mode, owner: None });
    }
    Ok(files)
}

/// The user all containers of a pod run as, if it is one and the same.
fn common_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec.as_ref()?.security_context.as_ref().and_then(|c| c.run_as_user);
    let mut users =
        spec::members(pod).map(|m| m.container.security_context.as_ref().and_then(|c| c.run_as_user).or(of_pod));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok()).flatten()
}
