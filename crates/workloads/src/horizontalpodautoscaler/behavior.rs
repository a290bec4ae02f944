//! From what the metrics ask for to what is done: not down before it has been quiet for a while, not faster than allowed, not beyond the limits.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// Without a word about it, this much quiet before anything is taken away.
const DOWN_WINDOW: Duration = Duration::from_secs(5 * 60);

/// What happened before, by monotonic time.
#[derive(Debug, Default, Clone)]
pub(super) struct History {
    recommendations: Vec<(i32, Duration)>,
    ups: Vec<(i32, Duration)>,
    downs: Vec<(i32, Duration)>,
}

/// A reason and a message.
pub(super) type Why = (&'static str, &'static str);

/// The size that is set, and what the conditions say about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) replicas: i32,
    pub(super) able: Why,
    /// Whether a limit held it back, and why.
    pub(super) limited: (bool, Why),
}

/// What is there, what the metrics ask for, and the limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) current: i32,
    pub(super) desired: i32,
    pub(super) min: i32,
    pub(super) max: i32,
}

const READY: Why = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: Why = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: Why = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const WITHIN: Why = ("DesiredWithinRange", "the desired count is within the acceptable range");
const UP_LIMIT: Why = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: Why =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: Why = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: Why = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

impl History {
    /// The first size seen is the first recommendation, so that a start of the controller shrinks nothing.
    pub(super) fn begin(&mut self, current: i32, now: Duration) {
        if self.recommendations.is_empty() {
            self.recommendations.push((current, now));
        }
    }

    /// Decides, and remembers what was asked for.
    pub(super) fn decide(
        &mut self,
        demand: Demand,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        now: Duration,
    ) -> Decision {
        let (stable, because) = match behavior {
            None => (self.highest_since(demand.desired, now.saturating_sub(DOWN_WINDOW)), DOWN_STABILIZED),
            Some(behavior) => self.stabilize(demand, behavior, now),
        };
        let longest = behavior.map_or(DOWN_WINDOW, |behavior| up_window(behavior).max(down_window(behavior)));
        self.recommendations.retain(|(_, at)| now.saturating_sub(*at) <= longest);
        self.recommendations.push((demand.desired, now));
        let (replicas, why) = match behavior {
            None => within_rules(Demand { desired: stable, ..demand }),
            Some(behavior) => self.within_rates(Demand { desired: stable, ..demand }, behavior, now),
        };
        Decision {
            replicas,
            able: if stable == demand.desired { READY } else { because },
            limited: (replicas != stable, why),
        }
    }

    /// Remembers that the size was changed.
    pub(super) fn scaled(
        &mut self,
        from: i32,
        to: i32,
        behavior: Option<&HorizontalPodAutoscalerBehavior>,
        now: Duration,
    ) {
        let Some(behavior) = behavior else { return };
        let (events, rules) = if to > from { (&mut self.ups, up(behavior)) } else { (&mut self.downs, down(behavior)) };
        let longest = policies(&rules).iter().map(|policy| seconds(policy.period_seconds)).max().unwrap_or_default();
        events.retain(|(_, at)| now.saturating_sub(*at) <= longest);
        events.push(((to - from).abs(), now));
    }

    fn highest_since(&self, least: i32, cutoff: Duration) -> i32 {
        self.recommendations.iter().filter(|(_, at)| *at >= cutoff).map(|(count, _)| *count).fold(least, i32::max)
    }

    fn stabilize(&self, demand: Demand, behavior: &HorizontalPodAutoscalerBehavior, now: Duration) -> (i32, Why) {
        let (up_window, down_window) = (up_window(behavior), down_window(behavior));
        let recent = |window: Duration| {
            self.recommendations.iter().filter(move |(_, at)| now.saturating_sub(*at) < window).map(|(count, _)| *count)
        };
        let up = recent(up_window).fold(demand.desired, i32::min);
        let down = recent(down_window).fold(demand.desired, i32::max);
        // The lowest of the one window pushes up, the highest of the other pulls down; between them it stays.
        let stable = demand.current.max(up).min(down);
        (stable, if demand.desired >= demand.current { UP_STABILIZED } else { DOWN_STABILIZED })
    }

    fn within_rates(&self, demand: Demand, behavior: &HorizontalPodAutoscalerBehavior, now: Duration) -> (i32, Why) {
        if demand.desired > demand.current {
            let limit = self.limit(demand.current, &up(behavior), true, now).max(demand.current);
            let (most, why) = if demand.max > limit { (limit, UP_LIMIT) } else { (demand.max, TOO_MANY) };
            if demand.desired > most {
                return (most, why);
            }
        } else if demand.desired < demand.current {
            let limit = self.limit(demand.current, &down(behavior), false, now).min(demand.current);
            let (least, why) = if demand.min < limit { (limit, DOWN_LIMIT) } else { (demand.min, TOO_FEW) };
            if demand.desired < least {
                return (least, why);
            }
        }
        (demand.desired, WITHIN)
    }

    /// How far the policies of a direction let it go.
    fn limit(&self, current: i32, rules: &HPAScalingRules, up: bool, now: Duration) -> i32 {
        let select = rules.select_policy.as_deref().unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let changed = |events: &[(i32, Duration)], period: Duration| -> i32 {
            events.iter().filter(|(_, at)| now.saturating_sub(*at) < period).map(|(count, _)| count).sum()
        };
        let policies = policies(rules);
        let proposals = policies.iter().map(|policy| {
            let period = seconds(policy.period_seconds);
            let start = current - changed(&self.ups, period) + changed(&self.downs, period);
            let share = f64::from(policy.value) / 100.0;
            match (policy.type_.as_str(), up) {
                ("Pods", true) => start.saturating_add(policy.value),
                ("Pods", false) => start.saturating_sub(policy.value),
                (_, true) => (f64::from(start) * (1.0 + share)).ceil() as i32,
                (_, false) => (f64::from(start) * (1.0 - share)) as i32,
            }
        });
        // The largest change is the highest on the way up and the lowest on the way down.
        let highest = (select == "Min") != up;
        if highest { proposals.max().unwrap_or(i32::MIN) } else { proposals.min().unwrap_or(i32::MAX) }
    }
}

/// Without behavior: at most twice as many, or four.
fn within_rules(demand: Demand) -> (i32, Why) {
    let limit = (2 * demand.current).max(4);
    let (most, why) = if demand.max > limit { (limit, UP_LIMIT) } else { (demand.max, TOO_MANY) };
    if demand.desired < demand.min {
        (demand.min, TOO_FEW)
    } else if demand.desired > most {
        (most, why)
    } else {
        (demand.desired, WITHIN)
    }
}

fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

fn up_window(behavior: &HorizontalPodAutoscalerBehavior) -> Duration {
    seconds(up(behavior).stabilization_window_seconds.unwrap_or_default())
}

fn down_window(behavior: &HorizontalPodAutoscalerBehavior) -> Duration {
    down(behavior).stabilization_window_seconds.map_or(DOWN_WINDOW, seconds)
}

fn policies(rules: &HPAScalingRules) -> &[HPAScalingPolicy] {
    rules.policies.as_deref().unwrap_or_default()
}

fn policy(type_: &str, value: i32) -> HPAScalingPolicy {
    HPAScalingPolicy { type_: type_.to_owned(), value, period_seconds: 15 }
}

/// The rules on the way up: as given, or doubling, or four more.
fn up(behavior: &HorizontalPodAutoscalerBehavior) -> HPAScalingRules {
    let mut rules = behavior.scale_up.clone().unwrap_or_default();
    rules.policies.get_or_insert_with(|| vec![policy("Pods", 4), policy("Percent", 100)]);
    rules
}

/// The rules on the way down: as given, or anything.
fn down(behavior: &HorizontalPodAutoscalerBehavior) -> HPAScalingRules {
    let mut rules = behavior.scale_down.clone().unwrap_or_default();
    rules.policies.get_or_insert_with(|| vec![policy("Percent", 100)]);
    rules
}
