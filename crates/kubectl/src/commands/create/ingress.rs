//! `kubectl create ingress`.

use regex::Regex;
use serde_json::{Value, json};

use super::{GENERATOR, generated, name};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;

pub static COMMAND: Command = Command {
    name: "ingress",
    aliases: &["ing"],
    usage: "NAME --rule=host/path=service:port[,tls[=secret]] ",
    short: "Create an ingress with the specified name",
    flags: &[
        GENERATOR,
        &[
            Flag::array("annotation", "Annotation as key=value."),
            Flag::string("class", "", "Class of the ingress."),
            Flag::string("default-backend", "", "Backend of everything else, as service:port."),
            Flag::array("rule", "Rule as host/path=service:port[,tls[=secret]]."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// A rule, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    host: String,
    path: String,
    exact: bool,
    service: String,
    port: String,
    /// TLS, with or without a secret.
    tls: Option<String>,
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let flags = &invocation.flags;
    let default = flags.text("default-backend").to_owned();
    let texts = flags.list("rule");
    if default.is_empty() && texts.is_empty() {
        return Err(Failure::message(
            "not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)",
        ));
    }
    let mut rules = Vec::new();
    for text in &texts {
        rules.push(parse(text).ok_or_else(|| {
            Failure::Message(format!(
                "rule {text} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]"
            ))
        })?);
    }
    let mut metadata = json!({"name": name});
    for annotation in flags.list("annotation") {
        let Some((key, value)) = annotation.split_once('=') else {
            return Err(Failure::Message(format!(
                "annotation {annotation} is invalid and should be in format key=[value]"
            )));
        };
        metadata["annotations"][key] = value.into();
    }
    let mut spec = json!({});
    if let Some(class) = flags.given("class") {
        spec["ingressClassName"] = class.into();
    }
    if !default.is_empty() {
        let parts: Vec<&str> = default.split(':').collect();
        let [service, port] = parts[..] else {
            return Err(Failure::message("default-backend should be in format servicename:serviceport"));
        };
        spec["defaultBackend"] = backend(service, port);
    }
    if !rules.is_empty() {
        spec["rules"] = Value::Array(by_host(&rules));
    }
    let tls = tls(&rules);
    if !tls.is_empty() {
        spec["tls"] = Value::Array(tls);
    }
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec,
        "status": {"loadBalancer": {}},
    });
    generated(invocation, "ingress:", object).await
}

/// What follows a rule that can be read is not looked at.
fn parse(text: &str) -> Option<Rule> {
    let form = Regex::new(r"^([\w*.-]*)(/.*)=([\w-]+):([\w-]+)(?:,(tls)=?([\w-]+)?)?").expect("a pattern");
    let parts = form.captures(text)?;
    let part = |at: usize| parts.get(at).map_or("", |found| found.as_str()).to_owned();
    let path = part(2);
    let exact = !path.ends_with('*');
    let path = path.trim_end_matches('*').to_owned();
    // One thing after the rule is about certificates, whatever it is called.
    let after: Vec<&str> = text.split(',').collect();
    let tls = match after[..] {
        [_, word] => Some(word.split('=').nth(1).unwrap_or_default().to_owned()),
        _ => None,
    };
    Some(Rule { host: part(1), path, exact, service: part(3), port: part(4), tls })
}

fn backend(service: &str, port: &str) -> Value {
    let port = port.parse::<i64>().map_or_else(|_| json!({"name": port}), |number| json!({"number": number}));
    json!({"service": {"name": service, "port": port}})
}

/// Rules of the same host are one.
fn by_host(rules: &[Rule]) -> Vec<Value> {
    let mut hosts: Vec<(&str, Vec<Value>)> = Vec::new();
    for rule in rules {
        let kind = if rule.exact { "Exact" } else { "Prefix" };
        let path = json!({"path": rule.path, "pathType": kind, "backend": backend(&rule.service, &rule.port)});
        match hosts.iter_mut().find(|(host, _)| *host == rule.host) {
            Some((_, paths)) => paths.push(path),
            None => hosts.push((&rule.host, vec![path])),
        }
    }
    let rule = |(host, paths): (&str, Vec<Value>)| {
        let mut rule = json!({"http": {"paths": paths}});
        if !host.is_empty() {
            rule["host"] = host.into();
        }
        rule
    };
    hosts.into_iter().map(rule).collect()
}

fn tls(rules: &[Rule]) -> Vec<Value> {
    let mut secrets: Vec<(&str, Vec<&str>)> = Vec::new();
    for rule in rules {
        let Some(secret) = &rule.tls else { continue };
        match secrets.iter_mut().find(|(known, _)| known == secret) {
            Some((_, hosts)) if hosts.contains(&rule.host.as_str()) => {}
            Some((_, hosts)) => hosts.push(&rule.host),
            None => secrets.push((secret, vec![&rule.host])),
        }
    }
    let entry = |(secret, hosts): (&str, Vec<&str>)| {
        let mut entry = json!({});
        let hosts: Vec<&str> = hosts.into_iter().filter(|host| !host.is_empty()).collect();
        if !hosts.is_empty() {
            entry["hosts"] = json!(hosts);
        }
        if !secret.is_empty() {
            entry["secretName"] = secret.into();
        }
        entry
    };
    secrets.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_taken_apart_or_refused() {
        let rule = parse("foo.com/bar*=svc:80,tls=s").expect("a rule");
        assert_eq!((rule.path.as_str(), rule.exact, rule.tls.as_deref()), ("/bar", false, Some("s")));
        assert_eq!(parse("/=svc:http,tls").expect("a rule").tls.as_deref(), Some(""));
        assert_eq!(parse("a.com/p=svc:80,tls=,foo=bar").expect("a rule").tls.as_deref(), None);
        assert_eq!(parse("a.com/p=svc:80,foo=bar").expect("a rule").tls.as_deref(), Some("bar"));
        for odd in ["foo", "foo=svc:80", "foo/=svc", "foo/=:80"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
