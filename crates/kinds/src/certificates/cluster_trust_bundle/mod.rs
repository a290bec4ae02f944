//! ClusterTrustBundles: roots that pods trust.

pub mod columns;

use machinery::Value;
use machinery::object::Field;
use machinery::status::FieldError;

use crate::certificates::pem::{OMITTED, blocks};
use crate::checks::rare_names::{signer_name, trust_bundle_name};
use crate::checks::{At, Errors};
use crate::strategy::{Flags, NameRule, Strategy};

const MOST_BUNDLE: usize = 1024 * 1024;

pub struct TrustBundles;

impl Strategy for TrustBundles {
    fn fields(&self) -> &'static [Field] {
        const { &[Field::text("spec.signerName")] }
    }

    /// The name begins with the signer, so it is judged together with it.
    fn name_rule(&self) -> NameRule {
        NameRule::Own
    }

    fn flags(&self) -> Flags {
        Flags { allows_unconditional_update: false, ..Flags::USUAL }
    }

    fn validate(&self, bundle: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        trust_bundle(&At::root(bundle), None, &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let (new, old) = (At::root(new), At::root(old));
        trust_bundle(&new, Some(&old), &mut errors);
        errors.immutable(&new.at("spec.signerName"), &old.at("spec.signerName"));
        errors.into_vec()
    }
}

fn trust_bundle(bundle: &At<'_, '_>, old: Option<&At<'_, '_>>, errors: &mut Errors) {
    let (name, signer, roots) =
        (bundle.at("metadata.name"), bundle.at("spec.signerName"), bundle.at("spec.trustBundle"));
    errors.problems(&name, trust_bundle_name(signer.text(), name.text()));
    if !signer.text().is_empty() {
        signer_name(&signer, errors);
    }
    // What is there already was right when it came; parsers change.
    if old.is_none_or(|old| old.at("spec.trustBundle").value() != roots.value()) {
        anchors(&roots, errors);
    }
}

/// One certificate authority at least, each once, and nothing else.
fn anchors(at: &At<'_, '_>, errors: &mut Errors) {
    if at.text().len() > MOST_BUNDLE {
        return errors.too_long(at, MOST_BUNDLE);
    }
    let before = errors.len();
    let mut known: Vec<(Vec<u8>, Vec<usize>)> = Vec::new();
    for (index, block) in blocks(at.text()).enumerate() {
        let mut wrong = |detail: String| errors.invalid_value(at, OMITTED, detail);
        if block.label != "CERTIFICATE" {
            wrong(format!("entry {index} has bad block type: {}", block.label));
        } else if block.headers {
            wrong(format!("entry {index} has PEM block headers"));
        } else {
            match pki::Certificate::from_der(&block.bytes) {
                Err(_) => wrong(format!("entry {index} does not parse as X.509")),
                Ok(certificate) if !certificate.is_authority => {
                    wrong(format!("entry {index} does not have the CA bit set"));
                }
                Ok(_) => match known.iter_mut().find(|(bytes, _)| *bytes == block.bytes) {
                    Some((_, indices)) => indices.push(index),
                    None => known.push((block.bytes, vec![index])),
                },
            }
        }
    }
    if errors.len() > before {
        return;
    }
    if known.is_empty() {
        errors.invalid_value(at, OMITTED, "at least one trust anchor must be provided");
    }
    for (_, indices) in known.iter().filter(|(_, indices)| indices.len() > 1) {
        let shown: Vec<String> = indices.iter().map(ToString::to_string).collect();
        errors.invalid_value(at, OMITTED, format!("duplicate trust anchor (indices [{}])", shown.join(" ")));
    }
}
