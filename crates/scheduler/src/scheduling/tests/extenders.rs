//! Other processes that take part.

use super::*;

/// An extender that knows one good node.
struct Picky;

impl Extender for Picky {
    fn name(&self) -> &str {
        "picky"
    }

    fn is_interested(&self, pod: &PodInfo) -> bool {
        pod.labels().is_some()
    }

    fn is_ignorable(&self) -> bool {
        false
    }

    fn filters(&self) -> bool {
        true
    }

    fn prioritizes(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        false
    }

    fn filter(
        &self,
        _: &PodInfo,
        nodes: &[&crate::model::node::NodeInfo],
    ) -> Result<crate::framework::extender::Extended, ApiFailure> {
        let (good, bad): (Vec<_>, Vec<_>) = nodes.iter().map(|n| n.name().to_owned()).partition(|n| n != "bad");
        let unresolvable = bad.into_iter().map(|n| (n, "the extender says no".to_owned())).collect();
        Ok(crate::framework::extender::Extended { nodes: good, failed: Vec::new(), unresolvable })
    }

    fn prioritize(
        &self,
        _: &PodInfo,
        nodes: &[&crate::model::node::NodeInfo],
    ) -> Result<(Vec<(String, i64)>, i64), ApiFailure> {
        Ok((nodes.iter().map(|n| (n.name().to_owned(), if n.name() == "best" { 10 } else { 0 })).collect(), 5))
    }

    fn preempt(
        &self,
        _: &PodInfo,
        victims: crate::framework::extender::VictimsByNode,
    ) -> Result<crate::framework::extender::VictimsByNode, ApiFailure> {
        Ok(victims)
    }

    fn bind(&self, _: &Arc<PodInfo>, _: &str) -> Option<Work> {
        None
    }
}

#[test]
fn extenders_filter_and_score_the_pods_that_concern_them() {
    let clock = Fake::at(Timestamp::UNIX_EPOCH);
    let scheduler =
        Scheduler::new(&Configuration::default(), Registry::default(), vec![Arc::new(Picky)], clock.clone(), 1)
            .unwrap();
    let mut rig = Rig { scheduler, clock };
    for name in ["bad", "good", "best"] {
        rig.node(node(name).cpu("4").build());
    }
    rig.pod(pod("p").label("a", "b").build());
    assert_eq!(rig.run(), ["bind p to best"]);
    rig.pod(pod("q").label("a", "b").node_field("In", &["bad"]).build());
    assert!(rig.run()[0].starts_with(
        "FailedScheduling q: 0/3 nodes are available: 1 the extender says no, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    ));
    rig.pod(pod("r").node_field("In", &["bad"]).build());
    assert_eq!(rig.run(), ["bind r to bad"], "a pod that does not concern the extender");
}

#[test]
fn any_event_wakes_a_pod_that_an_extender_rejected() {
    let clock = Fake::at(Timestamp::UNIX_EPOCH);
    let extenders: Vec<Arc<dyn Extender>> = vec![Arc::new(Picky)];
    let scheduler =
        Scheduler::new(&Configuration::default(), Registry::default(), extenders, clock.clone(), 1).unwrap();
    let mut rig = Rig { scheduler, clock };
    rig.node(node("bad").cpu("4").build()).pod(pod("p").label("a", "b").build());
    assert!(rig.run()[0].contains("1 the extender says no"));
    rig.pod(pod("other").on("bad").build());
    assert!(rig.scheduler.has_work());
}
