//! Cluster IPs and node ports of Services.
//!
//! Several API servers may share one store, so an allocation is itself a write: an IP is taken by creating the
//! `IPAddress` object of its name, a node port by setting its bit in the range's bitmap by compare-and-swap. Both are
//! where upstream keeps them. What was taken for a write that did not happen is given back, and what a Service no longer
//! has is given back once that is written.
//!
//! Addresses come from the ranges of the ServiceCIDR objects, which users may add to; the server's own options only say which
//! families there are.

mod addresses;
mod ports;

use std::net::IpAddr;
use std::ops::RangeInclusive;

use common::new_uuid;
use kinds::service;
use kinds::service::families::{self, Family};
use machinery::status::{ApiError, FieldError};
use machinery::{Value, names, value};
use serde_json::json;
use storage::cache::Filter;

pub use addresses::Cidr;

use crate::registry::Resource;
use crate::verbs::author::Target;
use crate::verbs::{Api, Call};

/// The ranges that Services draw from.
pub struct Allocator {
    /// Cluster IPs: a range for each family, that of the default one first.
    pub service_ranges: Vec<Cidr>,
    pub node_ports: RangeInclusive<u16>,
}

/// What one write took.
#[derive(Debug, Default)]
pub struct Reservation {
    dry_run: bool,
    ips: Vec<String>,
    ports: Vec<u16>,
}

impl Reservation {
    /// The write happened: what the old object had and the new one has not is free.
    pub async fn commit(self, api: &Api, call: &Call<'_>, old: Option<&Value>, new: &Value) {
        let Some(old) = old.filter(|_| concerns(call) && !self.dry_run) else { return };
        let (kept_ips, kept_ports) = (cluster_ips(new), ports::held(new));
        let ips: Vec<String> = cluster_ips(old).into_iter().filter(|ip| !kept_ips.contains(ip)).collect();
        let ports: Vec<u16> = ports::held(old).into_iter().filter(|port| !kept_ports.contains(port)).collect();
        api.allocator.give_back(api, &ips, &ports).await;
    }

    /// The write did not happen.
    pub async fn release(self, api: &Api) {
        if !self.dry_run {
            api.allocator.give_back(api, &self.ips, &self.ports).await;
        }
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
        let mut reservation = Reservation { dry_run, ..Reservation::default() };
        if !concerns(call) {
            return Ok(reservation);
        }
        service::complete(new, old);
        let configured: Vec<Family> = self.service_ranges.iter().map(|range| range.family()).collect();
        let settled = families::settle(new, old, &configured);
        settled.map_err(|errors| ApiError::invalid("", "Service", value::text(new, "metadata.name"), &errors))?;
        let outcome = async {
            self.reserve_ips(api, new, old, &mut reservation).await?;
            self.reserve_ports(api, new, old, &mut reservation).await
        };
        match outcome.await {
            Ok(()) => Ok(reservation),
            Err(error) => {
                reservation.release(api).await;
                Err(error)
            }
        }
    }

    /// Gives back everything a removed Service held.
    pub async fn release_all(&self, api: &Api, resource: &Resource, service: &Value) {
        if is_service(resource) {
            self.give_back(api, &cluster_ips(service), &ports::held(service)).await;
        }
    }

    /// An address for each family that has none yet: of a new Service all of them, of a changed one those that came.
    async fn reserve_ips(
        &self,
        api: &Api,
        new: &mut Value,
        old: Option<&Value>,
        reservation: &mut Reservation,
    ) -> Result<(), ApiError> {
        let is_name = |service: &Value| value::text(service, "spec.type") == "ExternalName";
        let old = old.filter(|old| !is_name(old));
        let headless = |service: &Value| value::list(service, "spec.clusterIPs").first().is_some_and(|ip| ip == "None");
        if is_name(new) || headless(old.unwrap_or(new)) || families::stays(new, old) {
            return Ok(());
        }
        let kept = old.map_or(0, |old| families::families(old).len());
        for (index, family) in families::families(new).into_iter().enumerate().skip(kept) {
            let mut addresses = value::list(new, "spec.clusterIPs").to_vec();
            let requested = addresses.get(index).and_then(Value::as_str).unwrap_or_default().to_owned();
            addresses.resize(addresses.len().max(index + 1), Value::from(""));
            value::set(new, "spec.clusterIPs", addresses.clone());
            let address = match requested.as_str() {
                "" => self.take_any_ip(api, new, family, reservation).await?,
                requested => self.take_ip(api, new, requested, reservation).await?,
            };
            addresses[index] = Value::from(address.as_str());
            value::set(new, "spec.clusterIPs", addresses);
            if index == 0 {
                value::set(new, "spec.clusterIP", address);
            }
        }
        Ok(())
    }

    /// Takes the address that the user named.
    async fn take_ip(
        &self,
        api: &Api,
        service: &Value,
        requested: &str,
        reservation: &mut Reservation,
    ) -> Result<String, ApiError> {
        let refuse = |why: &str| {
            let given = value::at(service, "spec.clusterIPs").cloned().unwrap_or_default();
            let why = format!("failed to allocate IP {requested}: {why}");
            invalid(service, FieldError::invalid("spec.clusterIPs", given, why))
        };
        let address = names::ip::parse_sloppy(requested)
            .ok_or_else(|| ApiError::internal(format!("failed to parse service IP {requested:?}")))?;
        if !self.ranges(api).into_iter().any(|range| range.has(address)) {
            return Err(refuse("the provided network does not match the current range"));
        }
        if !self.claim(api, service, address, reservation).await? {
            return Err(refuse("provided IP is already allocated"));
        }
        Ok(requested.to_owned())
    }

    /// Takes a free address of a family. A dry run shows that of the network instead, which nobody has.
    async fn take_any_ip(
        &self,
        api: &Api,
        service: &Value,
        family: Family,
        reservation: &mut Reservation,
    ) -> Result<String, ApiError> {
        let ranges = self.ranges(api).into_iter().filter(|range| range.family() == family);
        for range in ranges {
            if reservation.dry_run {
                return Ok(range.at(0).to_string());
            }
            for address in range.candidates() {
                let known = api.registry.stored("networking.k8s.io", "ipaddresses");
                let free = known.is_none_or(|known| known.cache.get(&address.to_string()).is_none());
                if free && self.claim(api, service, address, reservation).await? {
                    return Ok(address.to_string());
                }
            }
        }
        let name = value::text(service, "metadata.name");
        Err(ApiError::internal(format!("failed to allocate a serviceIP for Service {name:?}: range is full")))
    }

    /// The ranges that addresses come from now: of every ServiceCIDR that is not on its way out, and not said to be unready. The
    /// server's own are among them before its ServiceCIDR is written.
    fn ranges(&self, api: &Api) -> Vec<Cidr> {
        let mut ranges = self.service_ranges.clone();
        let known = api.registry.stored("networking.k8s.io", "servicecidrs");
        for object in known.into_iter().flat_map(|known| known.cache.list(&Filter::everything(), None, 0).0) {
            let object = object.to_value();
            let unready = value::list(&object, "status.conditions").iter().any(|condition| {
                value::text(condition, "type") == "Ready" && value::text(condition, "status") != "True"
            });
            let leaving = value::at(&object, "metadata.deletionTimestamp").is_some();
            if unready || leaving {
                continue;
            }
            for range in value::list(&object, "spec.cidrs").iter().filter_map(Value::as_str).filter_map(Cidr::parse) {
                // The server's own are in its ServiceCIDR too, and a full range is walked once.
                if !ranges.contains(&range) {
                    ranges.push(range);
                }
            }
        }
        ranges
    }

    /// Creates the address' object; false if somebody has it.
    async fn claim(
        &self,
        api: &Api,
        service: &Value,
        address: IpAddr,
        reservation: &mut Reservation,
    ) -> Result<bool, ApiError> {
        let Some(addresses) = api.registry.stored("networking.k8s.io", "ipaddresses") else { return Ok(true) };
        let name = address.to_string();
        if reservation.dry_run {
            // Upstream imagines that it got what was asked for.
            return Ok(true);
        }
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
            "metadata": {
                "name": name, "uid": new_uuid().to_string(), "creationTimestamp": api.now(),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": Family::of(address).as_str(),
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
            "spec": {"parentRef": {
                "resource": "services",
                "namespace": value::text(service, "metadata.namespace"),
                "name": value::text(service, "metadata.name"),
            }},
        });
        let created = api.insert(Target::own(addresses, &name), &object, false).await?.is_some();
        if created {
            reservation.ips.push(name);
        }
        Ok(created)
    }

    /// A failure here costs an address until the next start repairs it, so it is logged and not the client's problem.
    async fn give_back(&self, api: &Api, ips: &[String], ports: &[u16]) {
        if let Some(addresses) = api.registry.stored("networking.k8s.io", "ipaddresses") {
            for ip in ips {
                let deleted = api
                    .change(Target::own(addresses, ip), false, |_, _| Ok(crate::verbs::commit::Change::Delete))
                    .await;
                if let Err(error) = deleted {
                    tracing::warn!(%ip, %error, "a cluster IP could not be given back");
                }
            }
        }
        self.give_back_ports(api, ports).await;
    }
}

fn concerns(call: &Call<'_>) -> bool {
    is_service(call.resource) && call.info.subresource.is_empty()
}

fn is_service(resource: &Resource) -> bool {
    resource.name.group.is_empty() && resource.name.resource == "services"
}

fn invalid(service: &Value, error: FieldError) -> ApiError {
    ApiError::invalid("", "Service", value::text(service, "metadata.name"), &[error])
}

fn cluster_ips(service: &Value) -> Vec<String> {
    value::list(service, "spec.clusterIPs")
        .iter()
        .filter_map(Value::as_str)
        .filter(|ip| !ip.is_empty() && *ip != "None")
        .map(str::to_owned)
        .collect()
}
