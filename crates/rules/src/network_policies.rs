//! What somebody who writes a NetworkPolicy can hardly have meant. It is in force all the same.

use crate::protocol::Protocol;

/// A port by its name.
pub type NamedPort = (String, Protocol);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("selects no pod")]
    SelectsNothing,
    #[error("names port {0:?} of {protocol}, which none of the pods it is about has", protocol = .1.as_str())]
    NoSuchPort(String, Protocol),
}

/// What is doubtful about a policy: whether it selects pods, the ports that its rules name in each direction, and who has a port of that name: the pods that
/// it selects, and any pod at all, for what goes out is to a port of the other end, whoever that may be.
pub fn doubts(
    selects: bool,
    [ingress, egress]: [&[NamedPort]; 2],
    selected_have: impl Fn(&NamedPort) -> bool,
    any_has: impl Fn(&NamedPort) -> bool,
) -> Vec<Doubt> {
    let nothing = (!selects).then_some(Doubt::SelectsNothing);
    let missing_in = ingress.iter().filter(|port| selects && !selected_have(port));
    let missing_out = egress.iter().filter(|port| !any_has(port));
    let missing = missing_in.chain(missing_out).map(|(name, protocol)| Doubt::NoSuchPort(name.clone(), *protocol));
    nothing.into_iter().chain(missing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_can_have_meant_is_said() {
        let port = |name: &str| (name.to_owned(), Protocol::Tcp);
        let check = |selects, ingress: &[NamedPort], egress: &[NamedPort], want: &[&str]| {
            let said = doubts(selects, [ingress, egress], |port| port.0 == "web", |port| port.0 == "dns");
            assert_eq!(said.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
        };
        check(true, &[port("web")], &[port("dns")], &[]);
        let missing = |name: &str| format!("names port {name:?} of TCP, which none of the pods it is about has");
        check(true, &[port("wbe")], &[port("web")], &[&missing("wbe"), &missing("web")]);
        // Of pods that are not there nobody can say which ports they have.
        check(false, &[port("wbe")], &[], &["selects no pod"]);
    }
}
