//! Requests and limits, of containers and of whole pods, and the names of resources wherever they are written.

use std::collections::{BTreeMap, HashSet};

use machinery::quantity::Quantity;
use machinery::{Value, names, value};
use rules::names::{HUGE_PAGES, REQUESTS, is_extended, is_huge_page, is_native, is_of_whole_pods};

use crate::checks::{At, Errors};

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.strip_prefix(REQUESTS).is_some_and(is_huge_page)
}

fn is_overcommitable(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Resources that are counted, not measured.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

const MEASURED: [&str; 11] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
];

/// Whether a name without a domain is the name of a resource of Kubernetes.
pub fn is_standard(name: &str) -> bool {
    MEASURED.contains(&name) || COUNTED.contains(&name) || is_quota_huge_page(name)
}

/// Whether a name without a domain is one that quotas can limit.
pub fn is_standard_for_quota(name: &str) -> bool {
    name != "storage" && is_standard(name)
}

/// The name of any resource. `at` is where it is spoken of.
pub fn name(name: &str, at: &At<'_, '_>, errors: &mut Errors) -> bool {
    let problems = names::is_qualified_name(name);
    let good = problems.is_empty();
    for problem in problems {
        errors.invalid_value(at, name, problem);
    }
    if good && !name.contains('/') && !is_standard(name) {
        errors.invalid_value(at, name, "must be a standard resource type or fully qualified");
        return false;
    }
    good
}

/// The name of a resource that a container can ask for.
pub fn container_name(resource: &str, at: &At<'_, '_>, errors: &mut Errors) {
    name(resource, at, errors);
    if !resource.contains('/') {
        if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(resource) {
            errors.invalid_value(at, resource, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        errors.invalid_value(at, resource, "doesn't follow extended resource name standard");
    }
}

fn pod_name(resource: &str, at: &At<'_, '_>, errors: &mut Errors) {
    let before = errors.len();
    name(resource, at, errors);
    if errors.len() == before && !is_of_whole_pods(resource) {
        let supported = ["cpu", "memory"];
        errors.push(machinery::status::FieldError::not_supported(at.to_string(), resource, supported));
    }
}

/// An amount of a resource: not below zero, and whole if the resource is counted.
pub fn amount(resource: &str, at: &At<'_, '_>, errors: &mut Errors) {
    errors.quantity_not_negative(at);
    let counted = COUNTED.contains(&resource) || is_extended(resource);
    if counted && at.quantity().is_some_and(|quantity| quantity.round_up(0) != quantity) {
        errors.invalid(at, "must be an integer");
    }
}

/// The requests and limits of a container.
pub fn container(at: &At<'_, '_>, claims: &[&str], errors: &mut Errors) {
    requirements(at, container_name, errors);
    claim_names(&at.at("claims"), claims, errors);
}

/// What running a pod costs besides its containers: limits without a name.
pub fn overhead(at: &At<'_, '_>, errors: &mut Errors) {
    let wrapped = serde_json::json!({"limits": at.value()});
    let path = at.to_string();
    requirements(&At::part(&path, &wrapped), container_name, errors);
}

fn requirements(at: &At<'_, '_>, name: fn(&str, &At<'_, '_>, &mut Errors), errors: &mut Errors) {
    let (limits, requests) = (at.at("limits"), at.at("requests"));
    let (mut huge, mut compute) = (false, false);
    for list in [&limits, &requests] {
        for (resource, quantity) in list.entries() {
            name(resource, &quantity, errors);
            amount(resource, &quantity, errors);
            if std::ptr::eq(list, &raw const requests) {
                against_limit(resource, &quantity, &limits, &requests, errors);
            }
            if is_huge_page(resource) {
                huge = true;
                huge_page_amount(resource, &quantity, errors);
            }
            compute |= matches!(resource, "cpu" | "memory");
        }
    }
    if huge && !compute {
        errors.forbidden(at, "HugePages require cpu or memory");
    }
}

fn against_limit(
    resource: &str,
    quantity: &At<'_, '_>,
    limits: &At<'_, '_>,
    requests: &At<'_, '_>,
    errors: &mut Errors,
) {
    let Some(request) = quantity.quantity() else { return };
    match limits.key(resource).quantity() {
        Some(limit) if request != limit && !is_overcommitable(resource) => {
            errors.invalid_value(
                requests,
                request.to_string(),
                format!("must be equal to {resource} limit of {limit}"),
            );
        }
        Some(limit) if request > limit => {
            let detail = format!("must be less than or equal to {resource} limit of {limit}");
            errors.invalid_value(requests, request.to_string(), detail);
        }
        Some(_) => {}
        None if !is_overcommitable(resource) => {
            errors.required(limits, "Limit must be set for non overcommitable resources")
        }
        None => {}
    }
}

fn huge_page_amount(resource: &str, at: &At<'_, '_>, errors: &mut Errors) {
    let size = resource.strip_prefix(HUGE_PAGES).and_then(|size| size.parse::<Quantity>().ok());
    let Some(quantity) = at.quantity() else { return };
    let whole = size.filter(|size| size.signum() > 0 && size.milli_value() % 1000 == 0);
    if whole.is_none_or(|size| quantity.value() % size.value() != 0) {
        let detail = format!("{quantity} is not positive integer multiple of {resource}");
        errors.invalid_value(at, quantity.to_string(), detail);
    }
}

/// The claims of a container must be claims of its pod, each whole or by its requests, not both.
fn claim_names(list: &At<'_, '_>, known: &[&str], errors: &mut Errors) {
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    let mut claimed: HashSet<&str> = HashSet::new();
    for claim in list.items() {
        let (name, request) = (claim.text_at("name"), claim.text_at("request"));
        if name.is_empty() {
            errors.required(&claim, "");
            continue;
        }
        if seen.contains(&(name, "")) {
            errors.duplicate(&claim, name);
        } else {
            if !request.is_empty() {
                errors.problems(&claim.at("request"), names::is_dns1123_label(request));
            }
            if seen.contains(&(name, request)) {
                errors.duplicate(&claim, format!("{name}/{request}"));
            } else if request.is_empty() && claimed.contains(name) {
                errors.duplicate(&claim, name);
            }
            seen.insert((name, request));
            claimed.insert(name);
        }
        if !known.contains(&name) {
            let mut sorted = known.to_vec();
            sorted.sort_unstable();
            let detail = "must be one of the names in pod.spec.resourceClaims";
            let rest =
                if sorted.is_empty() { " which is empty".to_owned() } else { format!(": {}", sorted.join(", ")) };
            errors.not_found_because(&claim, name, format!("{detail}{rest}"));
        }
    }
}

/// Requests and limits of the whole pod.
pub fn pod(spec: &At<'_, '_>, claims: &[&str], errors: &mut Errors) {
    let at = spec.at("resources");
    if !at.is_set() {
        return;
    }
    if spec.text_at("os.name") == "windows" {
        return errors.forbidden(&at, "may not be set for a windows pod");
    }
    if at.has("claims") {
        errors.forbidden(&at.at("claims"), "claims may not be set for Resources at pod-level");
    }
    requirements(&at, pod_name, errors);
    claim_names(&at.at("claims"), claims, errors);
    let requests = at.at("requests");
    for (resource, sum) in aggregate(spec.value(), "requests") {
        let whole = requests.key(&resource);
        if let Some(given) = whole.quantity().filter(|given| sum > *given) {
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid_value(&whole, given.to_string(), detail);
        }
    }
    let limits = at.at("limits");
    for (resource, sum) in aggregate(spec.value(), "limits").into_iter().filter(|(resource, _)| is_huge_page(resource))
    {
        let whole = limits.key(&resource);
        if let Some(given) = whole.quantity().filter(|given| sum > *given) {
            let detail = format!("must be greater than or equal to aggregate container limits of {sum}");
            errors.invalid_value(&whole, given.to_string(), detail);
        }
    }
    let containers = at.named("containers", "nothing");
    for (index, container) in value::list(spec.value(), "containers").iter().enumerate() {
        for (resource, limit) in
            value::at(container, "resources.limits").and_then(Value::as_object).into_iter().flatten()
        {
            let (Some(most), Some(Ok(limit))) = (limits.key(resource).quantity(), Quantity::from_value(limit)) else {
                continue;
            };
            if limit > most {
                let (container, detail) =
                    (containers.index(index), format!("must be less than or equal to pod limits of {most}"));
                errors.invalid_value(&container.key(resource).at("limits"), limit.to_string(), detail);
            }
        }
    }
}

/// What the containers of a pod need together: all that run at once, or more while it starts.
pub fn aggregate(spec: &Value, kind: &str) -> BTreeMap<String, Quantity> {
    let of = |container: &Value| -> Vec<(String, Quantity)> {
        let list =
            value::at(container, "resources").and_then(|resources| resources.get(kind)).and_then(Value::as_object);
        let parsed = list
            .into_iter()
            .flatten()
            .filter_map(|(name, amount)| Some((name.clone(), Quantity::from_value(amount)?.ok()?)));
        parsed.collect()
    };
    let mut sum: BTreeMap<String, Quantity> = BTreeMap::new();
    let add = |sum: &mut BTreeMap<String, Quantity>, amounts: Vec<(String, Quantity)>| {
        for (name, amount) in amounts {
            match sum.get_mut(&name) {
                Some(total) => total.add(&amount),
                None => {
                    sum.insert(name, amount);
                }
            }
        }
    };
    for container in value::list(spec, "containers") {
        add(&mut sum, of(container));
    }
    let mut staying: BTreeMap<String, Quantity> = BTreeMap::new();
    let mut starting: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in value::list(spec, "initContainers") {
        let mut now = staying.clone();
        add(&mut now, of(container));
        if value::text(container, "restartPolicy") == "Always" {
            add(&mut sum, of(container));
            staying.clone_from(&now);
        }
        for (name, amount) in now {
            if starting.get(&name).is_none_or(|most| amount > *most) {
                starting.insert(name, amount);
            }
        }
    }
    for (name, amount) in starting {
        if sum.get(&name).is_none_or(|total| amount > *total) {
            sum.insert(name, amount);
        }
    }
    sum
}
