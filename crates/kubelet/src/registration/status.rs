//! The node's status: a pure function of the machine, the runtime and the status before.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use node::cri::v1;
use serde_json::{Value, json};

use super::Config;
use super::machine::Machine;
use crate::cri_config::Abilities;
use crate::pressure::Conditions;
use crate::pressure::thresholds::{Condition, Signal};
use crate::status::seconds;

/// Images the status lists at most, the largest first.
const IMAGES: usize = 50;
/// Names of one image the status lists at most.
const NAMES: usize = 5;
/// What this kubelet can do that others may not: pods that rely on it are scheduled here, and may be changed so.
const FEATURES: [&str; 3] = [
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// What was read of machine and runtime.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    pub machine: Machine,
    /// Why the node cannot run pods; empty when it can.
    pub problems: Vec<String>,
    /// What the node is short of.
    pub pressure: Conditions,
    /// The runtime, if it answers.
    pub runtime: Option<v1::VersionResponse>,
    pub images: Vec<v1::Image>,
    /// What its handlers can do.
    pub handlers: BTreeMap<String, Abilities>,
    /// Volumes that nobody may detach.
    pub volumes_in_use: Vec<String>,
}

/// An amount of each resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a processor.
    pub cpu_milli: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
}

/// What the node has, and what of it pods may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    pub capacity: Amounts,
    pub allocatable: Amounts,
}

/// What the node has, and what of it pods may use.
pub fn capacity(config: &Config, machine: &Machine) -> Capacity {
    let capacity =
        Amounts { cpu_milli: machine.processors * 1000, memory: machine.memory, ephemeral_storage: machine.disk };
    let kept = |signal: Signal, whole: i64| {
        let hard = config.eviction.iter().find(|threshold| threshold.signal == signal && threshold.is_hard());
        hard.map_or(0, |threshold| threshold.value.of(whole))
    };
    let huge: i64 = machine.hugepages.iter().map(|(_, bytes)| bytes).sum();
    let allocatable = Amounts {
        cpu_milli: (capacity.cpu_milli - config.reserved_cpu_milli).max(0),
        memory: (capacity.memory - config.reserved_memory - kept(Signal::Memory, capacity.memory) - huge).max(0),
        ephemeral_storage: (capacity.ephemeral_storage
            - config.reserved_storage
            - kept(Signal::NodeFs, capacity.ephemeral_storage))
        .max(0),
    };
    Capacity { capacity, allocatable }
}

pub fn status(config: &Config, reading: &Reading, old: &NodeStatus, now: Timestamp) -> NodeStatus {
    let machine = &reading.machine;
    let amounts = capacity(config, machine);
    let runtime = reading.runtime.as_ref();
    let mut addresses: Vec<NodeAddress> = config
        .addresses
        .iter()
        .map(|address| NodeAddress { address: address.clone(), type_: "InternalIP".to_owned() })
        .collect();
    addresses.push(NodeAddress { address: config.hostname.clone(), type_: "Hostname".to_owned() });
    NodeStatus {
        addresses: Some(addresses),
        capacity: Some(with_others(quantities(&amounts.capacity, config, machine, false), old)),
        allocatable: Some(with_others(quantities(&amounts.allocatable, config, machine, true), old)),
        conditions: Some(conditions(reading, old, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(config.port) }),
        }),
        images: Some(images(&reading.images)),
        node_info: Some(NodeSystemInfo {
            architecture: node::oci::architecture().to_owned(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: runtime
                .map(|r| format!("{}://{}", r.runtime_name, r.runtime_version))
                .unwrap_or_default(),
            kernel_version: machine.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: rules::names::VERSION.to_owned(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: machine.os_image.clone(),
            system_uuid: machine.system_uuid.clone(),
            ..NodeSystemInfo::default()
        }),
        declared_features: Some(FEATURES.map(str::to_owned).to_vec()),
        runtime_handlers: handlers(&reading.handlers),
        volumes_attached: old.volumes_attached.clone(),
        volumes_in_use: Some(reading.volumes_in_use.clone()).filter(|volumes| !volumes.is_empty()),
        ..NodeStatus::default()
    }
}

/// Resources that somebody else put into the node's capacity stay there, and pods may have all of them. Huge pages are the
/// kernel's: a size that it does not have is not the node's either.
fn with_others(mut own: BTreeMap<String, Quantity>, old: &NodeStatus) -> BTreeMap<String, Quantity> {
    for (name, amount) in old.capacity.iter().flatten() {
        if !name.starts_with("hugepages-") && !own.contains_key(name) {
            own.insert(name.clone(), amount.clone());
        }
    }
    own
}

/// A patch by which nobody gets devices of a node that starts: whoever offered them has to offer them again. Nothing when there
/// are none. Upstream asks whether a device plugin left a checkpoint, which none can have left here.
pub fn without_extended(old: &NodeStatus) -> Option<Value> {
    let offered = |(_, amount): &(&String, &Quantity)| parsed(amount) != parsed(&Quantity("0".to_owned()));
    let extended = |list: &Option<BTreeMap<String, Quantity>>| -> serde_json::Map<String, Value> {
        let devices = list.iter().flatten().filter(|(name, _)| rules::names::is_extended(name)).filter(offered);
        devices.map(|(name, _)| (name.clone(), json!("0"))).collect()
    };
    let (capacity, allocatable) = (extended(&old.capacity), extended(&old.allocatable));
    let any = !capacity.is_empty() || !allocatable.is_empty();
    any.then(|| json!({"status": {"capacity": capacity, "allocatable": allocatable}}))
}

fn parsed(amount: &Quantity) -> Option<machinery::quantity::Quantity> {
    amount.0.parse().ok()
}

/// Whether two statuses have the same capacity and leave the same to pods, however the amounts are written.
pub fn same_resources(a: Option<&NodeStatus>, b: Option<&NodeStatus>) -> bool {
    type List = Option<BTreeMap<String, Quantity>>;
    let same = |a: Option<&List>, b: Option<&List>| {
        let all = |list: Option<&List>| {
            let list = list.and_then(Option::as_ref).into_iter().flatten();
            list.map(|(name, amount)| (name.clone(), parsed(amount))).collect::<BTreeMap<_, _>>()
        };
        all(a) == all(b)
    };
    same(a.map(|a| &a.capacity), b.map(|b| &b.capacity)) && same(a.map(|a| &a.allocatable), b.map(|b| &b.allocatable))
}

fn handlers(handlers: &BTreeMap<String, Abilities>) -> Option<Vec<NodeRuntimeHandler>> {
    let list = handlers.iter().map(|(name, abilities)| NodeRuntimeHandler {
        name: Some(name.clone()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(abilities.recursive_read_only),
            user_namespaces: Some(abilities.user_namespaces),
        }),
    });
    (!handlers.is_empty()).then(|| list.collect())
}

fn quantities(amounts: &Amounts, config: &Config, machine: &Machine, allocatable: bool) -> BTreeMap<String, Quantity> {
    let cpu = if amounts.cpu_milli % 1000 == 0 {
        (amounts.cpu_milli / 1000).to_string()
    } else {
        format!("{}m", amounts.cpu_milli)
    };
    let disk = if allocatable {
        amounts.ephemeral_storage.to_string()
    } else {
        format!("{}Ki", amounts.ephemeral_storage / 1024)
    };
    let mut list = BTreeMap::from([
        ("cpu".to_owned(), Quantity(cpu)),
        ("memory".to_owned(), Quantity(format!("{}Ki", amounts.memory / 1024))),
        ("ephemeral-storage".to_owned(), Quantity(disk)),
        ("pods".to_owned(), Quantity(config.max_pods.to_string())),
    ]);
    for (size, bytes) in &machine.hugepages {
        let unit = if size % (1 << 30) == 0 {
            format!("{}Gi", size >> 30)
        } else if size % (1 << 20) == 0 {
            format!("{}Mi", size >> 20)
        } else {
            format!("{}Ki", size >> 10)
        };
        list.insert(format!("hugepages-{unit}"), Quantity(bytes.to_string()));
    }
    list
}

fn conditions(reading: &Reading, old: &NodeStatus, now: Timestamp) -> Vec<NodeCondition> {
    let [memory, disk, pids] =
        [Condition::Memory, Condition::Disk, Condition::Pid].map(|condition| reading.pressure.contains(&condition));
    let word = |bad: bool, no: &'static str, yes: &'static str| if bad { yes } else { no };
    let pressure = |name: &str, bad: bool, reason: &str, message: &str| {
        (name.to_owned(), bad, reason.to_owned(), message.to_owned())
    };
    let list = [
        pressure(
            "MemoryPressure",
            memory,
            word(memory, "KubeletHasSufficientMemory", "KubeletHasInsufficientMemory"),
            word(memory, "kubelet has sufficient memory available", "kubelet has insufficient memory available"),
        ),
        pressure(
            "DiskPressure",
            disk,
            word(disk, "KubeletHasNoDiskPressure", "KubeletHasDiskPressure"),
            word(disk, "kubelet has no disk pressure", "kubelet has disk pressure"),
        ),
        pressure(
            "PIDPressure",
            pids,
            word(pids, "KubeletHasSufficientPID", "KubeletHasInsufficientPID"),
            word(pids, "kubelet has sufficient PID available", "kubelet has insufficient PID available"),
        ),
        if reading.problems.is_empty() {
            pressure("Ready", true, "KubeletReady", "kubelet is posting ready status")
        } else {
            let all = if reading.problems.len() == 1 {
                reading.problems[0].clone()
            } else {
                format!("[{}]", reading.problems.join(", "))
            };
            pressure("Ready", false, "KubeletNotReady", &all)
        },
    ];
    list.into_iter()
        .map(|(name, holds, reason, message)| {
            let status = if holds { "True" } else { "False" };
            let before = condition(old, &name).filter(|before| before.status == status);
            NodeCondition {
                last_heartbeat_time: Some(seconds(now)),
                last_transition_time: before
                    .and_then(|before| before.last_transition_time.clone())
                    .or_else(|| Some(seconds(now))),
                status: status.to_owned(),
                type_: name,
                reason: Some(reason),
                message: Some(message),
            }
        })
        .collect()
}

fn condition<'a>(status: &'a NodeStatus, name: &str) -> Option<&'a NodeCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == name)
}

fn images(images: &[v1::Image]) -> Vec<ContainerImage> {
    let mut sorted: Vec<&v1::Image> = images.iter().collect();
    sorted.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    sorted
        .into_iter()
        .take(IMAGES)
        .map(|image| ContainerImage {
            names: Some(image.repo_digests.iter().chain(&image.repo_tags).take(NAMES).cloned().collect()),
            size_bytes: i64::try_from(image.size).ok(),
        })
        .collect()
}

/// Whether two statuses say the same, but for the time they were made.
pub fn same(a: &NodeStatus, b: &NodeStatus) -> bool {
    let timeless = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        // Others' conditions are none of our business.
        if let Some(list) = &mut status.conditions {
            list.retain(|c| ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].contains(&c.type_.as_str()));
            list.sort_by(|a, b| a.type_.cmp(&b.type_));
        }
        status.volumes_attached = None;
        status
    };
    timeless(a) == timeless(b)
}

/// What makes the new status of any of those before, as a strategic merge patch: of the one written last, which the API
/// certainly had, and of the one seen last, which others may have changed since.
pub fn patch(before: &[&NodeStatus], new: &NodeStatus) -> Value {
    let (before, after): (Vec<Value>, Value) = (before.iter().map(|status| json!(status)).collect(), json!(new));
    let mut status = serde_json::Map::new();
    for (field, value) in after.as_object().into_iter().flatten() {
        // Conditions are merged by type and carry the time of this report; attached volumes are the controller's.
        let differs = before.iter().any(|before| before.get(field) != Some(value));
        if field == "conditions" || (differs && field != "volumesAttached") {
            let value = match (field.as_str(), value) {
                // Addresses would be merged by type, and a node may have several of one type.
                ("addresses", Value::Array(list)) => {
                    Value::Array(list.iter().cloned().chain([json!({"$patch": "replace"})]).collect())
                }
                // A resource that is gone would stay.
                ("capacity" | "allocatable", Value::Object(amounts)) => {
                    let had = before.iter().filter_map(|before| before.get(field)?.as_object()).flatten();
                    let gone = had.map(|(name, _)| (name.clone(), Value::Null));
                    Value::Object(gone.chain(amounts.clone()).collect())
                }
                _ => value.clone(),
            };
            status.insert(field.clone(), value);
        }
    }
    // A node that has let go of its last volume says so.
    let in_use = |status: &Value| status.get("volumesInUse").is_some();
    if !in_use(&after) && before.iter().any(in_use) {
        status.insert("volumesInUse".to_owned(), Value::Null);
    }
    json!({"status": status})
}

/// Events for the conditions that changed.
pub fn changes(old: &NodeStatus, new: &NodeStatus) -> Vec<&'static str> {
    let events = [
        ("MemoryPressure", "NodeHasSufficientMemory", "NodeHasInsufficientMemory"),
        ("DiskPressure", "NodeHasNoDiskPressure", "NodeHasDiskPressure"),
        ("PIDPressure", "NodeHasSufficientPID", "NodeHasInsufficientPID"),
        ("Ready", "NodeNotReady", "NodeReady"),
    ];
    let holds = |status: &NodeStatus, name| condition(status, name).map(|c| c.status == "True");
    events
        .into_iter()
        .filter(|(name, ..)| holds(old, name) != holds(new, name))
        .map(|(name, no, yes)| if holds(new, name) == Some(true) { yes } else { no })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            name: "n".into(),
            hostname: "h".into(),
            addresses: vec!["192.168.1.1".into()],
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: vec![],
            max_pods: 110,
            reserved_cpu_milli: 100,
            reserved_memory: 0,
            reserved_storage: 0,
            reserved_pids: 0,
            enforced: true,
            eviction: crate::pressure::Config::default().thresholds,
            port: 10250,
            root: "/".into(),
        }
    }

    fn reading(problems: &[&str]) -> Reading {
        let machine = Machine {
            processors: 2,
            memory: 1 << 30,
            memory_available: 1 << 29,
            disk: 1 << 40,
            disk_available: 1 << 39,
            hugepages: vec![(2 << 20, 0)],
            ..Machine::default()
        };
        Reading { machine, problems: problems.iter().map(|p| (*p).to_owned()).collect(), ..Reading::default() }
    }

    #[test]
    fn capacity_is_told_in_the_usual_units() {
        let status = status(&config(), &reading(&[]), &NodeStatus::default(), Timestamp::UNIX_EPOCH);
        let get = |list: &Option<BTreeMap<String, Quantity>>, name: &str| list.as_ref().unwrap()[name].0.clone();
        assert_eq!(get(&status.capacity, "cpu"), "2");
        assert_eq!(get(&status.allocatable, "cpu"), "1900m");
        assert_eq!(get(&status.capacity, "memory"), "1048576Ki");
        assert_eq!(get(&status.allocatable, "memory"), "946176Ki");
        assert_eq!(get(&status.capacity, "hugepages-2Mi"), "0");
        assert_eq!(get(&status.capacity, "pods"), "110");
    }

    #[test]
    fn what_others_put_into_the_capacity_is_allocatable_and_stays_until_they_take_it_away() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let made = |old: &NodeStatus| status(&config(), &reading(&[]), old, at(1));
        let first = made(&NodeStatus::default());
        let mut patched = first.clone();
        let list = patched.capacity.as_mut().unwrap();
        for (name, amount) in [("example.com/dongle", "4"), ("hugepages-1Gi", "0"), ("cpu", "64")] {
            list.insert(name.into(), Quantity(amount.into()));
        }
        let second = made(&patched);
        assert!(!same_resources(Some(&second), Some(&patched)));
        let get = |status: &NodeStatus, name: &str| {
            let of = |list: &Option<BTreeMap<String, Quantity>>| list.as_ref().unwrap().get(name).map(|q| q.0.clone());
            (of(&status.capacity), of(&status.allocatable))
        };
        let both = |a: &str, b: &str| (Some(a.to_owned()), Some(b.to_owned()));
        assert_eq!(get(&second, "example.com/dongle"), both("4", "4"));
        assert_eq!(get(&second, "hugepages-1Gi"), (None, None));
        assert_eq!(get(&second, "cpu"), both("2", "1900m"));
        assert_eq!(get(&made(&second), "example.com/dongle"), both("4", "4"), "it stays");
        let change = patch(&[&first, &patched], &second);
        assert_eq!(change["status"]["capacity"]["hugepages-1Gi"], Value::Null);
        assert_eq!(change["status"]["allocatable"]["example.com/dongle"], "4");

        let mut taken = second.clone();
        taken.capacity.as_mut().unwrap().remove("example.com/dongle");
        let third = made(&taken);
        assert_eq!(get(&third, "example.com/dongle"), (None, None));
        let change = patch(&[&second, &taken], &third);
        assert!(change["status"]["allocatable"].as_object().unwrap()["example.com/dongle"].is_null());
    }

    #[test]
    fn a_node_that_starts_offers_no_device_of_before() {
        let list = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect())
        };
        let own = [("cpu", "2"), ("hugepages-2Mi", "4Mi"), ("example.com/dongle", "3"), ("example.com/none", "0")];
        let old = NodeStatus { capacity: list(&own), allocatable: list(&own[..3]), ..NodeStatus::default() };
        let zero = json!({"example.com/dongle": "0"});
        assert_eq!(without_extended(&old), Some(json!({"status": {"capacity": zero, "allocatable": zero}})));
        assert_eq!(without_extended(&NodeStatus { capacity: list(&own[..2]), ..NodeStatus::default() }), None);
    }

    #[test]
    fn the_same_amount_written_otherwise_is_no_change() {
        let of = |memory: &str| {
            let list = BTreeMap::from([("memory".to_owned(), Quantity(memory.to_owned()))]);
            NodeStatus { capacity: Some(list), ..NodeStatus::default() }
        };
        assert!(same_resources(Some(&of("1048576Ki")), Some(&of("1Gi"))));
        assert!(!same_resources(Some(&of("1048576Ki")), Some(&of("2Gi"))));
        assert!(!same_resources(Some(&of("1Gi")), None));
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = status(&config(), &reading(&[]), &NodeStatus::default(), at(1));
        let second = status(&config(), &reading(&[]), &first, at(2));
        assert!(same(&first, &second) && first != second);
        assert_eq!(condition(&second, "Ready").unwrap().last_transition_time, Some(seconds(at(1))));
        let third = status(&config(), &reading(&["container runtime is down"]), &second, at(3));
        let ready = condition(&third, "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.message.as_deref()), ("False", Some("container runtime is down")));
        assert_eq!(changes(&second, &third), ["NodeNotReady"]);
        let patch = patch(&[&second], &third);
        assert_eq!(patch["status"].as_object().unwrap().keys().collect::<Vec<_>>(), ["conditions"]);
    }
}
