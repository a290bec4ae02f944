//! The configuration in force with its defaults filled in, as `/configz` shows it: in upstream's form, so that what reads
//! upstream's can read this.

use serde_json::{Map, Value, json};

use super::{
    API_VERSION, Configuration, ExtenderConfig, KIND, LeaderElection, PluginList, PluginRef, Plugins, ProfileConfig,
};
use crate::plugins;

impl Configuration {
    pub fn shown(&self) -> Value {
        let mut shown = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "parallelism": self.parallelism,
            "leaderElection": self.leader_election.shown(),
            "clientConnection": self.client_connection_shown(),
            "enableProfiling": self.enable_profiling.unwrap_or(true),
            "percentageOfNodesToScore": self.percentage_of_nodes_to_score,
            "podInitialBackoffSeconds": self.pod_initial_backoff_seconds,
            "podMaxBackoffSeconds": self.pod_max_backoff_seconds,
            "profiles": self.profiles.iter().map(ProfileConfig::shown).collect::<Vec<_>>(),
        });
        let contention = self.enable_contention_profiling.or((self.enable_profiling != Some(false)).then_some(true));
        if let Some(contention) = contention {
            shown["enableContentionProfiling"] = json!(contention);
        }
        if !self.extenders.is_empty() {
            shown["extenders"] = self.extenders.iter().map(ExtenderConfig::shown).collect();
        }
        if self.delay_cache_until_active {
            shown["delayCacheUntilActive"] = json!(true);
        }
        shown
    }

    fn client_connection_shown(&self) -> Value {
        let given = &self.client_connection;
        let content =
            if given.content_type.is_empty() { "application/vnd.kubernetes.protobuf" } else { &given.content_type };
        let number = |value: f64| if value.fract() == 0.0 { json!(value as i64) } else { json!(value) };
        json!({
            "kubeconfig": given.kubeconfig,
            "acceptContentTypes": given.accept_content_types,
            "contentType": content,
            "qps": number(if given.qps == 0.0 { 50.0 } else { given.qps }),
            "burst": if given.burst == 0 { 100 } else { given.burst },
        })
    }
}

impl LeaderElection {
    fn shown(&self) -> Value {
        json!({
            "leaderElect": self.leader_elect,
            "leaseDuration": self.lease_duration,
            "renewDeadline": self.renew_deadline,
            "retryPeriod": self.retry_period,
            "resourceLock": self.resource_lock,
            "resourceName": self.resource_name,
            "resourceNamespace": self.resource_namespace,
        })
    }
}

impl ProfileConfig {
    fn shown(&self) -> Value {
        let mut shown = json!({ "schedulerName": self.name(), "plugins": self.plugins.shown() });
        if let Some(percentage) = self.percentage_of_nodes_to_score {
            shown["percentageOfNodesToScore"] = json!(percentage);
        }
        let given = self.plugin_config.iter().map(|config| {
            let args = match default_args(&config.name) {
                Some(defaults) => overlaid(&config.name, defaults, &config.args),
                None => config.args.clone(),
            };
            json!({ "name": config.name, "args": args })
        });
        let is_given = |name: &str| self.plugin_config.iter().any(|config| config.name == name);
        let mut enabled = self.plugins.enabled_names();
        enabled.sort_unstable();
        enabled.dedup();
        let defaults = enabled.into_iter().filter(|name| !is_given(name)).filter_map(|name| {
            let args = overlaid(name, default_args(name)?, &Value::Null);
            Some(json!({ "name": name, "args": args }))
        });
        let configs: Vec<Value> = given.chain(defaults).collect();
        shown["pluginConfig"] = json!(configs);
        shown
    }
}

impl Plugins {
    fn points(&self) -> [(&'static str, &PluginList); 12] {
        [
            ("preEnqueue", &self.pre_enqueue),
            ("queueSort", &self.queue_sort),
            ("preFilter", &self.pre_filter),
            ("filter", &self.filter),
            ("postFilter", &self.post_filter),
            ("preScore", &self.pre_score),
            ("score", &self.score),
            ("reserve", &self.reserve),
            ("permit", &self.permit),
            ("preBind", &self.pre_bind),
            ("bind", &self.bind),
            ("postBind", &self.post_bind),
        ]
    }

    /// With the default plugins among those of `multiPoint`.
    fn shown(&self) -> Value {
        let list = |enabled: &[PluginRef], disabled: &[PluginRef]| {
            let mut shown = Map::new();
            for (name, plugins) in [("enabled", enabled), ("disabled", disabled)] {
                if !plugins.is_empty() {
                    shown.insert(name.to_owned(), plugins.iter().map(PluginRef::shown).collect());
                }
            }
            Value::Object(shown)
        };
        let mut shown: Map<String, Value> = self
            .points()
            .map(|(point, plugins)| (point.to_owned(), list(&plugins.enabled, &plugins.disabled)))
            .into_iter()
            .collect();
        let all = crate::config::registry::multi_point(&self.multi_point);
        shown.insert("multiPoint".to_owned(), list(&all, &self.multi_point.disabled));
        Value::Object(shown)
    }

    fn enabled_names(&self) -> Vec<&str> {
        let own = self.points().into_iter().flat_map(|(_, list)| &list.enabled).chain(&self.multi_point.enabled);
        let mut names: Vec<&str> = own.map(|plugin| plugin.name.as_str()).collect();
        for name in crate::config::registry::default_names().filter(|name| !self.multi_point.disables(name)) {
            names.push(name);
        }
        names
    }
}

impl PluginRef {
    fn shown(&self) -> Value {
        match self.weight {
            0 => json!({ "name": self.name }),
            weight => json!({ "name": self.name, "weight": weight }),
        }
    }
}

impl ExtenderConfig {
    fn shown(&self) -> Value {
        let mut shown = json!({ "urlPrefix": self.url_prefix });
        let verbs = [
            ("filterVerb", &self.filter_verb),
            ("preemptVerb", &self.preempt_verb),
            ("prioritizeVerb", &self.prioritize_verb),
            ("bindVerb", &self.bind_verb),
        ];
        verbs.into_iter().filter(|(_, verb)| !verb.is_empty()).for_each(|(name, verb)| shown[name] = json!(verb));
        let flags = [
            ("enableHTTPS", self.enable_https),
            ("nodeCacheCapable", self.node_cache_capable),
            ("ignorable", self.ignorable),
        ];
        flags.into_iter().filter(|(_, on)| *on).for_each(|(name, _)| shown[name] = json!(true));
        if self.weight != 0 {
            shown["weight"] = json!(self.weight);
        }
        if let Some(tls) = &self.tls_config {
            shown["tlsConfig"] = without_keys(tls);
        }
        if let Some(timeout) = &self.http_timeout {
            shown["httpTimeout"] = json!(timeout);
        }
        let managed = self.managed_resources.iter().map(|resource| match resource.ignored_by_scheduler {
            true => json!({ "name": resource.name, "ignoredByScheduler": true }),
            false => json!({ "name": resource.name }),
        });
        if !self.managed_resources.is_empty() {
            shown["managedResources"] = managed.collect();
        }
        shown
    }
}

/// A private key in the configuration is for the extender's connection and for nobody's eyes.
fn without_keys(tls: &Value) -> Value {
    let mut tls = tls.clone();
    if let Some(fields) = tls.as_object_mut() {
        fields.retain(|name, _| !name.eq_ignore_ascii_case("keyData"));
    }
    tls
}

fn default_args(plugin: &str) -> Option<Value> {
    let resources = || json!([{ "name": "cpu", "weight": 1 }, { "name": "memory", "weight": 1 }]);
    Some(match plugin {
        plugins::DEFAULT_PREEMPTION => json!({ "minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100 }),
        plugins::INTER_POD_AFFINITY => {
            json!({ "hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": false })
        }
        plugins::NODE_AFFINITY => json!({}),
        plugins::BALANCED_ALLOCATION => json!({ "resources": resources() }),
        plugins::NODE_RESOURCES_FIT => {
            json!({ "scoringStrategy": { "type": "LeastAllocated", "resources": resources() } })
        }
        plugins::POD_TOPOLOGY_SPREAD => json!({ "defaultingType": "System" }),
        plugins::VOLUME_BINDING => json!({
            "bindTimeoutSeconds": 600,
            "shape": [{ "utilization": 0, "score": 10 }, { "utilization": 100, "score": 0 }],
        }),
        _ => return None,
    })
}

/// What was given over the defaults. Lists are given as a whole; a resource without a weight has that of one.
fn overlaid(plugin: &str, mut args: Value, given: &Value) -> Value {
    lay(&mut args, given);
    for list in ["/resources", "/scoringStrategy/resources"] {
        for resource in args.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if resource["weight"].as_i64().unwrap_or(0) == 0 {
                resource["weight"] = json!(1);
            }
        }
    }
    if let Some(fields) = args.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(API_VERSION));
        fields.insert("kind".to_owned(), json!(format!("{plugin}Args")));
    }
    args
}

fn lay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            over.iter().for_each(|(name, value)| lay(under.entry(name.as_str()).or_insert(Value::Null), value));
        }
        (_, Value::Null) => {}
        // An empty list is as good as none.
        (under, Value::Array(over)) if over.is_empty() && under.is_array() => {}
        (under, over) => *under = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_configuration_is_shown_in_full() {
        let shown = Configuration::default().shown();
        assert_eq!(shown["parallelism"], 16);
        assert_eq!(shown["clientConnection"]["qps"], 50);
        assert_eq!(shown["leaderElection"]["leaseDuration"], "15s");
        let profile = &shown["profiles"][0];
        assert_eq!(profile["schedulerName"], "default-scheduler");
        assert_eq!(profile["plugins"]["filter"], json!({}));
        let enabled = profile["plugins"]["multiPoint"]["enabled"].as_array().unwrap();
        assert_eq!(enabled[0], json!({ "name": "SchedulingGates" }));
        assert!(enabled.contains(&json!({ "name": "TaintToleration", "weight": 3 })));
        let names: Vec<_> = profile["pluginConfig"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
        assert_eq!(
            names,
            [
                "DefaultPreemption",
                "InterPodAffinity",
                "NodeAffinity",
                "NodeResourcesBalancedAllocation",
                "NodeResourcesFit",
                "PodTopologySpread",
                "VolumeBinding"
            ]
        );
        assert_eq!(
            profile["pluginConfig"][0]["args"],
            json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "DefaultPreemptionArgs",
                "minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100,
            })
        );
    }

    #[test]
    fn what_was_given_is_shown_over_the_defaults_but_never_a_key() {
        let given = json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "enableProfiling": false,
            "profiles": [{
                "schedulerName": "mine",
                "plugins": {
                    "score": { "disabled": [{ "name": "ImageLocality" }] },
                    "multiPoint": { "disabled": [{ "name": "VolumeBinding" }] },
                },
                "pluginConfig": [{
                    "name": "NodeResourcesFit",
                    "args": { "scoringStrategy": { "type": "MostAllocated", "resources": [{ "name": "cpu" }] } },
                }],
            }],
            "extenders": [{ "urlPrefix": "http://127.0.0.1", "filterVerb": "f", "tlsConfig": { "keyData": "c2VjcmV0" } }],
        });
        let shown = Configuration::parse(given).unwrap().shown();
        let profile = &shown["profiles"][0];
        assert_eq!(profile["plugins"]["score"], json!({ "disabled": [{ "name": "ImageLocality" }] }));
        let strategy = &profile["pluginConfig"][0]["args"]["scoringStrategy"];
        assert_eq!(*strategy, json!({ "type": "MostAllocated", "resources": [{ "name": "cpu", "weight": 1 }] }));
        assert!(!profile.to_string().contains("VolumeBindingArgs"), "{profile}");
        assert_eq!(shown.get("enableContentionProfiling"), None);
        assert!(!shown.to_string().contains("c2VjcmV0"), "{shown}");
    }

    #[test]
    fn what_is_shown_can_be_given_again() {
        let shown = Configuration::default().shown();
        assert_eq!(Configuration::parse(shown.clone()).unwrap().shown(), shown);
    }
}
