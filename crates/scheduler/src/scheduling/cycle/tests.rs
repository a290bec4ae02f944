use super::*;
use crate::config::Configuration;
use crate::config::registry::Registry;
use crate::testing::{node, pod};
use informer::clock::Fake;

#[test]
fn filtering_stops_at_enough_nodes_and_goes_on_from_there_whether_they_are_known_or_not() {
    let mut registry = Registry::default();
    let profiles = registry.profiles(&Configuration::default()).unwrap();
    let mut cluster = Cluster::new();
    for number in 0..200 {
        let builder = node(&format!("n{number}")).cpu("1");
        let builder = if number % 4 == 0 { builder.unschedulable() } else { builder };
        cluster.set_node(Arc::new(builder.build()));
    }
    let pod = pod("p").cpu("100m").info();
    cluster.prepare(&pod);
    let nominator = Nominator::default();
    let extender_id = registry.extender_id();
    let (profile, now) = (&profiles[0], Timestamp::UNIX_EPOCH);
    let world = World { cluster: &cluster, profile, nominator: &nominator, extenders: &[], extender_id, now };
    let mut algorithm = Algorithm::new(0, 1, Fake::at(Timestamp::UNIX_EPOCH));
    let starts: Vec<usize> = (0..6)
        .map(|_| {
            let placement = algorithm.schedule(world, &pod).unwrap();
            assert_eq!(placement.feasible, 100);
            assert_eq!(placement.evaluated, 100 + algorithm.diagnosis.nodes.len());
            algorithm.next_start
        })
        .collect();
    // Of four nodes three will do, so a hundred of them are found among 134, or 133 where the list begins with one.
    assert_eq!(starts, [134, 67, 0, 134, 67, 0]);
}

#[test]
fn the_share_of_nodes_considered_shrinks_as_the_cluster_grows() {
    for (percentage, all, expected) in
        [(0, 10, 10), (0, 100, 100), (0, 1000, 420), (0, 6000, 300), (40, 1000, 400), (100, 1000, 1000), (5, 1000, 100)]
    {
        assert_eq!(feasible_nodes_to_find(percentage, all), expected, "{percentage}% of {all}");
    }
}
