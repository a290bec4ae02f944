//! What a kubelet or a scheduler may say about a pod.

use std::collections::HashSet;

use machinery::names::ip;
use machinery::status::FieldError;
use machinery::{Value, names, value};

use crate::checks::{At, Errors};
use crate::core::pod::update;

/// A change of the status.
pub fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (fresh, stale) = (At::root(new), At::root(old));
    update::annotations(&fresh, &stale, &mut errors);
    let (status, before) = (fresh.at("status"), stale.at("status"));
    conditions(&status.at("conditions"), &mut errors);
    nomination(&status, &before, &stale, &mut errors);
    if status.at("observedGeneration").int().is_some_and(|generation| generation < 0) {
        errors.invalid(&status.at("observedGeneration"), "must be a non-negative integer");
    }
    errors.immutable(&status.at("qosClass"), &before.at("qosClass"));
    for (list, containers) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        transitions(&status.at(list), &before.at(list), &stale.at("spec"), Some(containers), &mut errors);
    }
    let list = "ephemeralContainerStatuses";
    transitions(&status.at(list), &before.at(list), &stale.at("spec"), None, &mut errors);
    claims(&status.at("resourceClaimStatuses"), &fresh.at("spec.resourceClaims"), &mut errors);
    addresses(&status, &before, "podIP", "podIPs", &mut errors);
    addresses(&status, &before, "hostIP", "hostIPs", &mut errors);
    let windows = fresh.at("spec.os.name").text() == "windows";
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        users(&status.at(list), windows, &mut errors);
    }
    for (list, containers) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        let spec = fresh.at("spec");
        health(&status.at(list), value::list(spec.value(), containers), &status, &mut errors);
    }
    for container in status.at("ephemeralContainerStatuses").items() {
        let health = container.at("allocatedResourcesStatus");
        if !health.is_empty() {
            errors.forbidden(&health, "must not be specified in container status");
        }
    }
    errors.into_vec()
}

fn conditions(list: &At<'_, '_>, errors: &mut Errors) {
    for condition in list.items() {
        if condition.at("observedGeneration").int().is_some_and(|generation| generation < 0) {
            errors.invalid(&condition.at("observedGeneration"), "must be a non-negative integer");
        }
        if !matches!(condition.text_at("type"), "PodScheduled" | "Ready" | "Initialized") {
            errors.label_name(&condition.named("Type", "type"));
        }
    }
}

fn nomination(status: &At<'_, '_>, before: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    let node = status.at("nominatedNodeName");
    if node.text().is_empty() || node.text() == before.text_at("nominatedNodeName") {
        return;
    }
    errors.problems(&node, names::name_is_dns_subdomain(node.text(), false));
    if !old.at("spec.nodeName").text().is_empty() {
        errors.forbidden(&node, "may not be set on pods that are already bound to a node");
    }
}

/// A container that has ended for good does not run again.
fn transitions(new: &At<'_, '_>, old: &At<'_, '_>, spec: &At<'_, '_>, containers: Option<&str>, errors: &mut Errors) {
    // One container may have all of them started again.
    let restarts_all = ["containers", "initContainers"].iter().any(|list| {
        let rules_of = |container: &Value| {
            value::list(container, "restartPolicyRules").iter().any(|rule| rule["action"] == "RestartAllContainers")
        };
        value::list(spec.value(), list).iter().any(rules_of)
    });
    if containers.is_some() && restarts_all {
        return;
    }
    for (index, before) in old.items().enumerate() {
        let ended = before.at("state.terminated");
        if !ended.is_set() {
            continue;
        }
        let name = before.text_at("name");
        let goes_on = new.items().any(|after| after.text_at("name") == name && !after.has("state.terminated"));
        let code = ended.at("exitCode").int().unwrap_or(0);
        let allowed = containers.is_some_and(|list| {
            let container =
                value::list(spec.value(), list).iter().find(|container| value::text(container, "name") == name);
            container.is_some_and(|container| may_restart(container, spec, list, code))
        });
        if goes_on && !allowed {
            errors.forbidden(&new.index(index).at("state"), "may not be transitioned to non-terminated state");
        }
    }
}

fn may_restart(container: &Value, spec: &At<'_, '_>, list: &str, code: i64) -> bool {
    for rule in value::list(container, "restartPolicyRules") {
        let listed = value::list(rule, "exitCodes.values").iter().any(|value| value.as_i64() == Some(code));
        let applies = match value::text(rule, "exitCodes.operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if applies {
            return true;
        }
    }
    let own = value::text(container, "restartPolicy");
    let policy = if own.is_empty() { spec.text_at("restartPolicy") } else { own };
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        // A container that runs before the others and has failed under this policy fails its pod.
        _ => list == "initContainers" && own == "Always",
    }
}

fn claims(list: &At<'_, '_>, known: &At<'_, '_>, errors: &mut Errors) {
    let mut seen: HashSet<&str> = HashSet::new();
    for status in list.items() {
        let name = status.at("name");
        if !known.items().any(|claim| claim.text_at("name") == name.text()) {
            errors.invalid_text(&name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        } else {
            seen.insert(name.text());
        }
        let claim = status.at("resourceClaimName");
        if claim.is_set() {
            errors.problems(&claim, names::name_is_dns_subdomain(claim.text(), false));
        }
    }
}

/// The one address and the list of all of them agree; there is one of each family at most.
fn addresses(status: &At<'_, '_>, before: &At<'_, '_>, single: &str, plural: &str, errors: &mut Errors) {
    let list = status.at(plural);
    let of_host = single == "hostIP";
    if of_host && list.is_empty() {
        return;
    }
    let (one, first) = (status.text_at(single), list.index(0));
    if of_host && one != first.text_at("ip") {
        errors.invalid_text(&first.at("ip"), format!("must be equal to `{single}`"));
    }
    let known: Vec<&str> =
        value::list(before.value(), plural).iter().map(|address| value::text(address, "ip")).collect();
    for address in list.items() {
        errors.extend(ip::is_valid_ip_for_legacy_field(&address.to_string(), address.text_at("ip"), true, &known));
    }
    if list.len() > 1 {
        // Upstream takes it for its own fault that it cannot compare what cannot be read.
        if let Some(position) = list.items().position(|address| ip::parse_sloppy(address.text_at("ip")).is_none()) {
            let unread = list.index(position);
            errors.internal(
                &list,
                format!("failed to check for dual stack with error:invalid IP[{position}]: {}", unread.text_at("ip")),
            );
        }
        let families: Vec<bool> =
            list.items().filter_map(|address| ip::parse_sloppy(address.text_at("ip"))).map(|ip| ip.is_ipv4()).collect();
        if list.len() > 2 || families.iter().all(|is_v4| Some(is_v4) == families.first()) {
            errors.invalid(&list, "may specify no more than one IP for each IP family");
        }
    }
    if of_host {
        return;
    }
    if one.is_empty() != list.is_empty() {
        errors.invalid(&list, "podIP and podIPs must either both be set or both be unset");
    } else if !list.is_empty() && one != first.text_at("ip") {
        errors.invalid_text(&first.at("ip"), format!("must be equal to `{single}`"));
    }
}

/// The health of what containers were given: of resources they ask for, or of claims they have.
fn health(list: &At<'_, '_>, containers: &[Value], pod: &At<'_, '_>, errors: &mut Errors) {
    const MOST_MESSAGE: usize = 1024;
    for status in list.items() {
        let name = status.text_at("name");
        let container = containers.iter().find(|container| value::text(container, "name") == name);
        for given in status.at("allocatedResourcesStatus").items() {
            let resource = given.at("name");
            if let Some(why) = container.and_then(|container| is_foreign(resource.text(), container, pod)) {
                errors.invalid_text(&resource, why);
            }
            let mut seen: HashSet<&str> = HashSet::new();
            for device in given.at("resources").items() {
                errors.one_of(&device.at("health"), &["Healthy", "Unhealthy", "Unknown"]);
                let message = device.at("message");
                if message.is_set() && message.text().is_empty() {
                    errors.required(&message, "must be non-empty if specified");
                } else if message.text().len() > MOST_MESSAGE {
                    errors.too_long(&message, MOST_MESSAGE);
                }
                let id = device.at("resourceID");
                if seen.contains(&id.text()) {
                    errors.duplicate(&id, id.text());
                }
                seen.insert(id.text());
            }
        }
    }
}

/// Why a container was not given this, if it was not.
fn is_foreign(name: &str, container: &Value, pod: &At<'_, '_>) -> Option<&'static str> {
    let requests = value::at(container, "resources.requests").unwrap_or(&Value::Null);
    let Some(claim) = name.strip_prefix("claim:") else {
        return requests.get(name).is_none().then_some("must match one of the container's resource requests");
    };
    let of_container = value::list(container, "resources.claims").iter().any(|own| match value::text(own, "request") {
        "" => value::text(own, "name") == claim,
        request => claim.split_once('/') == Some((value::text(own, "name"), request)),
    });
    let extended = pod.at("extendedResourceClaimStatus");
    let of_resource = claim.split_once('/').is_some_and(|(claim, request)| {
        extended.text_at("resourceClaimName") == claim
            && extended.at("requestMappings").items().any(|mapping| {
                mapping.text_at("containerName") == value::text(container, "name")
                    && mapping.text_at("requestName") == request
                    && requests.get(mapping.text_at("resourceName")).is_some()
            })
    });
    (!of_container && !of_resource).then_some("must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")
}

fn users(list: &At<'_, '_>, windows: bool, errors: &mut Errors) {
    for status in list.items() {
        let user = status.at("user.linux");
        if !user.is_set() {
            continue;
        }
        if windows {
            errors.forbidden(&user, "cannot be set for a windows pod");
            continue;
        }
        errors.in_range_if_set(&user.at("uid"), 0, i64::from(u32::MAX));
        errors.user_id_if_set(&user.at("gid"));
        for group in user.at("supplementalGroups").items() {
            errors.user_id_if_set(&group);
        }
    }
}

/// Generations that an older client does not know of stay.
pub fn keep_generations(new: &mut Value, old: &Value) {
    if value::int(new, "status.observedGeneration").unwrap_or(0) == 0
        && let Some(kept) = value::at(old, "status.observedGeneration")
    {
        value::set(new, "status.observedGeneration", kept.clone());
    }
    let before = value::list(old, "status.conditions").to_vec();
    for condition in value::list_mut(new, "status.conditions") {
        if value::int(condition, "observedGeneration").unwrap_or(0) != 0 {
            continue;
        }
        let same = before.iter().find(|earlier| earlier["type"] == condition["type"]);
        if let Some(kept) = same.and_then(|earlier| earlier.get("observedGeneration")) {
            value::set(condition, "observedGeneration", kept.clone());
        }
    }
}
