//! What all servers of a cluster must have alike: two that give out addresses from other ranges would undo each other's work.

use std::net::IpAddr;

use clap::Parser as _;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::cli::{Cli, Command, Server as Options};
use crate::server::Error;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    cluster_cidr: Vec<String>,
    service_cluster_ip_range: Vec<String>,
    service_node_port_range: (u16, u16),
    cluster_domain: String,
    cluster_dns: Option<IpAddr>,
}

impl Settings {
    pub fn of(options: &Options) -> Self {
        Self {
            cluster_cidr: texts(&options.controllers.cluster_cidr),
            service_cluster_ip_range: texts(&options.service_cluster_ip_range),
            service_node_port_range: options.service_node_port_range,
            cluster_domain: options.cluster_domain.clone(),
            cluster_dns: options.cluster_dns,
        }
    }

    /// Makes the options say what the cluster has. One that says something else of its own accord is an error.
    pub fn adopt(&self, options: &mut Options) -> Result<(), Error> {
        let (given, usual) = (Self::of(options), Self::of(&usual()?));
        check("cluster-cidr", &given.cluster_cidr, &usual.cluster_cidr, &self.cluster_cidr)?;
        check(
            "service-cluster-ip-range",
            &given.service_cluster_ip_range,
            &usual.service_cluster_ip_range,
            &self.service_cluster_ip_range,
        )?;
        check(
            "service-node-port-range",
            &given.service_node_port_range,
            &usual.service_node_port_range,
            &self.service_node_port_range,
        )?;
        check("cluster-domain", &given.cluster_domain, &usual.cluster_domain, &self.cluster_domain)?;
        check("cluster-dns", &given.cluster_dns, &usual.cluster_dns, &self.cluster_dns)?;
        options.controllers.cluster_cidr = ranges(&self.cluster_cidr)?;
        options.service_cluster_ip_range = ranges(&self.service_cluster_ip_range)?;
        options.service_node_port_range = self.service_node_port_range;
        options.cluster_domain.clone_from(&self.cluster_domain);
        options.cluster_dns = self.cluster_dns;
        Ok(())
    }
}

fn texts(ranges: &[IpNet]) -> Vec<String> {
    ranges.iter().map(ToString::to_string).collect()
}

fn ranges(texts: &[String]) -> Result<Vec<IpNet>, Error> {
    let wrong =
        |error: ipnet::AddrParseError| Error::Joining(format!("the cluster's settings cannot be read: {error}"));
    texts.iter().map(|text| text.parse().map_err(wrong)).collect()
}

/// The options of a server that says nothing.
fn usual() -> Result<Options, Error> {
    let line = Cli::try_parse_from(["trireme", "server", "--data-dir", "."]);
    match line.map(|line| line.command) {
        Ok(Command::Server(options)) => Ok(*options),
        _ => Err(Error::Joining("the usual settings cannot be read".to_owned())),
    }
}

fn check<T: PartialEq + std::fmt::Debug>(option: &'static str, given: &T, usual: &T, theirs: &T) -> Result<(), Error> {
    if given == theirs || given == usual {
        return Ok(());
    }
    let message = format!("the cluster has {theirs:?}, and not {given:?}: leave the option out");
    Err(Error::Option { option, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(more: &[&str]) -> Options {
        let line = ["trireme", "server", "--data-dir", "."].iter().chain(more);
        match Cli::try_parse_from(line).expect("a command line").command {
            Command::Server(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_that_joins_has_what_the_cluster_has() {
        let theirs = Settings::of(&options(&["--cluster-cidr", "10.9.0.0/16", "--cluster-domain", "corp.example"]));
        let mut silent = options(&[]);
        theirs.adopt(&mut silent).expect("it says nothing else");
        assert_eq!(Settings::of(&silent), theirs);
        theirs.adopt(&mut options(&["--cluster-cidr", "10.9.0.0/16"])).expect("it says the same");
        let error = theirs.adopt(&mut options(&["--cluster-cidr", "10.8.0.0/16"])).expect_err("it says another");
        assert!(error.to_string().starts_with("--cluster-cidr: the cluster has [\"10.9.0.0/16\"]"), "{error}");
    }
}
