//! What a conversion by webhook costs on the server's side: a list in another version than the stored one, less the webhook's own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use testkit::Https;

use super::{GROUP, define, definitions, line, objects};
use crate::load;
use crate::{Failure, Target};

const BATCH: usize = 500;

/// Gives every object the version that is asked for.
fn converted(request: &http::Request<Bytes>) -> Option<Value> {
    let review: Value = serde_json::from_slice(request.body()).ok()?;
    let wanted = review["request"]["desiredAPIVersion"].clone();
    let mut objects = review["request"]["objects"].clone();
    for object in objects.as_array_mut()? {
        object["apiVersion"] = wanted.clone();
    }
    Some(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    }))
}

pub async fn measure(target: &Target) -> Result<(), Failure> {
    let inside = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&inside);
    let webhook = Https::start(|_| {
        move |request: http::Request<Bytes>| {
            let begun = Instant::now();
            let body = converted(&request).unwrap_or_default().to_string();
            counted.fetch_add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
            http::Response::new(Bytes::from(body))
        }
    })
    .await;
    let mut definition = definitions::small("converteds", definitions::like_pods());
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.push(second);
    }
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("{}/convert", webhook.url()), "caBundle": STANDARD.encode(webhook.authority())},
    }});
    define(target, &definition).await?;
    let path = objects("converteds");
    let make = move |number: usize| {
        let body = definitions::object("converteds", &format!("c{number}"), definitions::pod_spec());
        (Method::POST, path.clone(), Some(body))
    };
    load::run(target, BATCH, Arc::new(make)).await?;

    let other = format!("/apis/{GROUP}/v2/namespaces/bench-custom/converteds");
    let (mut plain, mut whole, mut own) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..20 {
        let sent = Instant::now();
        load::send(target.client(), Method::GET, &objects("converteds"), None).await?;
        plain.push(sent.elapsed().as_secs_f64());
        inside.store(0, Ordering::Relaxed);
        let sent = Instant::now();
        load::send(target.client(), Method::GET, &other, None).await?;
        whole.push(sent.elapsed().as_secs_f64());
        own.push(inside.load(Ordering::Relaxed) as f64 / 1e9);
    }
    let half = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let (plain, whole, own) = (half(&mut plain), half(&mut whole), half(&mut own));
    line(target, "conversion_by_webhook")
        .figure("objects", BATCH as f64)
        .figure("plain_ms", plain * 1e3)
        .figure("converted_ms", whole * 1e3)
        .figure("webhook_ms", own * 1e3)
        .figure("us_per_object", (whole - own - plain).max(0.0) * 1e6 / BATCH as f64)
        .at_most("us_per_object", 50.0)
        .print();
    Ok(())
}
