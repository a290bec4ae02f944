//! Which IP families a Service has: pure, from what it says, what it was, and what the cluster has.
//!
//! Families, policy and addresses say the same thing three times, and a client may leave any of them out. What is missing is
//! inferred, what contradicts is refused, and a Service never changes between one and two families unless it asks to.

use std::net::IpAddr;

use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::core::service;

const POLICY: &str = "spec.ipFamilyPolicy";
const FAMILIES: &str = "spec.ipFamilies";
const ADDRESSES: &str = "spec.clusterIPs";
const SINGLE: &str = "SingleStack";
const REQUIRE: &str = "RequireDualStack";
const PREFER: &str = "PreferDualStack";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// What the API calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

/// The families a Service has, as far as they are known.
pub fn families(service: &Value) -> Vec<Family> {
    let names = value::list(service, FAMILIES).iter().filter_map(Value::as_str);
    names.map(|name| if name == "IPv6" { Family::V6 } else { Family::V4 }).collect()
}

/// Whether the addresses are nobody's concern: a cluster that gets or loses a family changes no Service that prefers both.
pub fn stays(new: &Value, old: Option<&Value>) -> bool {
    old.is_some_and(|old| {
        let preferred = value::text(new, POLICY) == PREFER && matches!(value::text(old, POLICY), PREFER | "");
        preferred && same(new, old, "spec.type") && same_addresses(new, old) && same(new, old, FAMILIES)
    })
}

/// Fills in policy and families in a cluster with these families, the first of which is the default.
pub fn settle(service: &mut Value, old: Option<&Value>, configured: &[Family]) -> Result<(), Vec<FieldError>> {
    if value::text(service, "spec.type") == "ExternalName" || stays(service, old) {
        return Ok(());
    }
    let headless = value::text(service, "spec.clusterIP") == "None";
    let free = headless && value::at(service, "spec.selector").and_then(Value::as_object).is_none_or(|s| s.is_empty());
    if value::at(service, POLICY).is_none_or(Value::is_null) {
        let before = old.map(|old| value::text(old, POLICY)).filter(|policy| !policy.is_empty());
        let inferred = before.unwrap_or(if free { REQUIRE } else { SINGLE }).to_owned();
        value::set(service, POLICY, inferred);
    }
    refuse(service::related_errors(service, old))?;
    refuse(contradictions(service, old))?;
    refuse(infer_from_addresses(service, configured))?;
    let policy = value::text(service, POLICY).to_owned();
    let primary = configured.first().copied().unwrap_or(Family::V4);
    // Nothing is allocated for it and nobody routes to it: whoever writes its endpoints knows which families there are.
    if free {
        let mut named = families(service);
        if named.is_empty() {
            named.push(primary);
        }
        if named.len() < 2 && policy != SINGLE {
            named.push(named[0].other());
        }
        set(service, &named);
        return Ok(());
    }
    let mut errors = Vec::new();
    if policy == REQUIRE && configured.len() < 2 {
        errors.push(FieldError::invalid(
            POLICY,
            policy.as_str(),
            "this cluster is not configured for dual-stack services",
        ));
    }
    let mut named = families(service);
    for (index, family) in named.iter().enumerate().filter(|(_, family)| !configured.contains(family)) {
        let path = format!("{FAMILIES}[{index}]");
        errors.push(FieldError::invalid(path, family.as_str(), "not configured on this cluster"));
    }
    refuse(errors)?;
    if named.is_empty() {
        named.push(primary);
    }
    if policy != SINGLE && named.len() == 1 && configured.len() == 2 {
        named.push(named[0].other());
    }
    set(service, &named);
    Ok(())
}

/// A policy that does not go with the number of addresses or families. To ask for one family is to give up the second.
fn contradictions(service: &mut Value, old: Option<&Value>) -> Vec<FieldError> {
    let policy = value::text(service, POLICY).to_owned();
    let mut errors = Vec::new();
    let mut wrong = |why: &str| errors.push(FieldError::invalid(POLICY, policy.as_str(), why));
    if let Some(old) = old {
        if policy == SINGLE {
            if same_addresses(service, old) {
                keep_first(service, ADDRESSES);
            }
            if same(service, old, FAMILIES) {
                keep_first(service, FAMILIES);
            }
        } else {
            let reduced = |path: &str| {
                let (before, after) = (value::list(old, path), value::list(service, path));
                before.len() == 2 && after.len() == 1 && before[0] == after[0]
            };
            if reduced(ADDRESSES) {
                wrong("must be 'SingleStack' to release the secondary cluster IP");
            }
            if reduced(FAMILIES) {
                wrong("must be 'SingleStack' to release the secondary IP family");
            }
        }
    }
    if policy == SINGLE {
        if value::list(service, ADDRESSES).len() == 2 {
            wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified");
        }
        if value::list(service, FAMILIES).len() == 2 {
            wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified");
        }
    }
    errors
}

/// An address whose family is not named names it.
fn infer_from_addresses(service: &mut Value, configured: &[Family]) -> Vec<FieldError> {
    let addresses = value::list(service, ADDRESSES).to_vec();
    let mut named = families(service);
    let mut errors = Vec::new();
    for (index, address) in addresses.iter().enumerate().skip(named.len()) {
        let Some(family) = address.as_str().and_then(names::ip::parse_sloppy).map(Family::of) else { break };
        if configured.contains(&family) {
            named.push(family);
        } else {
            let why = format!("{} is not configured on this cluster", family.as_str());
            errors.push(FieldError::invalid(format!("{ADDRESSES}[{index}]"), addresses.clone(), why));
        }
    }
    if errors.is_empty() && !named.is_empty() {
        set(service, &named);
    }
    errors
}

fn set(service: &mut Value, families: &[Family]) {
    let names: Vec<&str> = families.iter().map(|family| family.as_str()).collect();
    value::set(service, FAMILIES, names);
}

fn keep_first(service: &mut Value, path: &str) {
    if let Some(list) = value::at_mut(service, path).and_then(Value::as_array_mut) {
        list.truncate(1);
    }
}

fn same(new: &Value, old: &Value, path: &str) -> bool {
    value::at(new, path) == value::at(old, path)
}

fn same_addresses(new: &Value, old: &Value) -> bool {
    same(new, old, ADDRESSES)
}

fn refuse(errors: Vec<FieldError>) -> Result<(), Vec<FieldError>> {
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ONE: &[Family] = &[Family::V4];
    const BOTH: &[Family] = &[Family::V4, Family::V6];

    /// What a Service with this spec says of its families afterwards, or why it is refused.
    fn settled(spec: Value, old: Option<Value>, configured: &[Family]) -> Result<Value, String> {
        let old = old.map(|spec| json!({"metadata": {"name": "s"}, "spec": spec}));
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        settle(&mut service, old.as_ref(), configured)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        Ok(json!([service["spec"]["ipFamilyPolicy"], service["spec"]["ipFamilies"], service["spec"]["clusterIPs"]]))
    }

    fn check(spec: Value, configured: &[Family], want: Value) {
        let got =
            settled(spec.clone(), None, configured).map_or_else(|error| json!(error), |got| json!([got[0], got[1]]));
        assert_eq!(got, want, "{spec}");
    }

    /// As upstream's server of both families answered.
    #[test]
    fn a_new_service_says_what_it_leaves_out() {
        check(json!({}), ONE, json!(["SingleStack", ["IPv4"]]));
        check(json!({}), &[Family::V6, Family::V4], json!(["SingleStack", ["IPv6"]]));
        check(json!({"type": "ExternalName"}), BOTH, json!([null, null]));
        check(json!({"ipFamilyPolicy": "PreferDualStack"}), ONE, json!(["PreferDualStack", ["IPv4"]]));
        check(json!({"ipFamilyPolicy": "PreferDualStack"}), BOTH, json!(["PreferDualStack", ["IPv4", "IPv6"]]));
        check(json!({"ipFamilyPolicy": "RequireDualStack"}), BOTH, json!(["RequireDualStack", ["IPv4", "IPv6"]]));
        check(json!({"ipFamilies": ["IPv6"]}), BOTH, json!(["SingleStack", ["IPv6"]]));
        let both = json!({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "PreferDualStack"});
        check(both, BOTH, json!(["PreferDualStack", ["IPv6", "IPv4"]]));
        let named = json!({"clusterIP": "fd96::7", "clusterIPs": ["fd96::7", "10.96.0.7"], "ipFamilyPolicy": "PreferDualStack"});
        check(named, BOTH, json!(["PreferDualStack", ["IPv6", "IPv4"]]));
        let headless = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        check(headless, ONE, json!(["RequireDualStack", ["IPv4", "IPv6"]]));
        let selecting = json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}});
        check(selecting, BOTH, json!(["SingleStack", ["IPv4"]]));
    }

    #[test]
    fn what_contradicts_is_refused_in_upstreams_words() {
        let cases = [
            (
                json!({"ipFamilyPolicy": "RequireDualStack"}),
                ONE,
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
            ),
            (
                json!({"ipFamilies": ["IPv6"]}),
                ONE,
                "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
            ),
            (
                json!({"ipFamilies": ["IPv6", "IPv4"]}),
                BOTH,
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
            ),
            (
                json!({"clusterIP": "fd96::7", "clusterIPs": ["fd96::7"]}),
                ONE,
                "spec.clusterIPs[0]: Invalid value: [\"fd96::7\"]: IPv6 is not configured on this cluster",
            ),
            (
                json!({"clusterIPs": ["10.96.0.9"]}),
                ONE,
                "spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: must be empty when `clusterIP` is not specified",
            ),
        ];
        for (spec, configured, want) in cases {
            check(spec, configured, json!(want));
        }
    }

    #[test]
    fn an_update_changes_the_number_of_families_only_when_it_says_so() {
        let one = json!({"type": "ClusterIP", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"],
                         "ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"});
        let two = json!({"type": "ClusterIP", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd96::7"],
                         "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"});
        let with = |spec: &Value, path: &str, new: Value| {
            let mut spec = spec.clone();
            value::set(&mut spec, path, new);
            spec
        };
        let update = |new: Value, old: &Value| settled(new, Some(old.clone()), BOTH);
        // The cluster got a second family: nothing happens until somebody asks.
        assert_eq!(update(one.clone(), &one), Ok(json!(["PreferDualStack", ["IPv4"], ["10.96.0.7"]])));
        let asked = with(&one, "ipFamilyPolicy", json!("RequireDualStack"));
        assert_eq!(update(asked, &one), Ok(json!(["RequireDualStack", ["IPv4", "IPv6"], ["10.96.0.7"]])));
        let single = with(&two, "ipFamilyPolicy", json!("SingleStack"));
        assert_eq!(update(single, &two), Ok(json!(["SingleStack", ["IPv4"], ["10.96.0.7"]])));
        let dropped = with(&two, "clusterIPs", json!(["10.96.0.7"]));
        assert_eq!(
            update(dropped, &two),
            Err("spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary cluster IP".to_owned())
        );
    }
}
