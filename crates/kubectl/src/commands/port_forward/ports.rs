//! Which ports are meant, here and in the pod: pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use machinery::status::go_quote;
use machinery::value::{list, text};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// 0 is any that is free.
    pub local: u16,
    pub remote: u16,
}

impl Port {
    pub fn parse_all(texts: &[String]) -> Result<Vec<Self>, String> {
        texts.iter().map(|text| Self::parse(text)).collect()
    }

    /// `5000`, `8888:5000` or `:5000`.
    fn parse(text: &str) -> Result<Self, String> {
        let (local, remote) = match text.split(':').collect::<Vec<_>>()[..] {
            [both] => (both, both),
            ["", remote] => ("0", remote),
            [local, remote] => (local, remote),
            _ => return Err(format!("invalid port format '{text}'")),
        };
        let local = number(local).map_err(|why| format!("error parsing local port '{local}': {why}"))?;
        let remote = number(remote).map_err(|why| format!("error parsing remote port '{remote}': {why}"))?;
        if remote == 0 {
            return Err("remote port must be > 0".to_owned());
        }
        Ok(Self { local, remote })
    }
}

fn number(text: &str) -> Result<u16, String> {
    let quoted = go_quote(text);
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("strconv.ParseUint: parsing {quoted}: invalid syntax"));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {quoted}: value out of range"))
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    pub ip: IpAddr,
    /// Of `localhost`, one family is enough.
    pub any_will_do: bool,
}

impl Address {
    pub fn parse_all(texts: &[String]) -> Result<Vec<Self>, String> {
        let mut found: Vec<Self> = Vec::new();
        for text in texts {
            if text == "localhost" {
                for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
                    if !found.iter().any(|known| known.ip == ip) {
                        found.push(Self { ip, any_will_do: true });
                    }
                }
            } else {
                let ip = text.parse().map_err(|_| format!("{text} is not a valid IP"))?;
                found.retain(|known| known.ip != ip);
                found.push(Self { ip, any_will_do: false });
            }
        }
        found.sort_by_key(|address| address.ip.to_string());
        Ok(found)
    }
}

/// `local:remote`, or one for both.
fn split(port: &str) -> (&str, &str) {
    match port.split(':').collect::<Vec<_>>()[..] {
        [local, remote] => (local, remote),
        [first, ..] => (first, first),
        [] => ("", ""),
    }
}

fn joined(local: &str, remote: &str) -> String {
    if local == remote { remote.to_owned() } else { format!("{local}:{remote}") }
}

/// Ports of a pod, whose names become numbers.
pub fn of_pod(ports: &[String], pod: &Value) -> Result<Vec<String>, String> {
    ports
        .iter()
        .map(|port| {
            let (local, remote) = split(port);
            if remote.is_empty() {
                return Err("remote port cannot be empty".to_owned());
            }
            if remote.parse::<i64>().is_ok() {
                return Ok(joined(local, remote));
            }
            let number = container_port(pod, remote)?.to_string();
            Ok(if local == remote { number } else { format!("{local}:{number}") })
        })
        .collect()
}

/// Ports of a Service, which become those of the pod behind it.
pub fn of_service(ports: &[String], service: &Value, pod: &Value) -> Result<Vec<String>, String> {
    ports
        .iter()
        .map(|port| {
            let (local, remote) = split(port);
            let (number, local) = match remote.parse::<i64>() {
                Ok(number) => (number, local.to_owned()),
                Err(_) => {
                    let number = service_port(service, remote)?;
                    (number, if local == remote { number.to_string() } else { local.to_owned() })
                }
            };
            Ok(joined(&local, &target_port(service, pod, number)?.to_string()))
        })
        .collect()
}

fn service_port(service: &Value, name: &str) -> Result<i64, String> {
    let port = list(service, "spec.ports").iter().find(|port| text(port, "name") == name);
    let port = port.and_then(|port| port["port"].as_i64());
    port.ok_or_else(|| format!("Service '{}' does not have a named port '{name}'", text(service, "metadata.name")))
}

fn container_port(pod: &Value, name: &str) -> Result<i64, String> {
    let containers = list(pod, "spec.containers").iter().chain(list(pod, "spec.initContainers"));
    let mut ports = containers.flat_map(|container| list(container, "ports"));
    let port = ports.find(|port| text(port, "name") == name).and_then(|port| port["containerPort"].as_i64());
    port.ok_or_else(|| format!("Pod '{}' does not have a named port '{name}'", text(pod, "metadata.name")))
}

fn target_port(service: &Value, pod: &Value, number: i64) -> Result<i64, String> {
    let Some(port) = list(service, "spec.ports").iter().find(|port| port["port"].as_i64() == Some(number)) else {
        return Err(format!("Service {} does not have a service port {number}", text(service, "metadata.name")));
    };
    if text(service, "spec.clusterIP") == "None" {
        return Ok(number);
    }
    match &port["targetPort"] {
        Value::String(name) => container_port(pod, name),
        target => match target.as_i64() {
            None | Some(0) => Ok(number),
            Some(target) => Ok(target),
        },
    }
}

pub fn refuse_udp_of_service(ports: &[String], service: &Value) -> Result<(), String> {
    let known = list(service, "spec.ports").iter().map(|port| (port["port"].as_i64(), text(port, "protocol")));
    refuse_udp(ports, &known.collect::<Vec<_>>(), |name| service_port(service, name))
}

pub fn refuse_udp_of_pod(ports: &[String], pod: &Value) -> Result<(), String> {
    let all = list(pod, "spec.containers").iter().flat_map(|container| list(container, "ports"));
    let known = all.map(|port| (port["containerPort"].as_i64(), text(port, "protocol")));
    refuse_udp(ports, &known.collect::<Vec<_>>(), |name| container_port(pod, name))
}

fn refuse_udp(
    ports: &[String],
    known: &[(Option<i64>, &str)],
    named: impl Fn(&str) -> Result<i64, String>,
) -> Result<(), String> {
    for port in ports {
        let (_, remote) = split(port);
        let number = remote.parse::<i64>().or_else(|_| named(remote))?;
        let has = |protocol: &str| known.contains(&(Some(number), protocol));
        if has("UDP") && !has("TCP") {
            return Err(format!("UDP protocol is not supported for {remote}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn ports_are_read_as_upstream_reads_them() {
        let port = |local, remote| Ok(Port { local, remote });
        assert_eq!(Port::parse("5000"), port(5000, 5000));
        assert_eq!(Port::parse("8888:5000"), port(8888, 5000));
        assert_eq!(Port::parse(":5000"), port(0, 5000));
        for (text, expected) in [
            ("a", "error parsing local port 'a': strconv.ParseUint: parsing \"a\": invalid syntax"),
            ("1:70000", "error parsing remote port '70000': strconv.ParseUint: parsing \"70000\": value out of range"),
            ("1:0", "remote port must be > 0"),
            ("1:2:3", "invalid port format '1:2:3'"),
        ] {
            assert_eq!(Port::parse(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn names_become_numbers() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"ports": [
            {"name": "web", "containerPort": 8080, "protocol": "TCP"}, {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        ]}]}});
        let service = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.0.0.1", "ports": [
            {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}, {"name": "o", "port": 81, "targetPort": 9, "protocol": "TCP"},
        ]}});
        assert_eq!(of_pod(&own(&["web", "1:web", "5"]), &pod), Ok(own(&["8080", "1:8080", "5"])));
        assert_eq!(of_pod(&own(&["x"]), &pod), Err("Pod 'p' does not have a named port 'x'".to_owned()));
        assert_eq!(of_service(&own(&["http", "80", "7:81"]), &service, &pod), Ok(own(&["80:8080", "80:8080", "7:9"])));
        assert_eq!(
            of_service(&own(&["82"]), &service, &pod),
            Err("Service s does not have a service port 82".to_owned())
        );
        assert_eq!(refuse_udp_of_pod(&own(&["53"]), &pod), Err("UDP protocol is not supported for 53".to_owned()));
        assert_eq!(refuse_udp_of_service(&own(&["http"]), &service), Ok(()));
    }

    #[test]
    fn localhost_is_two_addresses() {
        let found = Address::parse_all(&own(&["localhost", "10.0.0.1"])).expect("addresses");
        let shown: Vec<String> = found.iter().map(|address| address.ip.to_string()).collect();
        assert_eq!(shown, ["10.0.0.1", "127.0.0.1", "::1"]);
        assert_eq!(Address::parse_all(&own(&["x"])), Err("x is not a valid IP".to_owned()));
    }
}
