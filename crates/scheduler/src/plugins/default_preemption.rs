//! DefaultPreemption: when no node has room, evict pods of lower priority from the node where that hurts least.
//!
//! Deciding happens here, on copies of nodes; evicting is an effect. Disruption budgets are respected where possible: a
//! node is judged first by how many budgets it would break. What evictions from a node would come to is remembered for
//! pods of the same needs ([`memory`]), as long as neither the node nor what is promised on it changes.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use parking_lot::Mutex;
use rand::Rng;

use crate::config::DefaultPreemptionArgs;
use crate::framework::extender::{Extender, VictimsByNode};
use crate::framework::{
    Action, ClusterEvent, Code, CycleState, Diagnosis, Hint, Interest, Plugin, Points, PostFilter, PostFilterOutcome,
    PostFilterResult, PreEnqueue, Rejection, Resource, Verdict,
};
use crate::model::cluster::Cluster;
use crate::model::node::{NodeIdx, NodeInfo};
use crate::model::pod::PodInfo;
use crate::scheduling::cycle::{Attempt, World, count, filter_with_nominated};
use crate::scheduling::preemption::Preempting;
use memory::{Memory, Outcome};
use rules::selectors::LabelSelector;

mod memory;

/// Makes room by evictions.
#[derive(Default)]
pub struct DefaultPreemption {
    args: DefaultPreemptionArgs,
    preempting: Arc<Preempting>,
    memory: Mutex<Memory>,
    scratch: Mutex<Scratch>,
}

/// Buffers that outlive an attempt.
#[derive(Default)]
struct Scratch {
    /// The nodes where evictions may help.
    potential: Vec<NodeIdx>,
    /// How often each reason was met.
    alike: Vec<usize>,
    diagnosis: Diagnosis,
}

impl DefaultPreemption {
    /// With these arguments; `preempting` says which evictions are under way.
    pub fn new(args: DefaultPreemptionArgs, preempting: Arc<Preempting>) -> Self {
        Self { args, preempting, memory: Mutex::default(), scratch: Mutex::default() }
    }

    fn candidates_wanted(&self, nodes: usize) -> usize {
        let share = nodes * self.args.min_candidate_nodes_percentage.max(0) as usize / 100;
        share.max(self.args.min_candidate_nodes_absolute.max(0) as usize).min(nodes)
    }
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        super::DEFAULT_PREEMPTION
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_enqueue, post_filter)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![Interest::new(Resource::AssignedPod, Action::DELETE)]
    }

    fn hint(&self, _: &PodInfo, _: &ClusterEvent, _: &Cluster) -> Hint {
        // The plugins that found no room judge the deletion; this one only keeps the gate while evictions go on.
        Hint::Skip
    }
}

impl PreEnqueue for DefaultPreemption {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection> {
        if self.preempting.is_running(pod.uid()) {
            return Err(Rejection::unresolvable("waiting for the preemption for this pod to be finished"));
        }
        Ok(())
    }

    fn opens_by_itself(&self) -> bool {
        // The scheduler is notified when evictions have ended, and tries the pod then.
        true
    }
}

/// The pods to evict from a node, most important first, and how much that hurts.
#[derive(Debug)]
struct Victims {
    pods: Vec<Arc<PodInfo>>,
    harm: Harm,
}

/// How much evictions hurt; less is better. Compared in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Harm {
    violations: i64,
    /// The highest priority among the victims.
    highest: i32,
    /// The sum of the priorities, shifted to be positive, so that more victims never make a smaller sum.
    sum: i64,
    count: usize,
    /// When the most important victim that started first started: the later the better.
    earliest: Reverse<i128>,
}

impl Victims {
    fn new(pods: Vec<Arc<PodInfo>>, violations: i64) -> Self {
        let highest = pods.iter().map(|v| v.priority).max().unwrap_or(i32::MIN);
        let most_important = pods.iter().filter(|v| v.priority == highest);
        let harm = Harm {
            violations,
            highest,
            sum: pods.iter().map(|v| i64::from(v.priority) + i64::from(i32::MAX) + 1).sum(),
            count: pods.len(),
            earliest: Reverse(most_important.map(|v| started(v)).min().unwrap_or(i128::MAX)),
        };
        Self { pods, harm }
    }
}

/// A node and whom to evict from it.
#[derive(Debug, Clone)]
struct Candidate {
    node: NodeIdx,
    victims: Arc<Victims>,
}

impl PostFilter for DefaultPreemption {
    fn post_filter(&self, attempt: &mut Attempt<'_>) -> PostFilterOutcome {
        let refuse = |message: &str, result| PostFilterOutcome {
            result,
            success: false,
            message: format!("preemption: {message}"),
        };
        if let Err(why) = is_eligible(attempt) {
            return refuse(why, None);
        }
        let best = match self.find_candidate(attempt) {
            Ok(best) => best,
            Err(NoCandidate::Unhelpful(why)) => {
                return refuse(
                    &why,
                    Some(PostFilterResult { nominate: String::new(), victims: Vec::new(), budget_violations: 0 }),
                );
            }
            Err(NoCandidate::Extender(why)) => return refuse(&why, None),
        };
        let node = attempt.world.cluster.node(best.node).name().to_owned();
        let message = format!(
            "preemption: found a potential placement for pod on node {node}, preempting {} victims",
            best.victims.pods.len()
        );
        PostFilterOutcome {
            result: Some(PostFilterResult {
                nominate: node,
                victims: best.victims.pods.clone(),
                budget_violations: best.victims.harm.violations.max(0) as u64,
            }),
            success: true,
            message,
        }
    }
}

/// Whether the pod may have others evicted at all.
fn is_eligible(attempt: &Attempt<'_>) -> Result<(), &'static str> {
    let pod = attempt.pod;
    if pod.never_preempts {
        return Err("not eligible due to preemptionPolicy=Never.");
    }
    let cluster = attempt.world.cluster;
    if let Some(node) = pod.nominated_node().and_then(|name| cluster.node_named(name))
        && attempt.diagnosis.code(node.idx()) != Code::Unresolvable
    {
        // Evictions for this pod are still going on there: more of them elsewhere would be too many.
        let leaving = |p: &&Arc<PodInfo>| p.priority < pod.priority && is_leaving_by_preemption(p);
        if node.pods().iter().find(leaving).is_some() {
            return Err("not eligible due to a terminating pod on the nominated node.");
        }
    }
    Ok(())
}

fn is_leaving_by_preemption(pod: &PodInfo) -> bool {
    pod.is_terminating()
        && pod
            .condition("DisruptionTarget")
            .is_some_and(|c| c.status == "True" && c.reason.as_deref() == Some("PreemptionByScheduler"))
}

/// Why there is nobody to evict.
enum NoCandidate {
    /// No evictions from any node would help.
    Unhelpful(String),
    /// An extender failed, or left none.
    Extender(String),
}

impl DefaultPreemption {
    /// The node where evictions hurt least, among as many as the arguments want. The first among equals.
    fn find_candidate(&self, attempt: &mut Attempt<'_>) -> Result<Candidate, NoCandidate> {
        let world = attempt.world;
        let mut memory = self.memory.lock();
        let mut scratch = self.scratch.lock();
        let Scratch { potential, alike, diagnosis } = &mut *scratch;
        potential.clear();
        alike.clear();
        diagnosis.clear();
        let nodes = attempt.diagnosis.nodes.iter();
        potential.extend(nodes.filter(|(_, code)| *code == Code::Unschedulable).map(|(idx, _)| *idx));
        let mut remembered = memory.of(attempt);
        let wanted = self.candidates_wanted(potential.len());
        let offset = if potential.is_empty() { 0 } else { attempt.rng.random_range(0..potential.len()) };
        let (front, back) = potential.split_at(offset);
        let asks = asked_extenders(attempt).next().is_some();
        let (mut all, mut best): (Vec<Candidate>, Option<(Harm, Candidate)>) = (Vec::new(), None);
        let (mut found, mut harmless) = (0, 0);
        for &node in back.iter().chain(front) {
            let outcome = remembered.outcome(node, |budgets| {
                select_victims(world, attempt.state, attempt.pod, world.cluster.node(node), budgets)
            });
            match outcome {
                Outcome::Helps(harm, victims) => {
                    found += 1;
                    harmless += usize::from(harm.violations == 0);
                    if asks {
                        all.push(Candidate { node, victims: victims.clone() });
                    } else if best.as_ref().is_none_or(|(least, _)| harm < least) {
                        best = Some((*harm, Candidate { node, victims: victims.clone() }));
                    }
                }
                &Outcome::Rejected(number) => {
                    diagnosis.nodes.push((node, remembered.rejection(number).code));
                    count(alike, number);
                }
            }
            if harmless > 0 && found >= wanted {
                break;
            }
        }
        if found == 0 {
            for (number, count) in alike.iter().enumerate().filter(|(_, count)| **count > 0) {
                diagnosis.reject_alike(remembered.rejection(number), *count);
            }
            diagnosis.exclude_rest(Rejection::unresolvable("Preemption is not helpful for scheduling"));
            return Err(NoCandidate::Unhelpful(diagnosis.message(world.cluster.order().len())));
        }
        if asks {
            // Those that break no budget come first, as extenders may keep the order.
            all.sort_by_key(|candidate| candidate.victims.harm.violations > 0);
            let narrowed = ask_extenders(attempt, all).map_err(NoCandidate::Extender)?;
            best = narrowed.into_iter().map(|c| (c.victims.harm, c)).min_by_key(|(harm, _)| *harm);
        }
        let none = || NoCandidate::Extender("no candidate node for preemption".to_owned());
        best.map(|(_, candidate)| candidate).ok_or_else(none)
    }
}

/// The fewest and least important pods whose eviction from a node lets the pod in.
fn select_victims(
    world: World<'_>,
    state: &CycleState,
    pod: &Arc<PodInfo>,
    node: &NodeInfo,
    budgets: &Budgets,
) -> Result<Victims, Rejection> {
    let mut potential: Vec<_> = node.pods().iter().filter(|p| p.priority < pod.priority).cloned().collect();
    if potential.is_empty() {
        return Err(Rejection::unresolvable("No preemption victims found for incoming pod"));
    }
    let mut what_if = WhatIf::new(world, state, pod, node);
    potential.iter().for_each(|victim| what_if.remove(victim));
    // If the pod does not fit without any of them, it does not fit.
    what_if.judge()?;
    potential.sort_by_key(|victim| importance(victim));
    let (violating, others) = budgets.split(potential);
    let mut victims = Vec::new();
    let mut violations = 0;
    let mixed = !violating.is_empty() && !others.is_empty();
    let judged = violating.into_iter().map(|v| (v, 1)).chain(others.into_iter().map(|v| (v, 0)));
    for (victim, violation) in judged {
        what_if.add(&victim);
        if what_if.judge().is_err() {
            what_if.remove(&victim);
            victims.push(victim);
            violations += violation;
        }
    }
    if mixed {
        victims.sort_by_key(|victim| importance(victim));
    }
    if victims.is_empty() {
        return Err(Rejection::error(format!("expected at least one victim pod on node {:?}", node.name())));
    }
    Ok(Victims::new(victims, violations))
}

/// A copy of a node, and of the states that follow its pods, to try things on.
struct WhatIf<'a> {
    world: World<'a>,
    pod: &'a Arc<PodInfo>,
    node: NodeInfo,
    state: &'a CycleState,
    followed: Option<CycleState>,
}

impl<'a> WhatIf<'a> {
    fn new(world: World<'a>, state: &'a CycleState, pod: &'a Arc<PodInfo>, node: &NodeInfo) -> Self {
        let followed = world.profile.follows_pods(state).then(|| state.clone());
        Self { world, pod, node: node.clone(), state, followed }
    }

    fn remove(&mut self, victim: &Arc<PodInfo>) {
        let generation = self.node.generation();
        self.node.remove_pod(victim.uid(), generation);
        if let Some(state) = &mut self.followed {
            self.world.profile.pod_removed(state, self.pod, victim, &self.node, self.world.cluster);
        }
    }

    fn add(&mut self, victim: &Arc<PodInfo>) {
        let generation = self.node.generation();
        self.node.add_pod(victim.clone(), generation);
        if let Some(state) = &mut self.followed {
            self.world.profile.pod_added(state, self.pod, victim, &self.node, self.world.cluster);
        }
    }

    fn judge(&self) -> Result<(), Rejection> {
        match filter_with_nominated(self.world, self.followed.as_ref().unwrap_or(self.state), self.pod, &self.node) {
            Verdict::Pass => Ok(()),
            Verdict::Reject(rejection) => Err(rejection),
        }
    }
}

/// Sorts the most important first: higher priority, then longer running. A pod that has not started counts as youngest.
fn importance(pod: &PodInfo) -> (Reverse<i32>, i128) {
    (Reverse(pod.priority), started(pod))
}

fn started(pod: &PodInfo) -> i128 {
    pod.started().map_or(i128::MAX, |t| t.as_nanosecond())
}

#[derive(Default)]
struct Budgets(Vec<(Arc<PodDisruptionBudget>, LabelSelector)>);

impl Budgets {
    fn of(cluster: &Cluster) -> Self {
        let parse = |budget: &Arc<PodDisruptionBudget>| {
            let selector = LabelSelector::parse(budget.spec.as_ref()?.selector.as_ref()).ok()?;
            (!selector.is_empty()).then(|| (budget.clone(), selector))
        };
        Self(cluster.objects.disruption_budgets.iter().filter_map(parse).collect())
    }

    /// Splits pods, most important first, into those whose eviction breaks a budget and the others.
    fn split(&self, pods: Vec<Arc<PodInfo>>) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
        let allowed = |b: &PodDisruptionBudget| b.status.as_ref().and_then(|s| s.disruptions_allowed).unwrap_or(0);
        let mut left: Vec<i32> = self.0.iter().map(|(budget, _)| allowed(budget)).collect();
        pods.into_iter().partition(|pod| {
            if pod.labels().is_none_or(|l| l.is_empty()) {
                return false;
            }
            for ((budget, selector), left) in self.0.iter().zip(&mut left) {
                if budget.metadata.namespace.as_deref() != Some(pod.namespace()) || !selector.matches(pod.labels()) {
                    continue;
                }
                let disrupted = budget.status.as_ref().and_then(|s| s.disrupted_pods.as_ref());
                if disrupted.is_some_and(|d| d.contains_key(pod.name())) {
                    continue;
                }
                *left -= 1;
                if *left < 0 {
                    return true;
                }
            }
            false
        })
    }
}

/// The extenders that have a say in evictions for this pod.
fn asked_extenders<'a>(attempt: &Attempt<'a>) -> impl Iterator<Item = &'a Arc<dyn Extender>> {
    let pod = attempt.pod;
    attempt.world.extenders.iter().filter(move |e| e.preempts() && e.is_interested(pod))
}

/// Lets extenders narrow the candidates.
fn ask_extenders(attempt: &Attempt<'_>, candidates: Vec<Candidate>) -> Result<Vec<Candidate>, String> {
    let cluster = attempt.world.cluster;
    let named = candidates.into_iter().map(|c| {
        let Victims { pods, harm } = &*c.victims;
        (cluster.node(c.node).name().to_owned(), pods.clone(), harm.violations)
    });
    let mut victims: VictimsByNode = named.collect();
    for extender in asked_extenders(attempt) {
        let mut narrowed = match extender.preempt(attempt.pod, victims.clone()) {
            Ok(narrowed) => narrowed,
            Err(error) if extender.is_ignorable() => {
                tracing::info!(extender = extender.name(), %error, "extender failed and is ignorable");
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        if let Some((node, ..)) =
            narrowed.iter().find(|(_, victims, _)| victims.is_empty()).filter(|_| !extender.is_ignorable())
        {
            return Err(format!("expected at least one victim pod on node {node:?}"));
        }
        narrowed.retain(|(_, victims, _)| !victims.is_empty());
        victims = narrowed;
        if victims.is_empty() {
            break;
        }
    }
    let candidate = |(name, victims, violations): (String, Vec<Arc<PodInfo>>, i64)| {
        let victims = Arc::new(Victims::new(victims, violations));
        cluster.node_named(&name).map(|node| Candidate { node: node.idx(), victims })
    };
    Ok(victims.into_iter().filter_map(candidate).collect())
}

#[cfg(test)]
mod tests;
