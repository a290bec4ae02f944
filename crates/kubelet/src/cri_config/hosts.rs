//! A pod's host name and its `/etc/hosts`.

use k8s_openapi::api::core::v1::{HostAlias, Pod};

use super::{Error, NodeFacts};
use crate::pod::spec;

/// Longest name the kernel takes.
const MAX: usize = 63;

/// The pod's host name and the domain it is in, which may be empty.
pub fn name_and_domain(pod: &Pod, facts: &NodeFacts) -> Result<(String, String), Error> {
    let spec_text = |read: fn(&k8s_openapi::api::core::v1::PodSpec) -> &Option<String>| {
        pod.spec.as_ref().and_then(|s| read(s).clone()).filter(|text| !text.is_empty())
    };
    if let Some(name) = spec_text(|s| &s.hostname_override) {
        return Ok((truncate(pod, &name)?, String::new()));
    }
    let name = spec_text(|s| &s.hostname).unwrap_or_else(|| spec::name(pod).to_owned());
    let domain = spec_text(|s| &s.subdomain)
        .map(|subdomain| format!("{subdomain}.{}.svc.{}", spec::namespace(pod), facts.cluster_domain));
    Ok((truncate(pod, &name)?, domain.unwrap_or_default()))
}

/// The host name of the sandbox: the bare name, or all of it when the pod asks for that.
pub fn kernel_name(pod: &Pod, facts: &NodeFacts) -> Result<String, Error> {
    let (name, domain) = name_and_domain(pod, facts)?;
    let full = pod.spec.as_ref().is_some_and(|s| s.set_hostname_as_fqdn == Some(true));
    if !full || domain.is_empty() {
        return Ok(name);
    }
    let fqdn = format!("{name}.{domain}");
    if fqdn.len() > MAX {
        return Err(Error::Other(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({MAX} characters is the max, {} characters requested)",
            fqdn.len()
        )));
    }
    Ok(fqdn)
}

fn truncate(pod: &Pod, name: &str) -> Result<String, Error> {
    if name.len() <= MAX {
        return Ok(name.to_owned());
    }
    let cut = name.get(..MAX).unwrap_or_default().trim_end_matches(['-', '.']);
    if cut.is_empty() {
        return Err(Error::Other(format!("hostname for pod {:?} was invalid: {name:?}", spec::name(pod))));
    }
    Ok(cut.to_owned())
}

/// The text of `/etc/hosts` for a pod with a network of its own.
pub fn file(pod: &Pod, ips: &[String], facts: &NodeFacts) -> Result<String, Error> {
    let (name, domain) = name_and_domain(pod, facts)?;
    let mut out = String::from(
        "# Kubernetes-managed hosts file.\n\
         127.0.0.1\tlocalhost\n\
         ::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\n\
         fe00::0\tip6-mcastprefix\n\
         fe00::1\tip6-allnodes\n\
         fe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        if domain.is_empty() {
            out.push_str(&format!("{ip}\t{name}\n"));
        } else {
            out.push_str(&format!("{ip}\t{name}.{domain}\t{name}\n"));
        }
    }
    out.push_str(&aliases(pod));
    Ok(out)
}

/// The text of `/etc/hosts` for a pod in the node's network: the node's own, and the pod's aliases.
pub fn file_of_host(pod: &Pod, host: &str) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{host}{}", aliases(pod))
}

fn aliases(pod: &Pod) -> String {
    let list: &[HostAlias] = pod.spec.as_ref().and_then(|s| s.host_aliases.as_deref()).unwrap_or_default();
    if list.is_empty() {
        return String::new();
    }
    let lines = list
        .iter()
        .map(|alias| format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t")));
    format!("\n# Entries added by HostAliases.\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        let mut spec = spec;
        spec["containers"] = serde_json::json!([]);
        serde_json::from_value(serde_json::json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn names() {
        let facts = NodeFacts { cluster_domain: "cluster.local".into(), ..Default::default() };
        assert_eq!(kernel_name(&pod(serde_json::json!({})), &facts).unwrap(), "web");
        let full = serde_json::json!({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true});
        assert_eq!(kernel_name(&pod(full), &facts).unwrap(), "h.s.ns.svc.cluster.local");
        let mut long = pod(serde_json::json!({}));
        long.metadata.name = Some(format!("{}-x", "a".repeat(62)));
        assert_eq!(kernel_name(&long, &facts).unwrap(), "a".repeat(62));
    }

    #[test]
    fn the_file_ends_with_the_pods_own_names() {
        let facts = NodeFacts { cluster_domain: "cluster.local".into(), ..Default::default() };
        let spec = serde_json::json!({"subdomain": "s", "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]});
        let text = file(&pod(spec), &["10.0.0.1".into()], &facts).unwrap();
        let expect = "10.0.0.1\tweb.s.ns.svc.cluster.local\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n";
        assert!(text.ends_with(expect), "{text}");
    }
}
