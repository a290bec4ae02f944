//! Certificate signing requests, with what is in the request.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use der::asn1::ObjectIdentifier;
use der::{Decode as _, oid::AssociatedOid as _};
use machinery::{Value, duration, value};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::{DirectoryString, GeneralName};
use x509_cert::request::{CertReq, ExtensionReq};

use crate::Error;
use crate::show::{Scene, format_labels};
use crate::writer::{Writer, put};

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let request = parse(scene.text("spec.request"))?;
    scene.name(out);
    out.field(0, "Labels", format_labels(scene.at("metadata.labels")));
    out.field(0, "Annotations", format_labels(scene.at("metadata.annotations")));
    scene.created(out);
    out.field(0, "Requesting User", scene.text("spec.username"));
    match scene.text("spec.signerName") {
        "" => {}
        signer => out.field(0, "Signer", signer),
    }
    if scene.at("spec.expirationSeconds").is_some() {
        out.field(0, "Requested Duration", duration::human(scene.int("spec.expirationSeconds")));
    }
    out.field(0, "Status", status(scene));
    put!(out, 0, "Subject:\n");
    subject(out, &request);
    alternative_names(out, &request);
    scene.events(out);
    Ok(())
}

fn status(scene: &Scene<'_>) -> String {
    let has = |kind: &str| scene.list("status.conditions").iter().any(|found| value::text(found, "type") == kind);
    let mut status = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if scene.at("status.certificate").and_then(Value::as_str).is_some_and(|issued| !issued.is_empty()) {
        status.push_str(",Issued");
    }
    status
}

/// Reads a request; whether its maker holds the key does not matter to who looks at it.
fn parse(text: &str) -> Result<CertReq, Error> {
    let wrong = |why: &str| Error::Request(why.to_owned());
    let pem = STANDARD.decode(text).map_err(|error| wrong(&error.to_string()))?;
    let der = CertificateSigningRequestDer::from_pem_slice(&pem)
        .map_err(|_| wrong("PEM block type must be CERTIFICATE REQUEST"))?;
    CertReq::from_der(&der).map_err(|error| wrong(&error.to_string()))
}

/// Values of an attribute below each other, beside its name.
fn values(out: &mut Writer, name: &str, values: &[String]) {
    if !values.is_empty() {
        put!(out, 0, "\t{name}:\t{}\n", values.join("\n\t\t"));
    }
}

fn subject(out: &mut Writer, request: &CertReq) {
    let of = |oid: &str| -> Vec<String> {
        let oid = ObjectIdentifier::new_unwrap(oid);
        let attributes = request.info.subject.iter().filter(|attribute| attribute.oid == oid);
        let texts = attributes.filter_map(|attribute| attribute.value.decode_as::<DirectoryString>().ok());
        texts.map(|text| text.value().into_owned()).collect()
    };
    let last = |oid: &str| of(oid).pop().unwrap_or_default();
    put!(out, 0, "\tCommon Name:\t{}\n", last("2.5.4.3"));
    put!(out, 0, "\tSerial Number:\t{}\n", last("2.5.4.5"));
    for (name, oid) in [
        ("Organization", "2.5.4.10"),
        ("Organizational Unit", "2.5.4.11"),
        ("Country", "2.5.4.6"),
        ("Locality", "2.5.4.7"),
        ("Province", "2.5.4.8"),
        ("StreetAddress", "2.5.4.9"),
        ("PostalCode", "2.5.4.17"),
    ] {
        values(out, name, &of(oid));
    }
}

fn alternative_names(out: &mut Writer, request: &CertReq) {
    let attributes = request.info.attributes.iter().filter(|attribute| attribute.oid == ExtensionReq::OID);
    let extensions = attributes
        .flat_map(|attribute| attribute.values.iter())
        .filter_map(|value| value.decode_as::<Vec<Extension>>().ok())
        .flatten()
        .filter(|extension| extension.extn_id == SubjectAltName::OID);
    let names: Vec<GeneralName> = extensions
        .filter_map(|extension| SubjectAltName::from_der(extension.extn_value.as_bytes()).ok())
        .flat_map(|names| names.0)
        .collect();
    let of = |pick: fn(&GeneralName) -> Option<String>| names.iter().filter_map(pick).collect::<Vec<String>>();
    let dns = of(|name| if let GeneralName::DnsName(name) = name { Some(name.to_string()) } else { None });
    let mail = of(|name| if let GeneralName::Rfc822Name(name) = name { Some(name.to_string()) } else { None });
    let uris =
        of(|name| if let GeneralName::UniformResourceIdentifier(name) = name { Some(name.to_string()) } else { None });
    let addresses = of(|name| {
        let GeneralName::IpAddress(bytes) = name else { return None };
        let bytes = bytes.as_bytes();
        let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
    });
    if dns.is_empty() && mail.is_empty() && uris.is_empty() && addresses.is_empty() {
        return;
    }
    put!(out, 0, "Subject Alternative Names:\n");
    values(out, "DNS Names", &dns);
    values(out, "Email Addresses", &mail);
    values(out, "URIs", &uris);
    values(out, "IP Addresses", &addresses);
}
