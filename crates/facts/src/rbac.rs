//! The roles and bindings that a cluster has from the beginning.
//!
//! `rbac.txt` has one fact per line:
//!
//! ```text
//! R namespace|- name …         a role, of the cluster without a namespace; l=key=value labels,
//!                              a=key=value labels of the roles whose rules it aggregates
//! P [~] verbs groups resources [names]
//!                              a rule about resources ("-" is the core group); ~ only with a feature that
//!                              is off by default
//! N [~] verbs urls             a rule about paths
//! B namespace|- name Kind role a binding, of the cluster without a namespace
//! J Kind name [namespace]      a subject of the binding
//! ```

/// The bootstrap roles and bindings. Each carries upstream's label and annotation,
/// [`BOOTSTRAPPING`] and [`AUTOUPDATE`], beside what is listed here.
#[derive(Debug, Default)]
pub struct Rbac {
    /// Roles and cluster roles.
    pub roles: Vec<Role>,
    /// Bindings and cluster bindings.
    pub bindings: Vec<Binding>,
}

/// The label of every bootstrap object.
pub const BOOTSTRAPPING: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");

/// The annotation of every bootstrap object: it is repaired at each start.
pub const AUTOUPDATE: (&str, &str) = ("rbac.authorization.kubernetes.io/autoupdate", "true");

#[derive(Debug)]
pub struct Role {
    pub name: &'static str,
    /// The namespace; a cluster role has none.
    pub namespace: Option<&'static str>,
    /// Labels beside [`BOOTSTRAPPING`].
    pub labels: Box<[(&'static str, &'static str)]>,
    /// Labels, each of which selects roles whose rules become this role's. Such a role has no rules of
    /// its own.
    pub aggregates: Box<[(&'static str, &'static str)]>,
    pub rules: Vec<Rule>,
}

/// A rule of a role.
#[derive(Debug, Default)]
pub struct Rule {
    /// Whether the rule exists only with a feature that is off by default.
    pub gated: bool,
    pub verbs: Box<[&'static str]>,
    /// The API groups; the core group is the empty string.
    pub groups: Box<[&'static str]>,
    pub resources: Box<[&'static str]>,
    /// The names of objects; none means all.
    pub names: Box<[&'static str]>,
    /// The paths, in a rule that is not about resources.
    pub urls: Box<[&'static str]>,
}

/// A binding of subjects to a role.
#[derive(Debug)]
pub struct Binding {
    pub name: &'static str,
    /// The namespace; a cluster binding has none.
    pub namespace: Option<&'static str>,
    /// `ClusterRole` or `Role`.
    pub role_kind: &'static str,
    /// The name of the role.
    pub role: &'static str,
    pub subjects: Vec<Subject>,
}

/// A subject of a binding.
#[derive(Debug)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: &'static str,
    pub name: &'static str,
    /// The namespace of a service account.
    pub namespace: Option<&'static str>,
}

impl Rbac {
    /// Reads the text, which is part of the program: a mistake in it is a broken invariant and panics.
    pub(crate) fn parse(text: &'static str) -> Rbac {
        let mut rbac = Rbac::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut tokens = line.split(' ');
            let mut next = || tokens.next().unwrap_or_default();
            match next() {
                "R" => {
                    let (namespace, name) = (namespace(next()), next());
                    let (mut labels, mut aggregates) = (Vec::new(), Vec::new());
                    for token in tokens {
                        match token.split_once('=').and_then(|(mark, pair)| Some((mark, pair.split_once('=')?))) {
                            Some(("l", label)) => labels.push(label),
                            Some(("a", label)) => aggregates.push(label),
                            _ => panic!("facts: unknown mark {token} in: {line}"),
                        }
                    }
                    let (labels, aggregates) = (labels.into(), aggregates.into());
                    rbac.roles.push(Role { name, namespace, labels, aggregates, rules: Vec::new() });
                }
                tag @ ("P" | "N") => {
                    let mut token = next();
                    let gated = token == "~";
                    if gated {
                        token = next();
                    }
                    let mut rule = Rule { gated, verbs: words(token), ..Rule::default() };
                    if tag == "N" {
                        rule.urls = words(next());
                    } else {
                        rule.groups = next().split(',').map(|group| if group == "-" { "" } else { group }).collect();
                        rule.resources = words(next());
                        rule.names = words(next());
                    }
                    rbac.roles.last_mut().expect("a rule follows its role").rules.push(rule);
                }
                "B" => {
                    let (namespace, name, role_kind, role) = (namespace(next()), next(), next(), next());
                    rbac.bindings.push(Binding { name, namespace, role_kind, role, subjects: Vec::new() });
                }
                "J" => {
                    let (kind, name) = (next(), next());
                    let subject = Subject { kind, name, namespace: tokens.next() };
                    rbac.bindings.last_mut().expect("a subject follows its binding").subjects.push(subject);
                }
                _ => panic!("facts: unknown line: {line}"),
            }
        }
        rbac
    }
}

fn namespace(token: &'static str) -> Option<&'static str> {
    (token != "-").then_some(token)
}

fn words(text: &'static str) -> Box<[&'static str]> {
    text.split(',').filter(|word| !word.is_empty()).collect()
}
