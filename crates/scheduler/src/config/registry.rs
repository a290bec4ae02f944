//! From a configuration to profiles: which plugins there are, which are on by default, and how profiles change that.

use std::sync::Arc;

use crate::config::{
    BalancedAllocationArgs, ConfigError, Configuration, DefaultPreemptionArgs, InterPodAffinityArgs, NodeAffinityArgs,
    NodeResourcesFitArgs, PluginList, PluginRef, PodTopologySpreadArgs, ProfileConfig, ResourceSpec, VolumeBindingArgs,
    plugin_args,
};
use crate::framework::{At, Plugin, PluginId, Points, Profile, ProfileError, Weighted};
use crate::plugins;
use crate::plugins::resource_score::{ResourceScorer, ScoredResource, Strategy, default_resources};
use crate::scheduling::preemption::Preempting;

/// The default plugins in their order, with the weight of those that score.
const DEFAULTS: &[(&str, i64)] = &[
    (plugins::SCHEDULING_GATES, 0),
    (plugins::PRIORITY_SORT, 0),
    (plugins::NODE_NAME, 0),
    (plugins::NODE_UNSCHEDULABLE, 0),
    (plugins::TAINT_TOLERATION, 3),
    (plugins::NODE_AFFINITY, 2),
    (plugins::NODE_PORTS, 0),
    (plugins::NODE_RESOURCES_FIT, 1),
    (plugins::VOLUME_RESTRICTIONS, 0),
    (plugins::NODE_VOLUME_LIMITS, 0),
    (plugins::VOLUME_BINDING, 0),
    (plugins::VOLUME_ZONE, 0),
    (plugins::POD_TOPOLOGY_SPREAD, 2),
    (plugins::INTER_POD_AFFINITY, 2),
    (plugins::DYNAMIC_RESOURCES, 2),
    (plugins::DEFAULT_PREEMPTION, 0),
    (plugins::BALANCED_ALLOCATION, 1),
    (plugins::IMAGE_LOCALITY, 1),
    (plugins::DEFAULT_BINDER, 0),
    (plugins::NODE_DECLARED_FEATURES, 0),
];

/// The name under which extenders appear among plugins.
const EXTENDER: &str = "Extender";

/// Why no profiles can be built.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A plugin's arguments are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A profile's plugins are wrong.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Makes a plugin that is not one of the default ones.
pub type Factory = Box<dyn Fn(&ProfileConfig) -> Result<Arc<dyn Plugin>, ConfigError> + Send>;

/// The plugins that exist.
#[derive(Default)]
pub struct Registry {
    added: Vec<(&'static str, Factory)>,
    numbers: Vec<&'static str>,
    /// What the plugins share.
    pub shared: Shared,
}

/// State that plugins share with the scheduler.
#[derive(Default, Clone)]
pub struct Shared {
    /// Pods whose evictions are under way.
    pub preempting: Arc<Preempting>,
}

impl Registry {
    /// Adds a plugin from outside.
    pub fn add(&mut self, name: &'static str, factory: Factory) {
        self.added.push((name, factory));
    }

    /// The number of a plugin, given on first use.
    pub fn id(&mut self, name: &'static str) -> Option<PluginId> {
        let position = self.numbers.iter().position(|n| *n == name).unwrap_or_else(|| {
            self.numbers.push(name);
            self.numbers.len() - 1
        });
        (position < 64).then_some(PluginId(position as u8))
    }

    /// The names of the plugins, by number.
    pub fn names(&self) -> &[&'static str] {
        &self.numbers
    }

    /// The name of a plugin.
    pub fn name(&self, id: PluginId) -> &'static str {
        self.numbers.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// The number of extenders among plugins.
    pub fn extender_id(&mut self) -> PluginId {
        self.id(EXTENDER).unwrap_or(PluginId(63))
    }

    /// Builds all profiles of a configuration.
    pub fn profiles(&mut self, configuration: &Configuration) -> Result<Vec<Arc<Profile>>, RegistryError> {
        let managed = configuration.extenders.iter().flat_map(|e| &e.managed_resources);
        let ignored: Vec<String> = managed.filter(|r| r.ignored_by_scheduler).map(|r| r.name.clone()).collect();
        configuration.profiles.iter().map(|p| self.profile(p, &ignored).map(Arc::new)).collect()
    }

    fn make(
        &self,
        name: &str,
        config: &ProfileConfig,
        ignored: &[String],
    ) -> Result<Option<Arc<dyn Plugin>>, ConfigError> {
        if let Some((_, factory)) = self.added.iter().find(|(n, _)| *n == name) {
            return factory(config).map(Some);
        }
        Ok(Some(match name {
            plugins::SCHEDULING_GATES => Arc::new(plugins::scheduling_gates::SchedulingGates),
            plugins::PRIORITY_SORT => Arc::new(plugins::priority_sort::PrioritySort),
            plugins::NODE_NAME => Arc::new(plugins::node_name::NodeName),
            plugins::NODE_UNSCHEDULABLE => Arc::new(plugins::node_unschedulable::NodeUnschedulable::default()),
            plugins::TAINT_TOLERATION => Arc::new(plugins::taint_toleration::TaintToleration),
            plugins::NODE_AFFINITY => {
                let args: NodeAffinityArgs = plugin_args(config, name)?;
                Arc::new(plugins::node_affinity::NodeAffinity::new(args.added_affinity.as_ref()))
            }
            plugins::NODE_PORTS => Arc::new(plugins::node_ports::NodePorts),
            plugins::NODE_RESOURCES_FIT => Arc::new(fit(config, ignored)?),
            plugins::VOLUME_RESTRICTIONS => Arc::new(plugins::volume_restrictions::VolumeRestrictions),
            plugins::NODE_VOLUME_LIMITS => Arc::new(plugins::node_volume_limits::NodeVolumeLimits),
            plugins::VOLUME_BINDING => {
                let args: VolumeBindingArgs = plugin_args(config, name)?;
                Arc::new(plugins::volume_binding::VolumeBinding::new(&args))
            }
            plugins::VOLUME_ZONE => Arc::new(plugins::volume_zone::VolumeZone),
            plugins::POD_TOPOLOGY_SPREAD => Arc::new(spread(config)?),
            plugins::INTER_POD_AFFINITY => {
                let args: InterPodAffinityArgs = plugin_args(config, name)?;
                if !(0..=100).contains(&args.hard_pod_affinity_weight) {
                    return Err(invalid("hardPodAffinityWeight", "not in valid range [0-100]"));
                }
                Arc::new(plugins::inter_pod_affinity::InterPodAffinity::new(args))
            }
            plugins::DEFAULT_PREEMPTION => {
                let args: DefaultPreemptionArgs = plugin_args(config, name)?;
                if !(0..=100).contains(&args.min_candidate_nodes_percentage) {
                    return Err(invalid("minCandidateNodesPercentage", "not in valid range [0, 100]"));
                }
                if args.min_candidate_nodes_absolute < 0 {
                    return Err(invalid("minCandidateNodesAbsolute", "not in valid range [0, inf)"));
                }
                Arc::new(plugins::default_preemption::DefaultPreemption::new(args, self.shared.preempting.clone()))
            }
            plugins::BALANCED_ALLOCATION => {
                let args: BalancedAllocationArgs = plugin_args(config, name)?;
                Arc::new(plugins::balanced_allocation::BalancedAllocation::new(resources(&args.resources)))
            }
            plugins::DYNAMIC_RESOURCES => Arc::new(plugins::dynamic_resources::DynamicResources),
            plugins::IMAGE_LOCALITY => Arc::new(plugins::image_locality::ImageLocality),
            plugins::DEFAULT_BINDER => Arc::new(plugins::default_binder::DefaultBinder),
            plugins::NODE_DECLARED_FEATURES => Arc::new(plugins::node_declared_features::NodeDeclaredFeatures),
            _ => return Ok(None),
        }))
    }

    fn profile(&mut self, config: &ProfileConfig, ignored: &[String]) -> Result<Profile, RegistryError> {
        let name = config.name().to_owned();
        let lists = &config.plugins;
        let multi_point = multi_point(&lists.multi_point);
        let all_lists = [
            &lists.pre_enqueue,
            &lists.queue_sort,
            &lists.pre_filter,
            &lists.filter,
            &lists.post_filter,
            &lists.pre_score,
            &lists.score,
            &lists.reserve,
            &lists.permit,
            &lists.pre_bind,
            &lists.bind,
            &lists.post_bind,
        ];
        let mut instances: Vec<(PluginId, Arc<dyn Plugin>)> = Vec::new();
        let wanted = multi_point.iter().chain(all_lists.iter().flat_map(|l| &l.enabled));
        for plugin in wanted {
            if instances.iter().any(|(_, p)| p.name() == plugin.name) {
                continue;
            }
            let unknown = || ProfileError::UnknownPlugin { profile: name.clone(), plugin: plugin.name.clone() };
            let instance = self.make(&plugin.name, config, ignored)?.ok_or_else(unknown)?;
            let id = self.id(instance.name()).ok_or_else(|| ProfileError::TooManyPlugins(name.clone()))?;
            instances.push((id, instance));
        }
        let expand = |list: &PluginList| expand(list, &multi_point);
        macro_rules! at {
            ($point:ident) => {
                expand(&lists.$point)
                    .into_iter()
                    .filter_map(|wanted| {
                        let (id, plugin) = instances.iter().find(|(_, p)| p.name() == wanted.name)?;
                        let Points { $point: offered, .. } = plugin.clone().points();
                        Some(At { id: *id, name: plugin.name(), plugin: offered? })
                    })
                    .collect::<Vec<_>>()
            };
        }
        let mut queue_sort = at!(queue_sort);
        let (Some(sort), true) = (queue_sort.pop(), queue_sort.is_empty()) else {
            return Err(ProfileError::QueueSort(name).into());
        };
        let bind = at!(bind);
        if bind.is_empty() {
            return Err(ProfileError::NoBind(name).into());
        }
        let score = expand(&lists.score)
            .into_iter()
            .filter_map(|wanted| {
                let (id, plugin) = instances.iter().find(|(_, p)| p.name() == wanted.name)?;
                let scoring = plugin.clone().points().score?;
                Some(Weighted { id: *id, name: plugin.name(), weight: wanted.weight.max(1), plugin: scoring })
            })
            .collect();
        Ok(Profile {
            percentage_of_nodes_to_score: config.percentage_of_nodes_to_score,
            queue_sort: sort.plugin,
            interests: instances.iter().map(|(id, p)| (*id, p.interests(), p.clone())).collect(),
            pre_enqueue: at!(pre_enqueue),
            pre_filter: at!(pre_filter),
            filter: at!(filter),
            post_filter: at!(post_filter),
            pre_score: at!(pre_score),
            score,
            reserve: at!(reserve),
            permit: at!(permit),
            pre_bind: at!(pre_bind),
            bind,
            post_bind: at!(post_bind),
            name,
        })
    }
}

/// The names of the default plugins.
pub(crate) fn default_names() -> impl Iterator<Item = &'static str> {
    DEFAULTS.iter().map(|(name, _)| *name)
}

/// The default plugins, changed by the profile's own list.
pub(crate) fn multi_point(list: &PluginList) -> Vec<PluginRef> {
    let mut result: Vec<PluginRef> = Vec::new();
    let given = |name: &str| list.enabled.iter().find(|p| p.name == name);
    for (name, weight) in DEFAULTS {
        if list.disables(name) {
            continue;
        }
        // A default plugin given again keeps its place and takes the new weight.
        let weight = given(name).map(|p| p.weight).filter(|w| *w != 0).unwrap_or(*weight);
        result.push(PluginRef { name: (*name).into(), weight });
    }
    for plugin in &list.enabled {
        if !result.iter().any(|p| p.name == plugin.name) {
            result.push(plugin.clone());
        }
    }
    result
}

/// The plugins of one extension point: those that override, then the general ones, then the additional ones.
fn expand(list: &PluginList, multi_point: &[PluginRef]) -> Vec<PluginRef> {
    let is_general = |name: &str| multi_point.iter().any(|p| p.name == name) && !list.disables(name);
    let is_listed = |name: &str| list.enabled.iter().any(|p| p.name == name);
    let overriding = list.enabled.iter().filter(|p| is_general(&p.name));
    let general = multi_point.iter().filter(|p| is_general(&p.name) && !is_listed(&p.name));
    let additional = list.enabled.iter().filter(|p| !is_general(&p.name));
    overriding.chain(general).chain(additional).cloned().collect()
}

fn resources(specs: &[ResourceSpec]) -> Vec<ScoredResource> {
    if specs.is_empty() {
        return default_resources();
    }
    specs
        .iter()
        .map(|r| ScoredResource { name: r.name.clone(), weight: if r.weight == 0 { 1 } else { r.weight } })
        .collect()
}

fn invalid(field: &str, message: &str) -> ConfigError {
    ConfigError::Invalid { field: field.into(), message: message.into() }
}

fn spread(config: &ProfileConfig) -> Result<plugins::pod_topology_spread::PodTopologySpread, ConfigError> {
    let args: PodTopologySpreadArgs = plugin_args(config, plugins::POD_TOPOLOGY_SPREAD)?;
    match args.defaulting_type.as_str() {
        "" | "System" if args.default_constraints.is_empty() => {
            Ok(plugins::pod_topology_spread::PodTopologySpread::default())
        }
        "" | "System" => Err(invalid("defaultingType", "when .defaultConstraints are not empty")),
        "List" => Ok(plugins::pod_topology_spread::PodTopologySpread::with_defaults(&args.default_constraints)),
        other => Err(invalid("defaultingType", &format!("Unsupported value: {other:?}"))),
    }
}

fn fit(
    config: &ProfileConfig,
    ignored: &[String],
) -> Result<plugins::node_resources_fit::NodeResourcesFit, ConfigError> {
    let args: NodeResourcesFitArgs = plugin_args(config, plugins::NODE_RESOURCES_FIT)?;
    let scoring = args.scoring_strategy.unwrap_or_default();
    let strategy = match scoring.kind.as_str() {
        "" | "LeastAllocated" => Strategy::Least,
        "MostAllocated" => Strategy::Most,
        "RequestedToCapacityRatio" => {
            let shape = scoring.requested_to_capacity_ratio.unwrap_or_default().shape;
            // Configured out of 10, computed out of 100.
            Strategy::Ratio(shape.iter().map(|p| (p.utilization, p.score * 10)).collect())
        }
        other => return Err(invalid("scoringStrategy.type", &format!("scoring strategy {other} is not supported"))),
    };
    let ignored = args.ignored_resources.into_iter().chain(ignored.iter().cloned()).collect();
    let scorer = ResourceScorer::new(strategy, resources(&scoring.resources));
    Ok(plugins::node_resources_fit::NodeResourcesFit::new(ignored, args.ignored_resource_groups, scorer))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn profile(plugins: serde_json::Value, config: serde_json::Value) -> Result<Arc<Profile>, String> {
        let text = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{ "plugins": plugins, "pluginConfig": config }],
        });
        let configuration = Configuration::parse(text).map_err(|e| e.to_string())?;
        Registry::default().profiles(&configuration).map(|mut p| p.remove(0)).map_err(|e| e.to_string())
    }

    fn filters(profile: &Profile) -> Vec<&'static str> {
        profile.filter.iter().map(|at| at.name).collect()
    }

    fn weights(profile: &Profile) -> Vec<(&'static str, i64)> {
        profile.score.iter().map(|at| (at.name, at.weight)).collect()
    }

    #[test]
    fn the_default_profile_is_upstreams() {
        let profile = profile(json!({}), json!([])).unwrap();
        assert_eq!(
            filters(&profile),
            [
                "NodeName",
                "NodeUnschedulable",
                "TaintToleration",
                "NodeAffinity",
                "NodePorts",
                "NodeResourcesFit",
                "VolumeRestrictions",
                "NodeVolumeLimits",
                "VolumeBinding",
                "VolumeZone",
                "PodTopologySpread",
                "InterPodAffinity",
                "NodeDeclaredFeatures",
            ]
        );
        assert_eq!(
            weights(&profile),
            [
                ("TaintToleration", 3),
                ("NodeAffinity", 2),
                ("NodeResourcesFit", 1),
                ("VolumeBinding", 1),
                ("PodTopologySpread", 2),
                ("InterPodAffinity", 2),
                ("NodeResourcesBalancedAllocation", 1),
                ("ImageLocality", 1),
            ]
        );
    }

    #[test]
    fn plugins_are_switched_off_everywhere_or_at_one_point() {
        let off = |list: &str| json!({ list: { "disabled": [{ "name": "NodeResourcesFit" }] } });
        let everywhere = profile(off("multiPoint"), json!([])).unwrap();
        assert!(!filters(&everywhere).contains(&"NodeResourcesFit"));
        assert!(!weights(&everywhere).iter().any(|(name, _)| *name == "NodeResourcesFit"));
        let scoring_only = profile(off("score"), json!([])).unwrap();
        assert!(filters(&scoring_only).contains(&"NodeResourcesFit"));
        assert!(!weights(&scoring_only).iter().any(|(name, _)| *name == "NodeResourcesFit"));
        let only_one = json!({ "score": { "disabled": [{ "name": "*" }], "enabled": [{ "name": "ImageLocality", "weight": 7 }] } });
        assert_eq!(weights(&profile(only_one, json!([])).unwrap()), [("ImageLocality", 7)]);
    }

    #[test]
    fn weights_are_overridden_and_what_is_given_at_a_point_goes_first() {
        let general = json!({ "multiPoint": { "enabled": [{ "name": "NodeAffinity", "weight": 9 }] } });
        assert!(weights(&profile(general, json!([])).unwrap()).contains(&("NodeAffinity", 9)));
        let at_point = json!({ "score": { "enabled": [{ "name": "ImageLocality", "weight": 5 }] } });
        assert_eq!(weights(&profile(at_point, json!([])).unwrap())[0], ("ImageLocality", 5));
    }

    #[test]
    fn arguments_are_read_and_checked() {
        let with_args =
            |name: &str, args: serde_json::Value| profile(json!({}), json!([{ "name": name, "args": args }]));
        let typed = json!({ "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs",
            "scoringStrategy": { "type": "MostAllocated", "resources": [{ "name": "cpu", "weight": 2 }] } });
        assert!(with_args("NodeResourcesFit", typed).is_ok());
        for (name, args, part) in [
            ("NodeResourcesFit", json!({ "scoringStrategy": { "type": "Nonsense" } }), "Nonsense is not supported"),
            ("InterPodAffinity", json!({ "hardPodAffinityWeight": 101 }), "hardPodAffinityWeight"),
            ("DefaultPreemption", json!({ "minCandidateNodesPercentage": -1 }), "minCandidateNodesPercentage"),
            ("PodTopologySpread", json!({ "defaultingType": "Sometimes" }), "Unsupported value"),
            ("NodeAffinity", json!({ "unknown": 1 }), "unknown field"),
        ] {
            let error = with_args(name, args).err().expect("wrong arguments are refused");
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[test]
    fn profiles_need_an_order_and_a_binder_and_know_their_plugins() {
        for (plugins, part) in [
            (json!({ "multiPoint": { "disabled": [{ "name": "PrioritySort" }] } }), "queue sort"),
            (json!({ "multiPoint": { "disabled": [{ "name": "DefaultBinder" }] } }), "bind plugin"),
            (json!({ "filter": { "enabled": [{ "name": "NoSuchPlugin" }] } }), "does not exist"),
        ] {
            let error = profile(plugins, json!([])).err().expect("it is refused");
            assert!(error.contains(part), "{error}");
        }
    }
}
