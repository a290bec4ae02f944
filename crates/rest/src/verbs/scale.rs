//! The scale subresource: one shape over everything that has replicas.
//!
//! A write happens to the `Scale`, with a record of owners of its own, and is then carried over to the object: its replicas,
//! and who owns them.

use std::borrow::Cow;

use facts::Type;
use http::StatusCode;
use machinery::apply::{FieldManager, Filter, OneVersion, Scale};
use machinery::gvk::GroupResource;
use machinery::rest::{Body, Response};
use machinery::selector::label::LabelSelector;
use machinery::status::{ApiError, FieldError};
use machinery::{Value, objectmeta, schema, value};
use serde_json::json;

use super::body::{Text, check_kind, read_of_kind, strictness};
use super::managed::manager;
use super::options::WriteOptions;
use super::patch::{Form, Patch};
use super::update::{Part, Produced, nameless};
use super::{Api, Call, value_response};
use crate::registry::Resource;

/// What a request wants a scale to be.
enum Change {
    Replace { scale: Value, text: Text },
    Patch(Patch),
}

impl Api {
    /// Get, update or patch of `scale`.
    pub(super) async fn scale(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        if call.info.verb == "get" {
            let object = self.read(call.resource, &call.key()).await?.ok_or_else(|| call.not_found())?;
            let object = object.to_value();
            let replicas = call.resource.strategy.scaling().replicas;
            if call.resource.form.is_some() && value::at(&object, replicas).is_none() {
                let path = format!(".{replicas}");
                return Err(ApiError::internal(format!("the spec replicas field {path:?} does not exist")));
            }
            return Ok(value_response(StatusCode::OK, scale_of(call.resource, &object)));
        }
        let patches = call.info.verb == "patch";
        let options = match patches {
            true => Patch::options(call)?,
            false => WriteOptions::parse(call.query, "UpdateOptions")?,
        };
        let change = if patches {
            Change::Patch(Patch::read(call, body).await?)
        } else {
            let (mut scale, text) = read_of_kind(call.headers, body, "Scale").await?;
            check_kind(&mut scale, "autoscaling", "v1", "Scale")?;
            self.check_name(call, &scale)?;
            Change::Replace { scale, text }
        };
        let changed = self
            .replace(call, Part::Main, &options, |old, _| {
                let new = self.scaled(call, &change, &options, old)?;
                // The record of owners came over from the scale.
                Ok(Produced { new, applied: true })
            })
            .await?;
        let object = changed.ok_or_else(|| ApiError::not_found(&subject(call), &call.info.name))?.object();
        Ok(value_response(StatusCode::OK, scale_of(call.resource, &object.to_value())))
    }

    /// The object with what the request wants its scale to be.
    fn scaled(&self, call: &Call<'_>, change: &Change, options: &WriteOptions, old: &Value) -> Result<Value, ApiError> {
        let of = scale_type();
        let api_version = call.served.facts.api_version();
        let replicas = call.resource.strategy.scaling().replicas;
        let link = Scale { api_version: &api_version, replicas };
        let mut live = scale_of(call.resource, old);
        schema::complete(&mut live, of);
        link.to_scale(old, &mut live);
        let keeper = FieldManager {
            of,
            kind: "Scale",
            api_version: "autoscaling/v1",
            subresource: "scale",
            filter: &Filter::All,
            versions: &OneVersion,
        };
        let mut applied = false;
        let (mut scale, text) = match change {
            Change::Replace { scale, text } => (scale.clone(), text.clone()),
            Change::Patch(patch) => match &patch.form {
                Form::Apply { configuration, force } => {
                    applied = true;
                    let merged = keeper.apply(&live, configuration, &options.field_manager, *force, &self.now())?;
                    (merged.object, Text::default())
                }
                _ => {
                    let (scale, problems) = patch.patched(live.clone(), Some(of), options.field_validation)?;
                    (scale, Text::with_problems(problems))
                }
            },
        };
        match change {
            Change::Replace { .. } => check_kind(&mut scale, "autoscaling", "v1", "Scale")?,
            Change::Patch(patch) => {
                let unfit = |why: String| patch.unfit(|| Cow::Borrowed(&live), Some(of), &why);
                if let Some(unknown) = patch.versionless(&scale) {
                    strictness(text.problems(unknown, of), options, &call.exchange.notes).map_err(unfit)?;
                    return Err(nameless(call));
                }
                patch.check_kind(&mut scale, ("autoscaling", "v1", "Scale"), Some(of), || Cow::Borrowed(&live))?;
            }
        }
        let conform = match change {
            Change::Replace { .. } => schema::conform,
            Change::Patch(patch) => patch.conform(),
        };
        conform(&mut scale, of)
            .and_then(|unknown| strictness(text.problems(unknown, of), options, &call.exchange.notes))
            .map_err(|why| match change {
                Change::Replace { .. } => machinery::codec::cannot_be_handled("Scale", "v1", "Scale", &why),
                Change::Patch(patch) => patch.unfit(|| Cow::Borrowed(&live), Some(of), &why),
            })?;
        self.check_namespace(call, &mut scale)?;
        self.check_name(call, &scale)?;
        schema::complete(&mut scale, of);
        if !applied {
            keeper.update(&live, &mut scale, &manager(call, options), &self.now());
        }
        check(call, &scale, old)?;
        let unset = call.resource.form.is_some() && value::at(old, replicas).is_none();
        if unset && matches!(change, Change::Patch(_)) && value::int(&scale, "spec.replicas").unwrap_or(0) == 0 {
            let message = format!("the spec replicas field {:?} cannot be empty", format!(".{replicas}"));
            return Err(ApiError::bad_request(message));
        }
        let mut new = old.clone();
        value::set(&mut new, "metadata.resourceVersion", value::text(&scale, "metadata.resourceVersion"));
        value::set(&mut new, replicas, value::int(&scale, "spec.replicas").unwrap_or(0));
        link.to_object(&scale, &mut new);
        Ok(new)
    }
}

/// How errors about a scale name what it is a part of.
fn subject(call: &Call<'_>) -> GroupResource {
    GroupResource::new(&call.resource.name.group, format!("{}/scale", call.resource.name.resource))
}

/// The type of a scale.
fn scale_type() -> &'static Type {
    facts::type_of("autoscaling", "v1", "Scale").expect("the facts have every kind that is served").def()
}

/// What upstream checks of a scale; the rest of its metadata is ignored.
fn check(call: &Call<'_>, scale: &Value, old: &Value) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    objectmeta::validate_managed_fields(&scale["metadata"], "metadata.managedFields", &mut errors);
    let replicas = value::int(scale, "spec.replicas").unwrap_or(0);
    // What a custom resource may have is for its own rules to say.
    if replicas < 0 && call.resource.form.is_none() {
        errors.push(FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0"));
    }
    if !errors.is_empty() {
        return Err(ApiError::invalid("autoscaling", "Scale", &call.info.name, &errors));
    }
    let (uid, stored) = (value::text(scale, "metadata.uid"), value::text(old, "metadata.uid"));
    if !uid.is_empty() && uid != stored {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}");
        return Err(ApiError::conflict(&subject(call), &call.info.name, &why));
    }
    Ok(())
}

pub fn scale_of(resource: &Resource, object: &Value) -> Value {
    let scaling = resource.strategy.scaling();
    let metadata = |key: &str| value::at(object, &format!("metadata.{key}")).cloned().unwrap_or(Value::Null);
    let selector = match value::at(object, scaling.selector).filter(|_| !scaling.selector.is_empty()) {
        Some(Value::String(text)) => text.clone(),
        // Older kinds have a plain map of labels, whose values are texts.
        Some(Value::Object(labels)) if labels.values().all(Value::is_string) => LabelSelector::from_labels(
            labels.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())),
        )
        .to_string(),
        Some(selector) => LabelSelector::from_value(selector).map(|selector| selector.to_string()).unwrap_or_default(),
        None => String::new(),
    };
    let mut status = json!({"replicas": value::int(object, scaling.observed).unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut spec = json!({});
    if let Some(replicas) = value::int(object, scaling.replicas).filter(|replicas| *replicas != 0) {
        spec["replicas"] = json!(replicas);
    }
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {
            "name": metadata("name"), "namespace": metadata("namespace"), "uid": metadata("uid"),
            "resourceVersion": metadata("resourceVersion"), "creationTimestamp": metadata("creationTimestamp"),
        },
        "spec": spec, "status": status,
    })
}
