//! The group `admissionregistration.k8s.io`: webhooks and policies of admission.
//!
//! What the expressions of policies are is checked in [`crate::checks::expressions`]; what is around them here.

pub mod client;
pub mod policy;
pub mod policy_binding;
pub mod rules;
pub mod webhook_configuration;

use crate::kind::{Deprecation, Kind};

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("mutatingadmissionpolicies", "MutatingAdmissionPolicy")
        .strategy(&policy::Policies { mutating: true })
        .columns(&policy::columns::MUTATING_POLICY)
        .deprecated(&[
            Deprecation::new("v1alpha1", 35).until(38),
            Deprecation::new("v1beta1", 37)
                .until(40)
                .instead("admissionregistration.k8s.io/v1 MutatingAdmissionPolicy"),
        ]),
    Kind::new("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding")
        .strategy(&policy_binding::PolicyBindings { mutating: true })
        .columns(&policy_binding::columns::TABLE)
        .deprecated(&[
            Deprecation::new("v1alpha1", 35).until(38),
            Deprecation::new("v1beta1", 37)
                .until(40)
                .instead("admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding"),
        ]),
    Kind::new("mutatingwebhookconfigurations", "MutatingWebhookConfiguration")
        .strategy(&webhook_configuration::Webhooks { mutating: true })
        .columns(&webhook_configuration::columns::TABLE),
    Kind::new("validatingadmissionpolicies", "ValidatingAdmissionPolicy")
        .strategy(&policy::Policies { mutating: false })
        .columns(&policy::columns::VALIDATING_POLICY),
    Kind::new("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")
        .strategy(&policy_binding::PolicyBindings { mutating: false })
        .columns(&policy_binding::columns::TABLE),
    Kind::new("validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
        .strategy(&webhook_configuration::Webhooks { mutating: false })
        .columns(&webhook_configuration::columns::TABLE),
];
