//! How the objects of a definition come from one version into another.

use ::apiextensions::definition::condition_is;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::{Value, value};

use crate::admissionregistration::client::{client_config, review_versions};
use crate::checks::{At, Errors};

/// Judges `spec.conversion`; `old` is the definition that it changes.
pub fn validate(at: &At<'_, '_>, preserve: bool, old: Option<&Value>, errors: &mut Errors) {
    if !at.is_set() {
        return;
    }
    let strategy = at.at("strategy");
    if preserve && strategy.text() != "None" {
        errors.invalid_text(&strategy, "must be None if spec.preserveUnknownFields is true");
    }
    errors.required_one_of(&strategy, &["None", "Webhook"]);
    let client = at.named("webhookClientConfig", "webhook.clientConfig");
    let versions = at.named("conversionReviewVersions", "webhook.conversionReviewVersions");
    if strategy.text() == "Webhook" {
        if client.is_set() {
            client_config(&client, errors);
            let bundle = client.at("caBundle");
            if let Err(why) = judge_bundle(bundle.text())
                && old.is_some_and(must_have_good_bundle)
            {
                errors.invalid(&bundle, why);
            }
        } else {
            errors.required(&client, "required when strategy is set to Webhook");
        }
        review_versions(&versions, "", errors);
    } else {
        errors.forbidden_if_set(&client, "should not be set when strategy is not set to Webhook");
        if !versions.is_empty() {
            errors.forbidden(&versions, "should not be set when strategy is not set to Webhook");
        }
    }
}

/// Whether the bundle of a definition has been good: one that is not yet served may get its own later, and a bad one may stay.
fn must_have_good_bundle(old: &Value) -> bool {
    let bundle = value::text(old, "spec.conversion.webhook.clientConfig.caBundle");
    condition_is(old, "Established", "True") && judge_bundle(bundle).is_ok()
}

/// What is wrong with certificates of authorities; none are fine.
fn judge_bundle(bundle: &str) -> Result<(), String> {
    if bundle.is_empty() {
        return Ok(());
    }
    let bytes = STANDARD.decode(bundle).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let begins = |kind: &str| text.contains(&format!("-----BEGIN {kind}"));
    let why = if !begins("") {
        "unable to parse bytes as PEM block"
    } else if !begins("CERTIFICATE-----") {
        "no valid certificate authority data seen"
    } else if pki::certificates_in(&text).is_empty() {
        "failed to parse certificate: x509: malformed certificate"
    } else {
        return Ok(());
    };
    Err(format!("unable to load root certificates: {why}"))
}
