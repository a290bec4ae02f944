//! One harness for the tables of all plugins: a cluster, a pod, and what a profile of one plugin makes of them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::framework::{CycleState, Plugin, PreFilterOutcome, Verdict};
use crate::model::cluster::Cluster;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;

/// A cluster of these nodes and placed pods.
pub fn cluster(nodes: impl IntoIterator<Item = Node>, pods: impl IntoIterator<Item = Pod>) -> Cluster {
    let mut cluster = Cluster::new();
    for key in ["kubernetes.io/hostname", "topology.kubernetes.io/zone"] {
        cluster.track(key);
    }
    for node in nodes {
        cluster.set_node(Arc::new(node));
    }
    for pod in pods {
        cluster.set_pod(Arc::new(PodInfo::new(Arc::new(pod))));
    }
    cluster
}

pub fn with(mut cluster: Cluster, objects: impl IntoIterator<Item = Object>) -> Cluster {
    for object in objects {
        cluster.objects.apply(&object, true);
    }
    cluster
}

/// What a plugin's filter says of each node, by name: empty for passing.
pub fn filter(plugin: impl Plugin, mut cluster: Cluster, pod: Pod) -> Vec<(String, String)> {
    let points = Arc::new(plugin).points();
    let pod = PodInfo::new(Arc::new(pod));
    cluster.prepare(&pod);
    let mut state = CycleState::default();
    let names: Vec<_> = cluster.order().iter().map(|idx| cluster.node(*idx).name().to_owned()).collect();
    let everywhere = |text: String| names.iter().map(|n| (n.clone(), text.clone())).collect();
    match points.pre_filter.map(|p| p.pre_filter(&mut state, &pod, &cluster)) {
        Some(Ok(PreFilterOutcome::Skip)) => return everywhere(String::new()),
        Some(Err(rejection)) => return everywhere(rejection.message()),
        _ => {}
    }
    let filter = points.filter.expect("a filter is tested");
    cluster
        .list(cluster.order())
        .iter()
        .map(|node| match filter.filter(&state, &pod, node, &cluster) {
            Verdict::Pass => (node.name().to_owned(), String::new()),
            Verdict::Reject(rejection) => (node.name().to_owned(), rejection.message()),
        })
        .collect()
}

/// The names of the nodes that a plugin's filter lets pass.
pub fn passing(plugin: impl Plugin, cluster: Cluster, pod: Pod) -> Vec<String> {
    filter(plugin, cluster, pod).into_iter().filter(|(_, why)| why.is_empty()).map(|(name, _)| name).collect()
}

/// The normalized scores of all nodes by name; `None` when the plugin sees no difference between them.
pub fn scores(plugin: impl Plugin, mut cluster: Cluster, pod: Pod) -> Option<Vec<(String, i64)>> {
    let points = Arc::new(plugin).points();
    let pod = PodInfo::new(Arc::new(pod));
    cluster.prepare(&pod);
    let mut state = CycleState::default();
    let nodes = cluster.list(cluster.order());
    if points.pre_score.is_some_and(|p| !p.pre_score(&mut state, &pod, &cluster, nodes)) {
        return None;
    }
    let score = points.score.expect("a score is tested");
    let mut scores = vec![0; nodes.len()];
    score.score_all(&state, &pod, nodes, &mut scores);
    score.normalize(&state, &mut scores);
    Some(nodes.iter().zip(scores).map(|(node, score)| (node.name().to_owned(), score)).collect())
}
