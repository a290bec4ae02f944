//! Spans for collectors: which are exported, whose children they are, and to whom they are handed.
//!
//! Nothing of this happens before somebody installs an exporter, and of spans of traces that are not sampled not much more than a comparison.
//! The spans of a request know it. Those of controllers, scheduler and kubelet know only their object; what was last written to an object by
//! a sampled request is remembered for a while ([`cause`]), and what is done about it then is told as that write's consequence. So one apply is one
//! trace, as far as one process sees it.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::context::{Context, Rate};
use crate::{Hop, Span, Stage, Uid};

/// Objects whose last sampled write is remembered.
const MOST_CAUSES: usize = 8192;
/// How long after its beginning a trace gets new consequences: loops that write must not go on with one trace for ever.
const CONSEQUENCES: Duration = Duration::from_secs(300);

/// Who sends spans: each has its own configuration, as each is a program of its own elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    ControlPlane,
    Kubelet,
}

/// OpenTelemetry's kinds of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Internal,
    /// It answers somebody's request.
    Server,
    /// It is a request to somebody else.
    Client,
}

/// What is said of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    Text(String),
    Number(i64),
}

/// A span that is over, as collectors are told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// `apiserver`, `kubelet`: the service that collectors show it under.
    pub service: &'static str,
    /// Its own place.
    pub context: Context,
    /// The span that it is within; 0 for none.
    pub parent: u64,
    /// A span of somebody who is not believed to be its parent.
    pub link: Option<Context>,
    pub name: Cow<'static, str>,
    pub kind: Kind,
    pub start: SystemTime,
    pub took: Duration,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub failed: bool,
}

/// Takes spans. It must not wait: it is called by whoever worked.
pub trait Exporter: Send + Sync {
    fn export(&self, span: Ended);
}

struct Installed {
    rate: Rate,
    exporter: Box<dyn Exporter>,
}

static CONTROL_PLANE: OnceLock<Installed> = OnceLock::new();
static KUBELET: OnceLock<Installed> = OnceLock::new();

fn installed(part: Part) -> Option<&'static Installed> {
    match part {
        Part::ControlPlane => CONTROL_PLANE.get(),
        Part::Kubelet => KUBELET.get(),
    }
}

/// Hands spans of a part to an exporter from now on. There is one for each part; says whether this is it.
pub fn install(part: Part, rate: Rate, exporter: Box<dyn Exporter>) -> bool {
    let place = if part == Part::ControlPlane { &CONTROL_PLANE } else { &KUBELET };
    place.set(Installed { rate, exporter }).is_ok()
}

/// Whether anybody wants spans of this part.
pub fn exports(part: Part) -> bool {
    installed(part).is_some()
}

/// Whether anybody wants any.
pub(crate) fn wanted() -> bool {
    CONTROL_PLANE.get().is_some() || KUBELET.get().is_some()
}

/// Hands a span to whoever takes those of this part.
pub fn export(part: Part, span: Ended) {
    if let Some(installed) = installed(part) {
        installed.exporter.export(span);
    }
}

/// Where a request stands that comes with this context and is believed to belong to it, or is only linked with it.
pub(crate) fn served(given: Option<Context>, believed: bool) -> (Context, u64, Option<Context>) {
    let rate = installed(Part::ControlPlane).map(|installed| installed.rate);
    match (given, rate) {
        // What nobody exports is passed on as it came.
        (given, None) => (given.unwrap_or_default(), 0, None),
        (Some(given), Some(_)) if believed => (given.child(), given.span, None),
        (link, Some(rate)) => (Context::root(rate), 0, link),
    }
}

/// What was last written to an object, and when its trace began.
#[derive(Clone, Copy)]
struct Cause {
    context: Context,
    /// Whether the trace begins with the object itself.
    is_root: bool,
    begun: Instant,
    /// Where the start of a pod stands, once a node has begun with it: what is written meanwhile, such as its status, leads to no other.
    start: Option<Placed>,
}

impl Cause {
    fn new(context: Context, is_root: bool, begun: Instant) -> Self {
        Self { context, is_root, begun, start: None }
    }

    /// The start of a pod, which several name before it is over.
    fn start(&self) -> Placed {
        let parent = if self.is_root { 0 } else { self.context.span };
        self.start.unwrap_or(Placed { own: self.context.known_child(), parent })
    }
}

#[derive(Default)]
struct Causes {
    by_uid: HashMap<Uid, Cause>,
    order: VecDeque<Uid>,
}

static CAUSES: LazyLock<Mutex<Causes>> = LazyLock::new(Mutex::default);

impl Causes {
    fn get(&self, uid: Uid) -> Option<Cause> {
        self.by_uid.get(&uid).filter(|cause| cause.begun.elapsed() < CONSEQUENCES).copied()
    }

    fn put(&mut self, uid: Uid, mut cause: Cause) {
        match self.by_uid.get_mut(&uid) {
            Some(known) => {
                if known.context.trace == cause.context.trace {
                    (cause.begun, cause.start) = (known.begun, known.start);
                }
                *known = cause;
            }
            None => {
                if self.order.len() == MOST_CAUSES
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.by_uid.remove(&oldest);
                }
                self.order.push_back(uid);
                self.by_uid.insert(uid, cause);
            }
        }
    }
}

/// Says that what happens to this object from now on is a consequence of this span.
pub(crate) fn cause(uid: Uid, context: Context, inherited: Uid) {
    if uid.is_none() || !context.sampled {
        return;
    }
    let mut causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = causes.get(inherited).filter(|owner| owner.context.trace == context.trace).map(|owner| owner.begun);
    causes.put(uid, Cause::new(context, false, begun.unwrap_or_else(Instant::now)));
}

/// The header of an answer with an object that names the span of its last sampled write: who does something about the object in another process
/// goes on with that trace.
pub const CAUSE: &str = "trireme-cause";

/// Whether a node has to find out what led to a pod: somebody wants to know, and nobody in this process does.
pub fn is_unexplained(uid: &str) -> bool {
    KUBELET.get().is_some() && CAUSES.lock().unwrap_or_else(PoisonError::into_inner).get(Uid::of(uid)).is_none()
}

/// Says that a node begins with a pod, and which span led to it, where another process knows that. If nobody traces what led to it, a trace begins,
/// or does not, as the sampler says.
pub fn began(uid: &str, cause: Option<Context>) {
    let Some(installed) = installed(Part::Kubelet) else { return };
    let uid = Uid::of(uid);
    let mut causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    if causes.get(uid).is_none() {
        let context = cause.unwrap_or_else(|| Context::root(installed.rate));
        if context.sampled {
            causes.put(uid, Cause::new(context, cause.is_none(), Instant::now()));
        }
    }
    if let Some(known) = causes.by_uid.get_mut(&uid) {
        known.start = Some(known.start());
    }
}

/// The span of an object's last sampled write; none where there is none.
pub fn cause_of(uid: &str) -> Context {
    if !wanted() {
        return Context::default();
    }
    let causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    causes.get(Uid::of(uid)).map(|cause| cause.context).unwrap_or_default()
}

/// Where a stage of the kubelet stands that is about a pod: within the pod's start.
pub(crate) fn within_pod(uid: Uid) -> Context {
    if KUBELET.get().is_none() {
        return Context::default();
    }
    let causes = CAUSES.lock().unwrap_or_else(PoisonError::into_inner);
    causes.get(uid).map(|cause| cause.start().own).unwrap_or_default()
}

/// A span that knows its place.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    /// Its own place; none if that is found by its object.
    pub(crate) own: Context,
    pub(crate) parent: u64,
}

/// Hands on a span of the ring, if its trace is sampled.
pub(crate) fn hand_on(span: &Span, placed: Placed) {
    let part = part_of(span.hop);
    let Some(installed) = installed(part) else { return };
    let Some(Placed { own, parent }) = place(span, placed).filter(|placed| placed.own.sampled) else { return };
    installed.exporter.export(Ended {
        service: service_of(span.hop),
        context: own,
        parent,
        link: None,
        name: name_of(span),
        kind: if span.stage.is_some_and(is_call) { Kind::Client } else { Kind::Internal },
        start: span.start,
        took: span.took,
        attributes: attributes_of(span),
        failed: false,
    });
}

fn place(span: &Span, placed: Placed) -> Option<Placed> {
    if !placed.own.is_none() {
        return Some(placed);
    }
    let cause = CAUSES.lock().unwrap_or_else(PoisonError::into_inner).get(span.uid)?;
    Some(match span.stage {
        Some(Stage::Pod) => cause.start(),
        _ if span.hop == Hop::Kubelet => {
            let pod = cause.start().own;
            Placed { own: pod.child(), parent: pod.span }
        }
        _ => Placed { own: cause.context.child(), parent: cause.context.span },
    })
}

fn part_of(hop: Hop) -> Part {
    match hop {
        Hop::Kubelet | Hop::Ready => Part::Kubelet,
        _ => Part::ControlPlane,
    }
}

fn service_of(hop: Hop) -> &'static str {
    match hop {
        Hop::Client => "kubectl",
        Hop::Controllers => "kube-controller-manager",
        Hop::Scheduler => "kube-scheduler",
        Hop::Kubelet | Hop::Ready => "kubelet",
        _ => "apiserver",
    }
}

/// Whether somebody else does the work.
const fn is_call(stage: Stage) -> bool {
    matches!(
        stage,
        Stage::MutatingWebhook
            | Stage::ValidatingWebhook
            | Stage::Sandbox
            | Stage::Pull
            | Stage::CreateContainer
            | Stage::StartContainer
            | Stage::Status
    )
}

/// Upstream's name where it has the span too.
fn name_of(span: &Span) -> Cow<'static, str> {
    match span.stage {
        Some(Stage::MutatingWebhook) => "Call mutating webhook".into(),
        Some(Stage::ValidatingWebhook) => "Call validating webhook".into(),
        Some(Stage::Pod) => "syncPod".into(),
        Some(stage) => stage.name().into(),
        None if span.hop == Hop::Controllers => format!("reconcile {}", span.by).into(),
        None => span.hop.name().into(),
    }
}

fn attributes_of(span: &Span) -> Vec<(&'static str, Attribute)> {
    let text = |text: &str| Attribute::Text(text.to_owned());
    let number = |number: u64| Attribute::Number(i64::try_from(number).unwrap_or(i64::MAX));
    let mut attributes = vec![("trireme.hop", number(span.hop.number().into())), ("verb", text(span.verb))];
    if !span.by.is_empty() {
        let name = match span.stage {
            Some(Stage::MutatingWebhook | Stage::ValidatingWebhook) => "webhook",
            Some(Stage::MutatingPolicy | Stage::ValidatingPolicy) => "policy",
            Some(_) => "k8s.container.name",
            None => "controller",
        };
        attributes.push((name, text(span.by)));
    }
    for (name, uid) in [("k8s.object.uid", span.uid), ("k8s.owner.uid", span.owner)] {
        if !uid.is_none() {
            attributes.push((name, Attribute::Text(uid.to_string())));
        }
    }
    if span.revision != 0 {
        attributes.push(("k8s.resource_version", number(span.revision)));
    }
    if let Some(unit) = span.unit().filter(|_| span.amount != 0) {
        attributes.push((unit, number(span.amount)));
    }
    let words = span.note.words();
    if !words.is_empty() {
        attributes.push(("decided", Attribute::Text(words)));
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause_at(trace: u128, begun: Instant) -> Cause {
        Cause::new(Context { trace, span: 7, sampled: true }, false, begun)
    }

    #[test]
    fn causes_are_bounded_and_a_trace_does_not_grow_older_by_writing() {
        let (mut causes, now) = (Causes::default(), Instant::now());
        let uid = |number: u64| Uid::from_halves(1, number + 1);
        let long_ago = now.checked_sub(CONSEQUENCES).expect("the machine has run for some minutes");
        causes.put(uid(0), cause_at(1, long_ago));
        assert!(causes.get(uid(0)).is_none(), "it is too old");
        causes.put(uid(0), cause_at(1, now));
        assert!(causes.get(uid(0)).is_none(), "the same trace is as old as it was");
        causes.put(uid(0), cause_at(2, now));
        assert_eq!(causes.get(uid(0)).map(|cause| cause.context.trace), Some(2));
        for number in 1..=MOST_CAUSES as u64 {
            causes.put(uid(number), cause_at(3, now));
        }
        assert_eq!((causes.by_uid.len(), causes.order.len()), (MOST_CAUSES, MOST_CAUSES));
        assert!(causes.get(uid(0)).is_none() && causes.get(uid(1)).is_some(), "the oldest goes");
    }

    #[test]
    fn without_an_exporter_a_context_is_passed_on_as_it_came() {
        let given = Context { trace: 5, span: 6, sampled: true };
        assert_eq!(served(Some(given), true), (given, 0, None));
        assert_eq!(served(Some(given), false), (given, 0, None));
        assert!(served(None, true).0.is_none());
        assert!(cause_of("0a").is_none());
    }
}
