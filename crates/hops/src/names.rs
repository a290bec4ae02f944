//! What hops, their stages and verbs are called. Names stay: tools and people read them.

/// The twelve hops from the keystroke to the served pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hop {
    /// The client's own work; it happens in the client's process.
    Client = 1,
    Authentication,
    Authorisation,
    /// Whoever may change the object.
    Mutating,
    /// Bytes to object, and whether it is a good one.
    Schema,
    /// Whoever may refuse the object.
    Validating,
    Commit,
    /// From the commit to every watcher.
    FanOut,
    /// One turn of a controller.
    Controllers,
    /// A node for the pod.
    Scheduler,
    /// The pod's sandbox and containers.
    Kubelet,
    /// Who serves, in status and packet rules.
    Ready,
}

impl Hop {
    /// All of them, in order.
    pub const ALL: [Self; 12] = [
        Self::Client,
        Self::Authentication,
        Self::Authorisation,
        Self::Mutating,
        Self::Schema,
        Self::Validating,
        Self::Commit,
        Self::FanOut,
        Self::Controllers,
        Self::Scheduler,
        Self::Kubelet,
        Self::Ready,
    ];

    /// Its place, from 1 to 12.
    pub const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "kubectl resolves config + builds REST",
            Self::Authentication => "TLS + authentication",
            Self::Authorisation => "Authorisation chain (RBAC)",
            Self::Mutating => "Mutating admission webhooks",
            Self::Schema => "Schema + OpenAPI validation",
            Self::Validating => "Validating admission webhooks",
            Self::Commit => "etcd Txn — MVCC revision bump",
            Self::FanOut => "Watch fan-out to controllers",
            Self::Controllers => "Deployment → ReplicaSet → Pod",
            Self::Scheduler => "Scheduler binds Pod to a Node",
            Self::Kubelet => "kubelet observes, calls CRI",
            Self::Ready => "Pod Ready, EndpointSlice updated",
        }
    }
}

macro_rules! stages {
    ($($(#[doc = $doc:literal])* $stage:ident = $name:literal of $hop:ident;)*) => {
        /// A part of a hop.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Stage {
            $($(#[doc = $doc])* $stage,)*
        }

        impl Stage {
            pub const ALL: &[Self] = &[$(Self::$stage),*];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$stage => $name,)*
                }
            }

            /// The hop that it is a part of.
            pub const fn hop(self) -> Hop {
                match self {
                    $(Self::$stage => Hop::$hop,)*
                }
            }
        }
    };
}

stages! {
    /// May they now, or must they wait?
    FlowControl = "flow-control" of Authorisation;
    MutatingPolicy = "policy" of Mutating;
    MutatingWebhook = "webhook" of Mutating;
    /// Whether the kind's own rules hold.
    Validate = "validate" of Schema;
    ValidatingPolicy = "policy" of Validating;
    ValidatingWebhook = "webhook" of Validating;
    /// How long a pod waited until the scheduler took it.
    Queue = "queue" of Scheduler;
    Schedule = "schedule" of Scheduler;
    Bind = "bind" of Scheduler;
    /// From the node's first look at the pod to its last container's start, everything below included.
    Pod = "pod" of Kubelet;
    /// Volumes found, attached and mounted.
    Volumes = "volumes" of Kubelet;
    /// Pod sandbox, its network included.
    Sandbox = "sandbox" of Kubelet;
    Pull = "pull" of Kubelet;
    CreateContainer = "create-container" of Kubelet;
    StartContainer = "start-container" of Kubelet;
    /// From a container's start to its first success of the probe that makes it ready.
    Probe = "probe" of Ready;
    /// Pod status on its way to the API server.
    Status = "status" of Ready;
    /// Endpoint to packet rules.
    Endpoint = "endpoint" of Ready;
}

impl Stage {
    pub(crate) const fn index(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }
}

/// Verbs that spans know; others are written as the last one.
const VERBS: [&str; 23] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "connect",
    "proxy",
    "post",
    "put",
    "head",
    "options",
    "reconcile",
    "schedule",
    "run",
    "ensure",
    "start",
    "apply",
    "bind",
    "validate",
    "other",
];

pub(crate) fn verb_number(verb: &str) -> u8 {
    let known = VERBS.iter().position(|known| *known == verb).unwrap_or(VERBS.len() - 1);
    known as u8
}

pub(crate) fn verb_name(number: u8) -> &'static str {
    VERBS.get(usize::from(number)).copied().unwrap_or("other")
}
