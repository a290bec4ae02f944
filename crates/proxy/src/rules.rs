//! Services and EndpointSlices in, nftables transactions out: pure, both families at once.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use informer::guard;
use node::nft;

use crate::clients;
use crate::elements;
use crate::model::{Endpoints, Family, NodeView, ServiceName, ServicePort};
use crate::plan::{Contribution, plan};
use crate::render;
use crate::table::{Changes, Owner, Table};

/// The rules this node should have.
#[derive(Debug, Clone)]
pub struct Rules {
    node: NodeView,
    tables: [Table; 2],
}

/// What an update changes, in up to four steps that each are applied as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    changes: Vec<(Family, Changes)>,
}

impl Transaction {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What the change will lead to, as a script; empty if nothing has to be there first. Without effect by itself.
    pub fn prepare(&self) -> String {
        self.script(render::prepare)
    }

    /// The change itself, if it is one of elements only, as nearly every one is.
    pub fn elements(&self) -> Option<nft::Elements> {
        let mut out = nft::Elements::default();
        self.changes.iter().all(|(family, changes)| elements::change(&mut out, *family, changes)).then_some(out)
    }

    /// The change itself, as a script.
    pub fn update(&self) -> String {
        self.script(render::update)
    }

    /// Elements that go when the change is done; empty if there are none.
    pub fn last(&self) -> nft::Elements {
        let mut out = nft::Elements::default();
        self.changes.iter().for_each(|(family, changes)| elements::remove(&mut out, *family, &changes.remove_last));
        out
    }

    /// The same as a script.
    #[cfg(test)]
    pub(crate) fn last_script(&self) -> String {
        self.script(render::last)
    }

    /// Deletes what the change left unused; may fail and be tried again later without harm. Empty if there is nothing.
    pub fn sweep(&self) -> String {
        self.script(render::sweep)
    }

    fn script(&self, render: impl Fn(Family, &Changes) -> String) -> String {
        self.changes.iter().map(|(family, changes)| render(*family, changes)).collect()
    }
}

impl Rules {
    pub fn new(node: NodeView) -> Self {
        Self { node, tables: Family::ALL.map(Table::new) }
    }

    /// The rules for exactly these Services and slices.
    pub fn build<'a>(
        services: impl IntoIterator<Item = &'a Service>,
        slices: impl IntoIterator<Item = &'a EndpointSlice>,
        node: NodeView,
    ) -> Self {
        let mut by_service = std::collections::HashMap::<ServiceName, Vec<&EndpointSlice>>::new();
        for slice in slices {
            if let Some(name) = ServiceName::of_slice(slice) {
                by_service.entry(name).or_default().push(slice);
            }
        }
        let mut rules = Self::new(node);
        let services = services.into_iter().filter_map(|service| {
            let name = ServiceName::of(service)?;
            let slices = by_service.remove(&name).unwrap_or_default();
            Some(Changed { name, service: Some(service), slices })
        });
        let services: Vec<Changed<'_>> = services.collect();
        rules.update(&services);
        rules
    }

    /// The node the rules are for.
    pub fn node(&self) -> &NodeView {
        &self.node
    }

    #[cfg(test)]
    pub(crate) fn tables(&self) -> &[Table; 2] {
        &self.tables
    }

    /// One transaction that makes the rules exactly these, whatever was there.
    pub fn replacement(&self) -> String {
        self.replacement_keeping(&Default::default())
    }

    /// As [`Rules::replacement`], with the clients that stick to an endpoint, by family: what `nft -j list table` shows.
    pub fn replacement_keeping(&self, listed: &[Vec<u8>; 2]) -> String {
        let tables = self.tables.iter().zip(listed);
        tables.map(|(table, listed)| render::replace(table, &self.node, &clients::of_table(listed))).collect()
    }

    /// Whether any Service remembers its clients.
    pub fn has_affinity(&self) -> bool {
        self.tables.iter().any(Table::has_affinity)
    }

    /// Commands for `ip -batch` that give Service addresses a route on this node.
    pub fn routes(&self) -> String {
        render::routes(&self.node)
    }

    /// Takes over what the changed Services are now, and says what that changes.
    pub fn update(&mut self, changed: &[Changed<'_>]) -> Transaction {
        let node = &self.node;
        let updated = self.tables.iter_mut().map(|table| {
            let family = table.family();
            // A Service that we cannot cope with keeps what it has, and stops no other.
            let contributions = changed
                .iter()
                .filter_map(|one| guard::caught_call("service proxy", &one.name, || one.contribution(family, node)));
            (family, table.update(contributions))
        });
        Transaction { changes: updated.filter(|(_, changes)| !changes.is_empty()).collect() }
    }
}

/// A Service that changed, or whose slices did.
#[derive(Debug)]
pub struct Changed<'a> {
    pub name: ServiceName,
    /// What it is now; absent if it is gone.
    pub service: Option<&'a Service>,
    /// All of its slices.
    pub slices: Vec<&'a EndpointSlice>,
}

impl Changed<'_> {
    fn contribution(&self, family: Family, node: &NodeView) -> (Owner, Contribution) {
        let created = self.service.and_then(|s| s.metadata.creation_timestamp.as_ref());
        let owner = Owner { created: created.map_or(i64::MAX, |t| t.0.as_second()), name: self.name.clone() };
        let ports = self.service.map(|service| ServicePort::of(service, family)).unwrap_or_default();
        let contribution = if ports.is_empty() {
            Contribution::default()
        } else {
            plan(&self.name, &ports, &Endpoints::of(self.slices.iter().copied(), &node.name), node, family)
        };
        (owner, contribution)
    }
}
