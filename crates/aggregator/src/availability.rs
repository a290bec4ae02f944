//! Whether another server can be reached: what its Service and endpoints say, what it answers, and how that is told in a condition.
//! Reasons and messages are upstream's to the letter. Two of upstream's cannot come up, because caches do not fail to be read:
//! `ServiceAccessError` and `EndpointsAccessError`.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use machinery::rest::User;
use machinery::{Value, value};
use serde_json::json;

use crate::backend::{Backend, Question};
use crate::service::{AVAILABLE, ApiService, Reference, condition};

/// How often a server is asked at once, each time at an endpoint of its own choice: one that answers is enough.
const ATTEMPTS: usize = 5;
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is to be said of an APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn unavailable(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    /// Whether the server was asked and did not answer well: only then is it asked again soon.
    pub fn is_failed_check(&self) -> bool {
        self.reason == "FailedDiscoveryCheck"
    }
}

/// Looks at everything that can be seen, and asks the server.
pub async fn check(backend: &Backend) -> Condition {
    let (service, slices) = backend.sources.service(backend.reference());
    if let Some(why) = before_asking(backend.reference(), service.as_ref(), &slices) {
        return why;
    }
    let asked: FuturesUnordered<_> = (0..ATTEMPTS).map(|_| ask(backend)).collect();
    futures::pin_mut!(asked);
    let mut last = String::new();
    while let Some(outcome) = asked.next().await {
        match outcome {
            Ok(()) => {
                return Condition { status: "True", reason: "Passed", message: "all checks passed".to_owned() };
            }
            Err(why) => last = why,
        }
    }
    Condition::unavailable("FailedDiscoveryCheck", last)
}

/// What is wrong with the Service or its endpoints, if anything.
fn before_asking(reference: &Reference, service: Option<&Value>, slices: &[Value]) -> Option<Condition> {
    let (name, namespace) = (&reference.name, &reference.namespace);
    let Some(service) = service else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return Some(Condition::unavailable("ServiceNotFound", message));
    };
    if value::text(service, "spec.type") != "ClusterIP" {
        return None;
    }
    let ports = value::list(service, "spec.ports");
    let port = ports.iter().find(|port| value::int(port, "port") == Some(i64::from(reference.port)));
    let Some(port) = port else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {}", reference.port);
        return Some(Condition::unavailable("ServicePortError", message));
    };
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Some(Condition::unavailable("EndpointsNotFound", message));
    }
    let port = value::text(port, "name");
    if !slices.iter().any(|slice| rules::services::has_ready(slice, port)) {
        let message =
            format!("endpointslices for service/{name} in {namespace:?} have no addresses with port name {port:?}");
        return Some(Condition::unavailable("MissingEndpoints", message));
    }
    None
}

/// Asks for the group version's resources, which every server of one must have.
async fn ask(backend: &Backend) -> Result<(), String> {
    let path = discovery_path(&backend.service);
    let target = backend.target()?;
    let url = format!("https://{}{path}", target.authority);
    // With the identity that may read everything.
    let user = User { groups: vec!["system:masters".to_owned()], ..user("system:kube-aggregator") };
    let question = Question { path: &path, user: &user, accept: "", known: None, limit: 0, patience: PATIENCE };
    let status = match backend.ask_at(&target, question).await {
        Ok(answer) => answer.status,
        Err(why) => return Err(format!("failing or missing response from {url}: Get {url:?}: {why}")),
    };
    if status.is_success() {
        return Ok(());
    }
    Err(format!("failing or missing response from {url}: bad status from {url}: {}", status.as_u16()))
}

/// Somebody whom only the name makes.
pub(crate) fn user(name: &str) -> User {
    User { name: name.to_owned(), ..User::default() }
}

/// Where a group version says which resources it has.
pub(crate) fn discovery_path(service: &ApiService) -> String {
    if service.group.is_empty() {
        return format!("/api/{}", service.version);
    }
    format!("/apis/{}/{}", service.group, service.version)
}

/// What is to be said of a group version that this server has itself.
pub fn local() -> Condition {
    let message = "Local APIServices are always available".to_owned();
    Condition { status: "True", reason: "Local", message }
}

/// The object with what is to be said in its status, or nothing when it says so already.
pub fn with_condition(object: &Value, new: &Condition, now: &str) -> Option<Value> {
    let mut conditions = value::list(object, "status.conditions").to_vec();
    let changed = json!({"type": AVAILABLE, "status": new.status, "lastTransitionTime": now, "reason": new.reason, "message": new.message});
    match condition(object) {
        None => conditions.push(changed),
        Some(known) if says(known, new) => return None,
        Some(known) => {
            let since = if known["status"] == new.status { known["lastTransitionTime"].clone() } else { now.into() };
            let known = conditions.iter_mut().find(|known| known["type"] == AVAILABLE)?;
            *known = changed;
            known["lastTransitionTime"] = since;
        }
    }
    let mut object = object.clone();
    value::set(&mut object, "status.conditions", conditions);
    Some(object)
}

fn says(known: &Value, new: &Condition) -> bool {
    known["status"] == new.status && known["reason"] == new.reason && known["message"] == new.message.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(port: &str, ready: bool) -> Value {
        json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}], "ports": [{"name": port, "port": 8443}]})
    }

    fn check(service: Option<Value>, slices: &[Value], expect: Option<(&str, &str)>) {
        let reference = Reference {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            port: 443,
            authorities: None,
            insecure: false,
        };
        let got = before_asking(&reference, service.as_ref(), slices);
        assert_eq!(got.as_ref().map(|got| (got.reason, &*got.message)), expect, "{service:?}");
        assert!(got.is_none_or(|got| got.status == "False" && !got.is_failed_check()));
    }

    #[test]
    fn what_is_wrong_is_said_before_anybody_is_asked() {
        let service =
            |port: i64| Some(json!({"spec": {"type": "ClusterIP", "ports": [{"port": port, "name": "https"}]}}));
        check(None, &[], Some(("ServiceNotFound", "service/s in \"n\" is not present")));
        check(service(80), &[], Some(("ServicePortError", "service/s in \"n\" is not listening on port 443")));
        check(service(443), &[], Some(("EndpointsNotFound", "cannot find endpointslices for service/s in \"n\"")));
        let missing = "endpointslices for service/s in \"n\" have no addresses with port name \"https\"";
        check(service(443), &[slice("https", false)], Some(("MissingEndpoints", missing)));
        check(service(443), &[slice("http", true)], Some(("MissingEndpoints", missing)));
        check(service(443), &[slice("http", true), slice("https", true)], None);
        check(Some(json!({"spec": {"type": "ExternalName"}})), &[], None);
    }

    #[test]
    fn a_condition_is_written_once_and_keeps_the_others() {
        let object = json!({"status": {"conditions": [{"type": "Mine", "status": "True"}]}});
        let gone = Condition::unavailable("ServiceNotFound", "m".to_owned());
        let object = with_condition(&object, &gone, "t1").expect("something new");
        let conditions = &object["status"]["conditions"];
        assert_eq!((&conditions[0]["type"], &conditions[1]["lastTransitionTime"]), (&json!("Mine"), &json!("t1")));
        assert_eq!(with_condition(&object, &gone, "t2"), None);
        let other = Condition::unavailable("MissingEndpoints", "n".to_owned());
        let object = with_condition(&object, &other, "t3").expect("another reason");
        let condition = &object["status"]["conditions"][1];
        assert_eq!(
            (&condition["reason"], &condition["lastTransitionTime"]),
            (&json!("MissingEndpoints"), &json!("t1"))
        );
        let object = with_condition(&object, &local(), "t4").expect("another status");
        assert_eq!(object["status"]["conditions"][1]["lastTransitionTime"], "t4");
    }
}
