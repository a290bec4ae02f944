//! Ingresses.

pub mod columns;

use machinery::names::ip;
use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

use crate::checks::rare_names::typed_reference;
use crate::checks::{At, Errors, is_absolute};
use crate::core::service::validation::balancer_point;
use crate::networking::references::group;
use crate::strategy::{Flags, Strategy};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub struct Ingresses;

impl Strategy for Ingresses {
    fn flags(&self) -> Flags {
        Flags { counts_generations: true, ..Flags::USUAL }
    }

    fn prepare_for_create(&self, ingress: &mut Value) {
        value::set(ingress, "status", json!({"loadBalancer": {}}));
    }

    fn validate(&self, ingress: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(ingress);
        validate_ingress(&root.at("spec"), &mut errors);
        let annotation = root.at("metadata.annotations").value().get(CLASS_ANNOTATION).and_then(Value::as_str);
        let class = root.at("spec.ingressClassName");
        if let Some(annotation) = annotation.filter(|annotation| class.is_set() && *annotation != class.text()) {
            let path = format!("annotations.{CLASS_ANNOTATION}");
            errors.push(FieldError::invalid(path, annotation, "must match `ingressClassName` when both are specified"));
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_ingress(&At::root(new).at("spec"), &mut errors);
        errors.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let known: Vec<&str> =
            value::list(old, "status.loadBalancer.ingress").iter().map(|point| value::text(point, "ip")).collect();
        for point in At::root(new).at("status.loadBalancer.ingress").items() {
            balancer_point(&point, &known, &mut errors);
        }
        errors.into_vec()
    }

    fn warnings(&self, ingress: &Value, old: Option<&Value>) -> Vec<String> {
        let annotated = value::at(ingress, "metadata.annotations")
            .is_some_and(|annotations| annotations.get(CLASS_ANNOTATION).is_some());
        let warning =
            format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead");
        (annotated && old.is_none()).then_some(warning).into_iter().collect()
    }
}

fn validate_ingress(spec: &At<'_, '_>, errors: &mut Errors) {
    let (rules, backend) = (spec.at("rules"), spec.at("defaultBackend"));
    if rules.is_empty() && !backend.is_set() {
        errors.invalid_value(spec, rules.value().clone(), "either `defaultBackend` or `rules` must be specified");
    }
    if backend.is_set() {
        validate_backend(&backend, errors);
    }
    for rule in rules.items() {
        let host = rule.at("host");
        if !host.text().is_empty() {
            if ip::parse_sloppy(host.text()).is_some() {
                errors.invalid(&host, "must be a DNS name, not an IP address");
            }
            host_name(&host, errors);
        }
        let http = rule.at("http");
        if http.is_set() {
            if http.at("paths").is_empty() {
                errors.required(&http.at("paths"), "");
            }
            for path in http.at("paths").items() {
                validate_path(&path, errors);
            }
        }
    }
    for tls in spec.at("tls").items() {
        for host in tls.at("hosts").items() {
            host_name(&host, errors);
        }
        let secret = tls.at("secretName");
        if !secret.text().is_empty() {
            errors.problems(&secret, names::name_is_dns_subdomain(secret.text(), false));
        }
    }
    let class = spec.at("ingressClassName");
    if class.is_set() {
        errors.problems(&class, names::name_is_dns_subdomain(class.text(), false));
    }
}

fn host_name(at: &At<'_, '_>, errors: &mut Errors) {
    let check =
        if at.text().contains('*') { names::is_wildcard_dns1123_subdomain } else { names::is_dns1123_subdomain };
    errors.problems(at, check(at.text()));
}

fn validate_path(at: &At<'_, '_>, errors: &mut Errors) {
    let (kind, path) = (at.at("pathType"), at.at("path"));
    if !kind.is_set() {
        return errors.required(&kind, "pathType must be specified");
    }
    match kind.text() {
        "Exact" | "Prefix" => {
            if !is_absolute(path.text()) {
                errors.invalid_text(&path, "must be an absolute path");
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.text().contains(sequence) {
                    errors.invalid(&path, format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if path.text().ends_with(suffix) {
                    errors.invalid(&path, format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !path.text().is_empty() && !is_absolute(path.text()) {
                errors.invalid(&path, "must be an absolute path");
            }
        }
        _ => errors.not_supported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    validate_backend(&at.at("backend"), errors);
}

fn validate_backend(at: &At<'_, '_>, errors: &mut Errors) {
    let (resource, service) = (at.at("resource"), at.at("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => errors.invalid_value(at, "", "cannot set both resource and service backends"),
        (true, false) => {
            group(&resource.at("apiGroup"), errors);
            typed_reference(&resource, "kind", errors);
        }
        (false, true) => {
            let name = service.at("name");
            if errors.required_text(&name) {
                errors.problems(&name, names::name_is_dns_label(name.text(), false));
            }
            let (port, number) = (service.at("port.name"), service.at("port.number"));
            match (port.text().is_empty(), number.int().unwrap_or(0)) {
                (false, 0) => errors.problems(&port, names::is_valid_port_name(port.text())),
                (false, _) => errors.invalid_value(at, "", "cannot set both port name & port number"),
                (true, 0) => errors.required(at, "port name or number is required"),
                (true, given) => errors.int_problems(&number, names::is_valid_port_num(given)),
            }
        }
        (false, false) => errors.invalid_value(at, "", "resource or service backend is required"),
    }
}
