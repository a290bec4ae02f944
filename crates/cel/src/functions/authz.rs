//! Questions about what somebody may do. They are only composed here; somebody else answers.

use std::sync::Arc;

use machinery::names;

use super::error;
use crate::eval::Outcome;
use crate::functions::opaque::Opaque;
use crate::scope::Scope;
use crate::value::Value;

/// Whom a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Who sends the request.
    Requester,
    ServiceAccount {
        namespace: Arc<str>,
        name: Arc<str>,
    },
}

/// What a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Check {
    /// A path that is no resource.
    Path(Arc<str>),
    Resource {
        group: Arc<str>,
        resource: Arc<str>,
        /// A part of it.
        subresource: Arc<str>,
        namespace: Arc<str>,
        name: Arc<str>,
        /// Only objects with these fields.
        field_selector: Arc<str>,
        /// Only objects with these labels.
        label_selector: Arc<str>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    pub subject: Subject,
    pub verb: String,
    pub check: Arc<Check>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    /// Why nobody knows; empty if somebody does.
    pub error: String,
}

impl Value<'_> {
    /// The variable `authorizer`.
    pub fn authorizer() -> Self {
        Self::Opaque(Opaque::Authorizer(Subject::Requester))
    }

    /// The variable `authorizer.requestResource`: a question about what the request is about.
    pub fn request_resource(check: Check) -> Self {
        Self::Opaque(Opaque::Check(Subject::Requester, Arc::new(check)))
    }
}

/// A function of authorization, if it is one.
pub fn call<'a>(scope: &Scope<'a>, function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    match args {
        [Value::Opaque(Opaque::Decision(decision))] => match function {
            "allowed" => Some(Ok(Value::Bool(decision.allowed))),
            "reason" => Some(Ok(Value::from(decision.reason.clone()))),
            "errored" => Some(Ok(Value::Bool(!decision.error.is_empty()))),
            "error" => Some(Ok(Value::from(decision.error.clone()))),
            _ => None,
        },
        [Value::Opaque(Opaque::Authorizer(subject)), Value::String(text)] => match function {
            "path" if text.is_empty() => Some(error("path must not be empty")),
            "path" => Some(made(Opaque::Check(subject.clone(), Arc::new(Check::Path(text.as_ref().into()))))),
            "group" => Some(made(Opaque::GroupCheck(subject.clone(), text.as_ref().into()))),
            _ => None,
        },
        [Value::Opaque(Opaque::Authorizer(_)), Value::String(namespace), Value::String(name)]
            if function == "serviceAccount" =>
        {
            if !names::name_is_dns_subdomain(name, false).is_empty() {
                return Some(error("Invalid service account name"));
            }
            if !names::name_is_dns_label(namespace, false).is_empty() {
                return Some(error("Invalid service account namespace"));
            }
            let subject = Subject::ServiceAccount { namespace: namespace.as_ref().into(), name: name.as_ref().into() };
            Some(made(Opaque::Authorizer(subject)))
        }
        [Value::Opaque(Opaque::GroupCheck(subject, group)), Value::String(text)] if function == "resource" => {
            if text.is_empty() {
                return Some(error("resource must not be empty"));
            }
            let none: Arc<str> = "".into();
            let check = Check::Resource {
                group: group.clone(),
                resource: text.as_ref().into(),
                subresource: none.clone(),
                namespace: none.clone(),
                name: none.clone(),
                field_selector: none.clone(),
                label_selector: none,
            };
            Some(made(Opaque::Check(subject.clone(), Arc::new(check))))
        }
        [Value::Opaque(Opaque::Check(subject, check)), Value::String(text)] if function == "check" => {
            let question = Question { subject: subject.clone(), verb: text.to_string(), check: check.clone() };
            Some(scope.decision(&question).and_then(|decision| made(Opaque::Decision(Arc::new(decision)))))
        }
        [Value::Opaque(Opaque::Check(subject, check)), Value::String(text)] => {
            let mut check = (**check).clone();
            narrow(&mut check, function, text)?;
            Some(made(Opaque::Check(subject.clone(), Arc::new(check))))
        }
        _ => None,
    }
}

fn narrow(check: &mut Check, function: &str, text: &str) -> Option<()> {
    let Check::Resource { subresource, namespace, name, field_selector, label_selector, .. } = check else {
        return None;
    };
    let part = match function {
        "subresource" => subresource,
        "namespace" => namespace,
        "name" => name,
        "fieldSelector" => field_selector,
        "labelSelector" => label_selector,
        _ => return None,
    };
    *part = text.into();
    Some(())
}

fn made<'a>(opaque: Opaque) -> Outcome<'a> {
    Ok(Value::Opaque(opaque))
}
