//! Which resources the API server has, custom ones included, as its discovery documents say.

use client::{Client, Gvr};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};

/// One resource in its preferred version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    pub gvr: Gvr,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
}

impl Resource {
    /// Whether it can be followed and cleaned up.
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|known| known == verb))
    }
}

/// What was found, and what could not be asked for: an aggregated API server that is down hides only its own group.
#[derive(Debug, Default)]
pub struct Discovered {
    pub resources: Vec<Resource>,
    pub failures: Vec<String>,
    /// Names of group versions that cannot be ones.
    pub malformed: Vec<String>,
}

/// All resources, each once, in the version its group prefers.
pub async fn discover(client: &Client) -> Result<Discovered, client::Error> {
    let mut found = Discovered::default();
    let mut versions = vec!["v1".to_owned()];
    let groups: APIGroupList = read(client, "/apis").await?;
    for group in groups.groups {
        // The preferred version first: a resource that it lacks is taken from another.
        let preferred = group.preferred_version.map(|version| version.group_version);
        let others = group.versions.into_iter().map(|version| version.group_version);
        versions.extend(preferred.clone());
        versions.extend(others.filter(|version| Some(version) != preferred.as_ref()));
    }
    for version in versions {
        if version.matches('/').count() > 1 {
            found.malformed.push(version);
            continue;
        }
        let path = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        match read::<APIResourceList>(client, &path).await {
            Ok(list) => add(&mut found.resources, &version, list),
            Err(error) => found.failures.push(format!("{version}: {error}")),
        }
    }
    Ok(found)
}

fn add(resources: &mut Vec<Resource>, group_version: &str, list: APIResourceList) {
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    for resource in list.resources {
        let known = |candidate: &Resource| candidate.gvr.group == group && candidate.gvr.resource == resource.name;
        // Subresources have a slash and no life of their own.
        if resource.name.contains('/') || resources.iter().any(known) {
            continue;
        }
        resources.push(Resource {
            gvr: Gvr::new(group, version, resource.name),
            kind: resource.kind,
            namespaced: resource.namespaced,
            verbs: resource.verbs,
        });
    }
}

async fn read<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T, client::Error> {
    let bytes = client.raw(path).await?;
    serde_json::from_slice(&bytes).map_err(|source| client::Error::Decode { what: "discovery document", source })
}
