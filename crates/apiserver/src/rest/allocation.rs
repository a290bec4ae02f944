//! Cluster IPs and node ports of Services.
//!
//! Several API servers may share one store, so an allocation is itself a write: an IP is taken by creating the
//! `IPAddress` object of its name, a node port by setting its bit in the range's bitmap by compare-and-swap. Both are
//! where upstream keeps them. What was taken for a write that did not happen is given back.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use machinery::object::encode;
use machinery::status::{ApiError, FieldError};
use machinery::{Value, value};
use serde_json::json;
use store::{Expect, Op, Outcome, Txn};

use super::storage::unavailable;
use super::{Api, Call};
use crate::registry::Resource;

/// Where the bitmap of node ports is.
const NODE_PORTS_KEY: &str = "/registry/ranges/servicenodeports";
/// How often a random address is tried before the range is walked.
const RANDOM_TRIES: usize = 16;

/// A range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: u32,
    bits: u8,
}

impl Cidr {
    /// Reads `10.96.0.0/16`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let bits: u8 = bits.parse().ok().filter(|bits| (8..=30).contains(bits))?;
        let address = u32::from(address.parse::<Ipv4Addr>().ok()?);
        Some(Self { base: address & (u32::MAX << (32 - bits)), bits })
    }

    /// How many addresses it has.
    fn size(self) -> u32 {
        1 << (32 - self.bits)
    }

    /// The address at an offset.
    pub fn at(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from(self.base + offset)
    }

    /// Whether a host address is in the range: neither the network's nor the broadcast address.
    fn has(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(self.base);
        offset > 0 && offset < self.size() - 1
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.bits)
    }
}

/// The ranges that Services draw from.
pub struct Allocator {
    /// Cluster IPs.
    pub service_range: Cidr,
    /// Node ports.
    pub node_ports: RangeInclusive<u16>,
}

/// What one write took.
#[derive(Debug, Default)]
pub struct Reservation {
    ips: Vec<String>,
    ports: Vec<u16>,
}

impl Reservation {
    /// The write happened, or may have.
    pub fn keep(&mut self) {
        self.ips.clear();
        self.ports.clear();
    }

    /// The write did not happen.
    pub async fn release(self, api: &Api) {
        api.allocator.give_back(api, &self.ips, &self.ports).await;
    }
}

impl Allocator {
    /// Takes what a new or changed Service needs, and writes it into the Service.
    pub async fn reserve(
        &self,
        api: &Api,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Reservation, ApiError> {
        if !is_service(call.resource) || !call.info.subresource.is_empty() {
            return Ok(Reservation::default());
        }
        let mut reservation = Reservation::default();
        let outcome = async {
            self.reserve_ip(api, new, old, dry_run, &mut reservation).await?;
            self.reserve_ports(api, new, old, dry_run, &mut reservation).await
        };
        let outcome: Result<(), ApiError> = outcome.await;
        if let Err(error) = outcome {
            reservation.release(api).await;
            return Err(error);
        }
        if let Some(old) = old
            && !dry_run
        {
            self.release_dropped(api, old, new).await;
        }
        Ok(reservation)
    }

    /// Gives back everything a removed Service held.
    pub async fn release_all(&self, api: &Api, resource: &Resource, service: &Value) {
        if is_service(resource) {
            self.give_back(api, &cluster_ips(service), &node_ports(service)).await;
        }
    }

    async fn reserve_ip(
        &self,
        api: &Api,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
        reservation: &mut Reservation,
    ) -> Result<(), ApiError> {
        let kind = value::text(new, "spec.type").to_owned();
        if kind == "ExternalName" {
            for path in ["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"] {
                value::remove(new, path);
            }
            return Ok(());
        }
        let wanted = value::text(new, "spec.clusterIP").to_owned();
        let held = old.map(cluster_ips).unwrap_or_default();
        let address = match wanted.as_str() {
            "None" => "None".to_owned(),
            "" => match held.first() {
                Some(address) => address.clone(),
                None => self.take_any(api, new, dry_run, reservation).await?,
            },
            address if held.iter().any(|held| held == address) => address.to_owned(),
            address => self.take(api, new, address, dry_run, reservation).await?,
        };
        value::set(new, "spec.clusterIP", address.as_str());
        value::set(new, "spec.clusterIPs", vec![address]);
        value::set_default(new, "spec.ipFamilies", vec!["IPv4"]);
        value::set_default(new, "spec.ipFamilyPolicy", "SingleStack");
        Ok(())
    }

    /// Takes the address that the user named.
    async fn take(
        &self,
        api: &Api,
        service: &Value,
        address: &str,
        dry_run: bool,
        reservation: &mut Reservation,
    ) -> Result<String, ApiError> {
        let refuse = |why: String| {
            let why = format!("failed to allocate IP {address}: {why}");
            let error = FieldError::invalid("spec.clusterIPs", json!([address]), why);
            ApiError::invalid("", "Service", value::text(service, "metadata.name"), &[error])
        };
        let parsed: Option<Ipv4Addr> = address.parse().ok();
        let Some(parsed) = parsed.filter(|parsed| self.service_range.has(*parsed)) else {
            let why = format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                self.service_range
            );
            return Err(refuse(why));
        };
        let free = match dry_run {
            true => {
                let known = api.registry.stored("networking.k8s.io", "ipaddresses");
                known.is_none_or(|known| known.cache.get(&parsed.to_string()).is_none())
            }
            false => self.claim(api, service, parsed).await?,
        };
        if free {
            if !dry_run {
                reservation.ips.push(parsed.to_string());
            }
            return Ok(parsed.to_string());
        }
        Err(refuse("provided IP is already allocated".to_owned()))
    }

    /// Takes a free address: at random from the upper part of the range (the lower is left to users who choose), then whatever is left.
    async fn take_any(
        &self,
        api: &Api,
        service: &Value,
        dry_run: bool,
        reservation: &mut Reservation,
    ) -> Result<String, ApiError> {
        let size = self.service_range.size();
        let reserved = (size / 16).clamp(16, 256).min(size / 2);
        let random = (0..RANDOM_TRIES).map(|_| rand::random_range(reserved..size - 1));
        for offset in random.chain((1..size - 1).rev()) {
            let address = self.service_range.at(offset);
            let known = api.registry.stored("networking.k8s.io", "ipaddresses");
            if known.is_some_and(|known| known.cache.get(&address.to_string()).is_some()) {
                continue;
            }
            if dry_run {
                return Ok(address.to_string());
            }
            if self.claim(api, service, address).await? {
                reservation.ips.push(address.to_string());
                return Ok(address.to_string());
            }
        }
        Err(ApiError::internal(format!("failed to allocate a serviceIP: range {} is full", self.service_range)))
    }

    /// Creates the address' object; false if somebody has it.
    async fn claim(&self, api: &Api, service: &Value, address: Ipv4Addr) -> Result<bool, ApiError> {
        let Some(addresses) = api.registry.stored("networking.k8s.io", "ipaddresses") else { return Ok(true) };
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
            "metadata": {
                "name": address.to_string(), "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": api.now(),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": "IPv4",
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
            "spec": {"parentRef": {
                "resource": "services",
                "namespace": value::text(service, "metadata.namespace"),
                "name": value::text(service, "metadata.name"),
            }},
        });
        Ok(api.insert(addresses, &address.to_string(), &object, false).await?.is_some())
    }

    async fn reserve_ports(
        &self,
        api: &Api,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
        reservation: &mut Reservation,
    ) -> Result<(), ApiError> {
        let kind = value::text(new, "spec.type").to_owned();
        let allocates = value::at(new, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
        let held = old.map(node_ports).unwrap_or_default();
        let old_ports = old.map(|old| value::list(old, "spec.ports").to_vec()).unwrap_or_default();
        let mut taken: Vec<(u16, String)> = Vec::new();
        let name = value::text(new, "metadata.name").to_owned();
        if !matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            return Ok(());
        }
        for (index, port) in value::list_mut(new, "spec.ports").iter_mut().enumerate() {
            let protocol = value::text(port, "protocol").to_owned();
            let same = old_ports.iter().find(|old| {
                value::int(old, "port") == value::int(port, "port") && value::text(old, "protocol") == protocol
            });
            let inherited = same.and_then(|old| value::int(old, "nodePort")).unwrap_or(0);
            let asked = value::int(port, "nodePort").filter(|asked| *asked != 0).unwrap_or(inherited);
            let path = format!("spec.ports[{index}].nodePort");
            let number = match u16::try_from(asked) {
                Ok(0) if kind == "LoadBalancer" && !allocates => continue,
                Ok(0) => match dry_run {
                    true => continue,
                    false => self
                        .set_bit(api, None)
                        .await?
                        .ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?,
                },
                // One number may serve several protocols of one Service.
                Ok(number) if held.contains(&number) || taken.iter().any(|(t, p)| *t == number && *p != protocol) => {
                    number
                }
                number => {
                    let refuse = |why: String| {
                        ApiError::invalid("", "Service", &name, &[FieldError::invalid(path.clone(), asked, why)])
                    };
                    let (low, high) = (self.node_ports.start(), self.node_ports.end());
                    let number = number.ok().filter(|number| self.node_ports.contains(number)).ok_or_else(|| {
                        refuse(format!(
                            "provided port is not in the valid range. The range of valid ports is {low}-{high}"
                        ))
                    })?;
                    if !self.take_port(api, number, dry_run).await? {
                        return Err(refuse("provided port is already allocated".to_owned()));
                    }
                    number
                }
            };
            if !held.contains(&number) && !dry_run {
                reservation.ports.push(number);
            }
            taken.push((number, protocol));
            value::set(port, "nodePort", number);
        }
        if kind == "LoadBalancer" && value::text(new, "spec.externalTrafficPolicy") == "Local" {
            let inherited = old.and_then(|old| value::int(old, "spec.healthCheckNodePort")).filter(|port| *port != 0);
            let asked = value::int(new, "spec.healthCheckNodePort").unwrap_or(0);
            let in_range = u16::try_from(asked).ok().filter(|port| self.node_ports.contains(port));
            if let Some(port) = in_range.filter(|port| inherited != Some(i64::from(*port))) {
                if !self.take_port(api, port, dry_run).await? {
                    return Err(ApiError::internal(format!(
                        "failed to allocate requested HealthCheck NodePort {port}: provided port is already allocated"
                    )));
                }
                if !dry_run {
                    reservation.ports.push(port);
                }
            }
            if asked == 0 && !dry_run {
                let number = match inherited {
                    Some(number) => number,
                    None => {
                        let full = || ApiError::internal("failed to allocate a HealthCheck NodePort: range is full");
                        let number = self.set_bit(api, None).await?.ok_or_else(full)?;
                        reservation.ports.push(number);
                        i64::from(number)
                    }
                };
                value::set(new, "spec.healthCheckNodePort", number);
            }
        }
        Ok(())
    }

    /// Sets a port's bit, or any free one's. `None` if it is taken, or none is free.
    /// Whether a port was free; then it is taken, unless this is a dry run.
    async fn take_port(&self, api: &Api, port: u16, dry_run: bool) -> Result<bool, ApiError> {
        if !dry_run {
            return Ok(self.set_bit(api, Some(port)).await?.is_some());
        }
        let mut free = false;
        self.change_bits(api, |bits, _| {
            free = !bits.get(usize::from(port - self.node_ports.start()));
            false
        })
        .await?;
        Ok(free)
    }

    async fn set_bit(&self, api: &Api, wanted: Option<u16>) -> Result<Option<u16>, ApiError> {
        let mut chosen = None;
        self.change_bits(api, |bits, size| {
            let free = |offset: usize| !bits.get(offset);
            chosen = match wanted {
                Some(port) => Some(usize::from(port - self.node_ports.start())).filter(|offset| free(*offset)),
                None => {
                    let start = rand::random_range(0..size);
                    (0..size).map(|step| (start + step) % size).find(|offset| free(*offset))
                }
            };
            if let Some(offset) = chosen {
                bits.set(offset, true);
            }
            chosen.is_some()
        })
        .await?;
        Ok(chosen.and_then(|offset| u16::try_from(offset).ok()).map(|offset| self.node_ports.start() + offset))
    }

    /// A compare-and-swap of the bitmap. `change` says whether it changed anything.
    async fn change_bits(&self, api: &Api, mut change: impl FnMut(&mut Bits, usize) -> bool) -> Result<(), ApiError> {
        let size = usize::from(self.node_ports.end() - self.node_ports.start()) + 1;
        let mut current = api.store.get(NODE_PORTS_KEY).await.map_err(unavailable)?;
        loop {
            let tree: Value = match &current {
                Some(record) => serde_json::from_slice(&record.value).map_err(ApiError::internal)?,
                None => Value::Null,
            };
            let mut bits = Bits::decode(value::text(&tree, "data"), size);
            if !change(&mut bits, size) {
                return Ok(());
            }
            let tree = json!({
                "apiVersion": "v1", "kind": "RangeAllocation", "metadata": {},
                "range": format!("{}-{}", self.node_ports.start(), self.node_ports.end()), "data": bits.encode(),
            });
            let expect = current.as_ref().map_or(Expect::Absent, |record| Expect::At(record.revision));
            let op = Op::Put { value: encode(&tree), ttl: None };
            let txn = Txn { key: NODE_PORTS_KEY.into(), expect, op };
            match api.store.txn(txn).await.map_err(unavailable)? {
                Outcome::Committed(_) => return Ok(()),
                Outcome::Conflict(record) => current = record,
            }
        }
    }

    /// What the old Service held and the new one does not.
    async fn release_dropped(&self, api: &Api, old: &Value, new: &Value) {
        let (kept_ips, kept_ports) = (cluster_ips(new), node_ports(new));
        let ips: Vec<String> = cluster_ips(old).into_iter().filter(|ip| !kept_ips.contains(ip)).collect();
        let ports: Vec<u16> = node_ports(old).into_iter().filter(|port| !kept_ports.contains(port)).collect();
        self.give_back(api, &ips, &ports).await;
    }

    /// A failure here costs an address until the next start repairs it, so it is logged and not the client's problem.
    async fn give_back(&self, api: &Api, ips: &[String], ports: &[u16]) {
        if let Some(addresses) = api.registry.stored("networking.k8s.io", "ipaddresses") {
            for ip in ips {
                let deleted = api.change(addresses, ip, false, |_, _| Ok(super::storage::Change::Delete)).await;
                if let Err(error) = deleted {
                    tracing::warn!(%ip, %error, "a cluster IP could not be given back");
                }
            }
        }
        if ports.is_empty() {
            return;
        }
        let start = *self.node_ports.start();
        let cleared = self.change_bits(api, |bits, _| {
            ports.iter().filter_map(|port| port.checked_sub(start)).for_each(|offset| bits.set(offset.into(), false));
            true
        });
        if let Err(error) = cleared.await {
            tracing::warn!(?ports, %error, "node ports could not be given back");
        }
    }
}

fn is_service(resource: &Resource) -> bool {
    resource.name.group.is_empty() && resource.name.resource == "services"
}

fn cluster_ips(service: &Value) -> Vec<String> {
    value::list(service, "spec.clusterIPs")
        .iter()
        .filter_map(Value::as_str)
        .filter(|ip| !ip.is_empty() && *ip != "None")
        .map(str::to_owned)
        .collect()
}

fn node_ports(service: &Value) -> Vec<u16> {
    let ports = value::list(service, "spec.ports").iter().map(|port| value::int(port, "nodePort"));
    ports
        .chain([value::int(service, "spec.healthCheckNodePort")])
        .flatten()
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0)
        .collect()
}

/// A bitmap in the form of Go's `big.Int` bytes: most significant byte first.
struct Bits(Vec<u8>);

impl Bits {
    fn decode(text: &str, size: usize) -> Self {
        let mut bytes = BASE64.decode(text).unwrap_or_default();
        bytes.reverse();
        bytes.resize(size.div_ceil(8), 0);
        Self(bytes)
    }

    fn encode(&self) -> String {
        let mut bytes = self.0.clone();
        bytes.reverse();
        BASE64.encode(bytes)
    }

    fn get(&self, offset: usize) -> bool {
        self.0.get(offset / 8).is_some_and(|byte| byte & (1 << (offset % 8)) != 0)
    }

    fn set(&mut self, offset: usize, on: bool) {
        if let Some(byte) = self.0.get_mut(offset / 8) {
            let bit = 1 << (offset % 8);
            if on { *byte |= bit } else { *byte &= !bit }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_know_their_hosts() {
        let range = Cidr::parse("10.96.0.7/16").expect("a range");
        assert_eq!(range.to_string(), "10.96.0.0/16");
        assert_eq!(range.at(10).to_string(), "10.96.0.10");
        assert!(range.has("10.96.0.1".parse().expect("an address")));
        for outside in ["10.96.0.0", "10.96.255.255", "10.97.0.1"] {
            assert!(!range.has(outside.parse().expect("an address")), "{outside}");
        }
        assert!(Cidr::parse("10.96.0.0").is_none() && Cidr::parse("10.96.0.0/33").is_none());
    }

    #[test]
    fn bits_survive_their_encoding() {
        let mut bits = Bits::decode("", 2768);
        bits.set(0, true);
        bits.set(2767, true);
        let bits = Bits::decode(&bits.encode(), 2768);
        assert!(bits.get(0) && bits.get(2767) && !bits.get(1));
    }
}
