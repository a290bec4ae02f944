//! A pod's resolver configuration, by its DNS policy.

use k8s_openapi::api::core::v1::Pod;
use node::cri::v1::DnsConfig;

use super::NodeFacts;
use crate::pod::spec;

/// Most name servers a resolver takes.
const MAX_SERVERS: usize = 3;
/// Most search domains, and most characters of them.
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
const MAX_NAME: usize = 253;

/// The configuration, and what had to be left out, as texts for events.
pub fn config(pod: &Pod, facts: &NodeFacts) -> (DnsConfig, Vec<String>) {
    let policy = pod.spec.as_ref().and_then(|s| s.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let host = parse(&facts.resolv_conf);
    let cluster = match policy {
        "None" | "Default" => false,
        "ClusterFirstWithHostNet" => true,
        _ => !spec::is_host_network(pod),
    };
    let mut config = if policy == "None" {
        DnsConfig::default()
    } else if cluster && !facts.cluster_dns.is_empty() {
        let domain = &facts.cluster_domain;
        let mut searches = Vec::new();
        if !domain.is_empty() {
            searches = vec![format!("{}.svc.{domain}", spec::namespace(pod)), format!("svc.{domain}"), domain.clone()];
        }
        searches.extend(host.searches);
        DnsConfig {
            servers: facts.cluster_dns.clone(),
            searches: unique(searches),
            options: vec!["ndots:5".to_owned()],
        }
    } else {
        host
    };
    if let Some(own) = pod.spec.as_ref().and_then(|s| s.dns_config.as_ref()) {
        config.servers.extend(own.nameservers.iter().flatten().cloned());
        config.servers = unique(config.servers);
        config.searches.extend(own.searches.iter().flatten().cloned());
        config.searches = unique(config.searches);
        for option in own.options.iter().flatten() {
            let name = option.name.as_deref().unwrap_or_default();
            let text = match option.value.as_deref().filter(|v| !v.is_empty()) {
                Some(value) => format!("{name}:{value}"),
                None => name.to_owned(),
            };
            set_option(&mut config.options, text);
        }
    }
    let warnings = fit(&mut config);
    (config, warnings)
}

fn set_option(options: &mut Vec<String>, option: String) {
    let name = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|present| name(present) == name(&option)) {
        Some(present) => *present = option,
        None => options.push(option),
    }
}

/// Cuts what a resolver would not take.
fn fit(config: &mut DnsConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.servers.len() > MAX_SERVERS {
        config.servers.truncate(MAX_SERVERS);
        warnings.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            config.servers.join(" ")
        ));
    }
    let before = config.searches.len();
    config.searches.truncate(MAX_SEARCHES);
    config.searches.retain(|search| search.len() <= MAX_NAME);
    while config.searches.join(" ").len() > MAX_SEARCH_CHARS {
        config.searches.pop();
    }
    if config.searches.len() < before {
        warnings.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            config.searches.join(" ")
        ));
    }
    warnings
}

/// Reads the node's own resolver configuration.
fn parse(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                config.searches = words.filter(|w| *w != ".").map(|w| w.trim_end_matches('.').to_owned()).collect();
            }
            Some("options") => words.for_each(|option| set_option(&mut config.options, option.to_owned())),
            _ => {}
        }
    }
    config
}

fn unique(list: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::with_capacity(list.len());
    for item in list {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PodSpec;

    fn check(spec: serde_json::Value, expect: &str) {
        let mut spec = spec;
        spec["containers"] = serde_json::json!([]);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let mut pod = Pod { spec: Some(spec), ..Default::default() };
        pod.metadata.namespace = Some("ns".into());
        let facts = NodeFacts {
            cluster_dns: vec!["10.96.0.10".into()],
            cluster_domain: "cluster.local".into(),
            resolv_conf: "# c\nnameserver 9.9.9.9\nsearch example.org. .\noptions timeout:1\n".into(),
            ..Default::default()
        };
        let (config, _) = config(&pod, &facts);
        let text =
            format!("{} | {} | {}", config.servers.join(" "), config.searches.join(" "), config.options.join(" "));
        assert_eq!(text, expect);
    }

    #[test]
    fn policies() {
        let cluster = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.org | ndots:5";
        check(serde_json::json!({"dnsPolicy": "ClusterFirst"}), cluster);
        check(
            serde_json::json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}),
            "9.9.9.9 | example.org | timeout:1",
        );
        check(serde_json::json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}), cluster);
        check(serde_json::json!({"dnsPolicy": "Default"}), "9.9.9.9 | example.org | timeout:1");
        check(
            serde_json::json!({"dnsPolicy": "None", "dnsConfig": {
                "nameservers": ["1.1.1.1"], "searches": ["a"], "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
            }}),
            "1.1.1.1 | a | ndots:2 edns0",
        );
    }

    #[test]
    fn limits_are_kept_and_told() {
        let mut config = DnsConfig {
            servers: ["1", "2", "3", "4"].map(str::to_owned).to_vec(),
            searches: (0..40).map(|n| format!("s{n}")).collect(),
            options: vec![],
        };
        assert_eq!(fit(&mut config).len(), 2);
        assert_eq!((config.servers.len(), config.searches.len()), (3, 32));
    }
}
