//! Node ports of Services: which numbers a Service needs, and the bitmap that says which are taken.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use machinery::gvk::GroupResource;
use machinery::object::encode;
use machinery::status::{ApiError, FieldError};
use machinery::{Value, value};
use serde_json::json;
use store::{Expect, Op, Outcome, Txn};

use super::{Allocator, Reservation, invalid};
use crate::verbs::Api;
use crate::verbs::commit::{MAX_RACES, unavailable};

/// Where the bitmap of node ports is.
const NODE_PORTS_KEY: &str = "/registry/ranges/servicenodeports";
/// What a dry run shows instead of a port that would be allocated is above this.
const IMAGINED: u16 = 32_768;

/// The node ports of a Service, without that of its health check.
pub fn of_ports(service: &Value) -> Vec<u16> {
    let ports = value::list(service, "spec.ports").iter().map(|port| value::int(port, "nodePort").unwrap_or(0));
    ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| *port != 0).collect()
}

/// Everything a Service holds of the range.
pub fn held(service: &Value) -> Vec<u16> {
    let mut held = if uses(service) { of_ports(service) } else { Vec::new() };
    if checks_health(service) {
        held.extend(value::int(service, "spec.healthCheckNodePort").and_then(|port| u16::try_from(port).ok()));
    }
    held
}

fn uses(service: &Value) -> bool {
    matches!(value::text(service, "spec.type"), "NodePort" | "LoadBalancer")
}

fn checks_health(service: &Value) -> bool {
    value::text(service, "spec.type") == "LoadBalancer" && value::text(service, "spec.externalTrafficPolicy") == "Local"
}

impl Allocator {
    /// Takes the node ports of a new or changed Service. Ports with one number and several protocols share a node port when
    /// the Service is new.
    pub(super) async fn reserve_ports(
        &self,
        api: &Api,
        new: &mut Value,
        old: Option<&Value>,
        reservation: &mut Reservation,
    ) -> Result<(), ApiError> {
        if uses(new) {
            let allocates = value::text(new, "spec.type") == "NodePort"
                || value::at(new, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
            let held = old.map(of_ports).unwrap_or_default();
            let requests: Vec<(i64, i64)> = value::list(new, "spec.ports")
                .iter()
                .map(|port| (value::int(port, "port").unwrap_or(0), value::int(port, "nodePort").unwrap_or(0)))
                .collect();
            let mut named: HashMap<i64, i64> = HashMap::new();
            for (number, requested) in requests.iter().filter(|(_, requested)| *requested != 0) {
                named.entry(*number).or_insert(*requested);
            }
            let (mut given, mut taken): (HashMap<i64, u16>, HashSet<u16>) = (HashMap::new(), HashSet::new());
            for (index, (number, requested)) in requests.iter().copied().enumerate() {
                if requested == 0 && !allocates {
                    continue;
                }
                let known = given.get(&number).copied().filter(|_| old.is_none());
                let later = || named.get(&number).copied().filter(|_| old.is_none());
                let requested = if requested == 0 && known.is_none() { later().unwrap_or(0) } else { requested };
                let port = match (requested, known) {
                    (0, Some(port)) => port,
                    (0, None) => {
                        let full = || ApiError::internal("failed to allocate a nodePort: range is full");
                        self.take_any_port(api, reservation).await?.ok_or_else(full)?
                    }
                    (requested, known) => {
                        let as_port = u16::try_from(requested).ok();
                        let is_ours = as_port.is_some_and(|port| {
                            known == Some(port) || held.contains(&port) || old.is_some() && taken.contains(&port)
                        });
                        if !is_ours {
                            let taken = self.take_port(api, requested, reservation).await?;
                            let path = format!("spec.ports[{index}].nodePort");
                            taken.map_err(|why| invalid(new, FieldError::invalid(path, requested, why)))?;
                        }
                        // What is no port at all passes a dry run, and stays what it is.
                        let Some(as_port) = as_port else { continue };
                        as_port
                    }
                };
                given.entry(number).or_insert(port);
                taken.insert(port);
                if let Some(entry) = value::list_mut(new, "spec.ports").get_mut(index) {
                    value::set(entry, "nodePort", port);
                }
            }
        }
        if checks_health(new) && !old.is_some_and(checks_health) {
            match value::int(new, "spec.healthCheckNodePort").unwrap_or(0) {
                0 => {
                    let full = || ApiError::internal("failed to allocate a HealthCheck NodePort 0: range is full");
                    let port = self.take_any_port(api, reservation).await?.ok_or_else(full)?;
                    value::set(new, "spec.healthCheckNodePort", port);
                }
                requested => self.take_port(api, requested, reservation).await?.map_err(|why| {
                    ApiError::internal(format!("failed to allocate requested HealthCheck NodePort {requested}: {why}"))
                })?,
            }
        }
        Ok(())
    }

    /// Takes the port that the user named, or says why not.
    async fn take_port(
        &self,
        api: &Api,
        requested: i64,
        reservation: &mut Reservation,
    ) -> Result<Result<(), String>, ApiError> {
        let (low, high) = (self.node_ports.start(), self.node_ports.end());
        // A dry run asks whether the port is taken, which no port beyond the range is.
        if reservation.dry_run && u16::try_from(requested).ok().is_none_or(|port| !self.node_ports.contains(&port)) {
            return Ok(Ok(()));
        }
        let Some(port) = u16::try_from(requested).ok().filter(|port| self.node_ports.contains(port)) else {
            let why = format!("provided port is not in the valid range. The range of valid ports is {low}-{high}");
            return Ok(Err(why));
        };
        let offset = usize::from(port - low);
        let mut free = false;
        self.change_bits(api, |bits, _| {
            free = !bits.get(offset);
            bits.set(offset, true);
            free && !reservation.dry_run
        })
        .await?;
        if !free || reservation.ports.contains(&port) {
            return Ok(Err("provided port is already allocated".to_owned()));
        }
        reservation.ports.push(port);
        Ok(Ok(()))
    }

    /// Takes a free port; `None` if there is none.
    async fn take_any_port(&self, api: &Api, reservation: &mut Reservation) -> Result<Option<u16>, ApiError> {
        let mut chosen = reservation.ports.iter().max().copied().unwrap_or(IMAGINED).checked_add(1);
        if !reservation.dry_run {
            self.change_bits(api, |bits, size| {
                let start = rand::random_range(0..size);
                let free = (0..size).map(|step| (start + step) % size).find(|offset| !bits.get(*offset));
                chosen =
                    free.and_then(|offset| u16::try_from(offset).ok()).map(|offset| self.node_ports.start() + offset);
                free.map(|offset| bits.set(offset, true)).is_some()
            })
            .await?;
        }
        reservation.ports.extend(chosen);
        Ok(chosen)
    }

    pub(super) async fn give_back_ports(&self, api: &Api, ports: &[u16]) {
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

    /// A compare-and-swap of the bitmap, as often as somebody else is faster, within the limit of every change. `change` says
    /// whether it changed anything.
    async fn change_bits(&self, api: &Api, mut change: impl FnMut(&mut Bits, usize) -> bool) -> Result<(), ApiError> {
        let size = usize::from(self.node_ports.end() - self.node_ports.start()) + 1;
        let mut current = api.store.get(NODE_PORTS_KEY).await.map_err(unavailable)?;
        for _ in 0..MAX_RACES {
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
            let txn = Txn { key: NODE_PORTS_KEY.into(), expect, op, write: None, note: Default::default() };
            match api.store.txn(txn).await.map_err(unavailable)? {
                Outcome::Committed(_) => return Ok(()),
                Outcome::Conflict(record) => current = record,
            }
        }
        Err(ApiError::stale(&GroupResource::new("", "servicenodeportallocations"), ""))
    }
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
    fn bits_survive_their_encoding() {
        let mut bits = Bits::decode("", 2768);
        bits.set(0, true);
        bits.set(2767, true);
        let bits = Bits::decode(&bits.encode(), 2768);
        assert!(bits.get(0) && bits.get(2767) && !bits.get(1));
    }
}
