//! May they now? API priority and fairness: every request belongs to a flow of a priority level, takes seats there, and
//! waits its turn when there are none, so that one greedy client does not slow the others.
//!
//! [`schema`] finds the level, [`width`] the number of seats, [`seats`] has the arithmetic. Here is what joins them: FlowSchemas
//! and PriorityLevelConfigurations are read from the watch cache whenever one of them has changed, and a request that waits
//! is a task on a ticket. A request that does not wait costs a few comparisons and one short lock.

mod report;
mod schema;
mod seats;
mod width;

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use machinery::query::Query;
use machinery::rest::{Response, User};
use machinery::{Value, value};
use parking_lot::{Mutex, RwLock};
use rules::flow_control as bootstrap;
use rustc_hash::FxBuildHasher;
use storage::Lookup;
use storage::cache::{Cache, News, Place};
use tokio::sync::oneshot;

use super::RequestInfo;
use report::Stats;
use schema::Schema;
use seats::{Arrival, Limits, Queuing, Refusal, Seats, Spot};

/// How long a request waits for a seat before it is sent away: a quarter of what it may take in all.
const PATIENCE: Duration = Duration::from_secs(15);
/// The part of a level's share that one request may take.
const WIDEST: f64 = 0.15;

/// How many requests may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// `--max-requests-inflight`.
    pub reads: u32,
    /// `--max-mutating-requests-inflight`.
    pub writes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { reads: 400, writes: 200 }
    }
}

type Ticket = oneshot::Sender<()>;

pub struct FlowControl {
    total: u32,
    schemas: Arc<Cache>,
    levels: Arc<Cache>,
    current: RwLock<Current>,
    seats: Arc<Mutex<Seats<Ticket>>>,
}

/// What the objects say, and as of when.
#[derive(Default)]
struct Current {
    classes: Arc<Vec<Class>>,
    schemas: Place,
    levels: Place,
}

/// A flow schema with its level.
struct Class {
    schema: Schema,
    slot: usize,
    /// The most seats that one request may take.
    widest: u32,
    headers: (HeaderValue, HeaderValue),
    stats: Arc<Stats>,
}

/// A request's seats; given back when dropped.
pub struct Seat {
    seats: Arc<Mutex<Seats<Ticket>>>,
    spot: Spot,
    since: Instant,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.seats.lock();
        seats.leave(self.spot, self.since.elapsed().as_secs_f64());
        notify(&mut seats);
    }
}

/// Tells those who can be seated now.
fn notify(seats: &mut Seats<Ticket>) {
    if seats.waiting() == 0 {
        return;
    }
    for ticket in seats.dispatch() {
        // Whoever went away in this very moment gives the seat back when it notices.
        let _ = ticket.send(());
    }
}

/// A request that waits; one that goes away leaves its queue, or the seat that it was given meanwhile.
struct Waiter<'a> {
    seats: &'a Arc<Mutex<Seats<Ticket>>>,
    spot: Spot,
    id: u64,
    seated: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.seated {
            return;
        }
        let mut seats = self.seats.lock();
        if !seats.give_up(self.spot, self.id) {
            seats.leave(self.spot, 0.0);
        }
        notify(&mut seats);
    }
}

impl FlowControl {
    /// On the caches of the two kinds; nothing where they are not served.
    pub fn new(settings: Settings, lookup: &dyn Lookup) -> Option<Self> {
        let total = settings.reads + settings.writes;
        Some(Self {
            total,
            schemas: lookup.objects(bootstrap::GROUP, "flowschemas")?,
            levels: lookup.objects(bootstrap::GROUP, "prioritylevelconfigurations")?,
            current: RwLock::default(),
            seats: Arc::new(Mutex::new(Seats::new(total))),
        })
    }

    /// Waits for the seats of a request. Requests that stay open for as long as the client likes take none; of a watch,
    /// its beginning does.
    pub async fn enter(
        &self,
        info: &RequestInfo,
        query: &Query,
        user: &User,
        objects: impl FnOnce() -> Option<usize>,
    ) -> Entered {
        if info.is_long_running() && info.verb != "watch" {
            return Entered { flow: None, seat: Ok(None) };
        }
        let classes = self.classes();
        // The catch-all is there even while nobody has stored it, and takes everybody.
        let Some(class) = classes.iter().find(|class| class.schema.matches(user, info)) else {
            return Entered { flow: None, seat: Ok(None) };
        };
        Entered { flow: Some(class.headers.clone()), seat: self.seat(class, info, query, user, objects).await }
    }

    /// Waits for the seats of a request of a class.
    async fn seat(
        &self,
        class: &Class,
        info: &RequestInfo,
        query: &Query,
        user: &User,
        objects: impl FnOnce() -> Option<usize>,
    ) -> Result<Option<Seat>, Busy> {
        let width = width::width(info, query, class.widest, objects);
        let flow = hash(&class.schema.name, class.schema.flow(user, info));
        let mut receiver = None;
        let arrival = self.seats.lock().arrive(class.slot, flow, width, || {
            let (ticket, outcome) = oneshot::channel();
            receiver = Some(outcome);
            ticket
        });
        let seat = |spot| Some(Seat { seats: self.seats.clone(), spot, since: Instant::now() });
        let (spot, id) = match arrival {
            Arrival::Seated(spot) => {
                class.stats.dispatched(Duration::ZERO);
                return Ok(seat(spot));
            }
            Arrival::Refused(why) => return Err(refuse(class, why, Duration::ZERO)),
            Arrival::Waits(spot, id) => (spot, id),
        };
        let mut waiter = Waiter { seats: &self.seats, spot, id, seated: false };
        let since = Instant::now();
        let outcome = receiver.expect("whoever waits has a ticket");
        match tokio::time::timeout(PATIENCE, outcome).await {
            Ok(Ok(())) => {
                waiter.seated = true;
                class.stats.dispatched(since.elapsed());
                Ok(seat(spot))
            }
            _ => Err(refuse(class, Refusal::TimeOut, since.elapsed())),
        }
    }

    /// The classes in order, as of now.
    fn classes(&self) -> Arc<Vec<Class>> {
        {
            let current = self.current.read();
            if !current.schemas.is_behind(&self.schemas) && !current.levels.is_behind(&self.levels) {
                return current.classes.clone();
            }
        }
        let mut current = self.current.write();
        let mut schemas = everything(&self.schemas, &mut current.schemas);
        let mut levels = everything(&self.levels, &mut current.levels);
        bootstrap::add_mandatory(&mut schemas, bootstrap::flow_schemas());
        bootstrap::add_mandatory(&mut levels, bootstrap::priority_levels());
        current.classes = Arc::new(self.classify(&schemas, &levels, &current.classes));
        current.classes.clone()
    }

    fn classify(&self, schemas: &[Value], levels: &[Value], before: &[Class]) -> Vec<Class> {
        let limits = limits(self.total, levels);
        let named: Vec<(Arc<str>, Limits)> = limits.iter().map(|(name, limits)| ((*name).into(), *limits)).collect();
        let slots = self.seats.lock().configure(&named);
        let by_name: HashMap<&str, usize> = limits.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
        let uid = |name: &str| levels.iter().find(|level| value::text(level, "metadata.name") == name);
        let header = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""));
        let mut classes: Vec<Class> = schemas
            .iter()
            .map(Schema::read)
            // A schema whose level is not there counts for nothing.
            .filter_map(|schema| {
                let at = *by_name.get(schema.level.as_str())?;
                let level_uid = uid(&schema.level).map_or("", |level| value::text(level, "metadata.uid"));
                let headers = (header(&schema.uid), header(level_uid));
                let known =
                    before.iter().find(|class| class.schema.name == schema.name && class.schema.level == schema.level);
                let stats = known
                    .map_or_else(|| Arc::new(Stats::new(&schema.name, &schema.level)), |class| class.stats.clone());
                let widest = (f64::from(limits[at].1.nominal) * WIDEST).ceil() as u32;
                Some(Class { slot: slots[at], widest, headers, stats, schema })
            })
            .collect();
        classes.sort_by(|one, other| {
            (one.schema.precedence, &one.schema.name).cmp(&(other.schema.precedence, &other.schema.name))
        });
        classes
    }
}

/// What came of asking for seats.
pub struct Entered {
    /// The uids of the flow schema and of the priority level of the request.
    pub flow: Option<(HeaderValue, HeaderValue)>,
    /// Its seats, if it takes any.
    pub seat: Result<Option<Seat>, Busy>,
}

/// There was no seat, and there will be none soon.
#[derive(Debug)]
pub struct Busy;

impl Busy {
    /// The answer: not a `Status` but a line of text, as clients know it from upstream.
    pub fn response(&self) -> Response {
        let text = "Too many requests, please try again later.\n";
        let mut response = super::answer::text(StatusCode::TOO_MANY_REQUESTS, text.to_owned());
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

fn refuse(class: &Class, why: Refusal, waited: Duration) -> Busy {
    class.stats.rejected(why, waited);
    Busy
}

/// Every object of a cache, and the place moves on.
fn everything(cache: &Cache, place: &mut Place) -> Vec<Value> {
    // What the place has seen does not matter: the few objects are read anew.
    *place = Place::default();
    match place.advance(cache) {
        Some(News::Everything(objects)) => objects.iter().map(|object| object.to_value()).collect(),
        Some(News::Changes(changes)) => {
            changes.iter().filter_map(|change| Some(change.new.as_ref()?.to_value())).collect()
        }
        None => Vec::new(),
    }
}

/// What each level may use of `total` seats, in upstream's proportions.
fn limits(total: u32, levels: &[Value]) -> Vec<(&str, Limits)> {
    let part = |level: &Value| {
        let exempt = value::text(level, "spec.type") == "Exempt";
        let side = if exempt { "exempt" } else { "limited" };
        let number = |field: &str| value::int(level, &format!("spec.{side}.{field}"));
        let shares = number("nominalConcurrencyShares").unwrap_or(if exempt { 0 } else { 30 });
        (exempt, shares.max(0), number("lendablePercent").unwrap_or(0).clamp(0, 100), number("borrowingLimitPercent"))
    };
    let sum: i64 = levels.iter().map(|level| part(level).1).sum();
    levels
        .iter()
        .map(|level| {
            let (exempt, shares, lendable, borrowing) = part(level);
            let of = |number: f64| number.clamp(0.0, f64::from(u32::MAX)) as u32;
            let nominal = of((f64::from(total) * shares as f64 / sum.max(1) as f64).ceil());
            let min = nominal - of((f64::from(nominal) * lendable as f64 / 100.0).round()).min(nominal);
            let max = match borrowing {
                Some(percent) => nominal.saturating_add(of((f64::from(nominal) * percent as f64 / 100.0).round())),
                None => total,
            };
            let number = |field: &str, default: usize| {
                let given = value::int(level, &format!("spec.limited.limitResponse.queuing.{field}"));
                given.and_then(|number| usize::try_from(number).ok()).filter(|number| *number > 0).unwrap_or(default)
            };
            let queues = value::text(level, "spec.limited.limitResponse.type") == "Queue";
            let queuing = (queues && !exempt).then(|| Queuing {
                queues: number("queues", 64),
                hand: number("handSize", 8).min(seats::MAX_HAND),
                length: number("queueLengthLimit", 50),
            });
            (value::text(level, "metadata.name"), Limits { nominal, min, max, exempt, queuing })
        })
        .collect()
}

fn hash(schema: &str, flow: &str) -> u64 {
    // Mixed once more: the low digits deal the first cards.
    let mixed = FxBuildHasher.hash_one((schema, flow));
    (mixed ^ (mixed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bootstrap_levels_share_the_seats_as_upstreams() {
        let levels = bootstrap::priority_levels();
        let limits: HashMap<&str, Limits> = limits(600, &levels).into_iter().collect();
        // 245 shares in all: system has 30 of them and lends a third.
        let system = limits["system"];
        assert_eq!((system.nominal, system.min, system.max), (74, 50, 600));
        let low = limits["workload-low"];
        assert_eq!((low.nominal, low.min, low.max), (245, 24, 600));
        assert_eq!((limits["catch-all"].nominal, limits["catch-all"].min), (13, 13));
        assert!(limits["catch-all"].queuing.is_none() && limits["exempt"].exempt);
        assert_eq!(limits["leader-election"].queuing, Some(Queuing { queues: 16, hand: 4, length: 50 }));
    }

    #[test]
    fn everybody_belongs_somewhere() {
        let schemas: Vec<Schema> = bootstrap::flow_schemas().iter().map(Schema::read).collect();
        let of = |user: &User, method: &str, path: &str| {
            let info = RequestInfo::of(&method.parse().expect("a method"), path, &Query::default());
            let mut matching: Vec<&Schema> = schemas.iter().filter(|schema| schema.matches(user, &info)).collect();
            matching.sort_by_key(|schema| schema.precedence);
            matching[0].name.clone()
        };
        let node = User::new("system:node:n1", ["system:nodes"]);
        let controllers = User::new("system:kube-controller-manager", []);
        let account = User::new("system:serviceaccount:a:bot", ["system:serviceaccounts"]);
        for (user, method, path, expect) in [
            (&User::new("admin", ["system:masters"]), "GET", "/api/v1/pods", "exempt"),
            (&User::new("jane", []), "GET", "/healthz", "probes"),
            (&User::new("jane", []), "GET", "/api/v1/pods", "global-default"),
            (&node, "PATCH", "/api/v1/nodes/n1/status", "system-node-high"),
            (&node, "GET", "/api/v1/pods", "system-nodes"),
            (&controllers, "GET", "/api/v1/pods", "kube-controller-manager"),
            (
                &controllers,
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x",
                "system-leader-election",
            ),
            (&account, "GET", "/api/v1/pods", "service-accounts"),
        ] {
            assert_eq!(of(user, method, path), expect, "{} {method} {path}", user.name);
        }
    }
}
