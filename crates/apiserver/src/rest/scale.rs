//! The scale subresource: one shape over everything that has replicas.
//!
//! A write happens to the `Scale`, with a record of owners of its own, and is then carried over to the object: its replicas,
//! and who owns them.

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

/// Where objects that can be scaled have their replicas.
const REPLICAS: &str = "spec.replicas";

/// What a request wants a scale to be.
enum Wish {
    Replace { scale: Value, text: Text },
    Patch(Patch),
}

impl Api {
    /// Get, update or patch of `scale`.
    pub(super) async fn scale(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        if call.info.verb == "get" {
            let object = self.read(call.resource, &call.key()).await?.ok_or_else(|| call.not_found())?;
            return Ok(value_response(StatusCode::OK, scale_of(&object.to_value())));
        }
        let patches = call.info.verb == "patch";
        let options = match patches {
            true => Patch::options(call)?,
            false => WriteOptions::parse(call.query, "UpdateOptions")?,
        };
        let wish = if patches {
            Wish::Patch(Patch::read(call, body).await?)
        } else {
            let (mut scale, text) = read_of_kind(call.headers, body, "Scale").await?;
            check_kind(&mut scale, "autoscaling", "v1", "Scale")?;
            self.check_name(call, &scale)?;
            Wish::Replace { scale, text }
        };
        let changed = self
            .replace(call, Part::Main, &options, |old, _| {
                let new = self.scaled(call, &wish, &options, old)?;
                // The record of owners came over from the scale.
                Ok(Produced { new, applied: true })
            })
            .await?;
        let object = changed.ok_or_else(|| ApiError::not_found(&subject(call), &call.info.name))?.object();
        Ok(value_response(StatusCode::OK, scale_of(&object.to_value())))
    }

    /// The object with what the request wants its scale to be.
    fn scaled(&self, call: &Call<'_>, wish: &Wish, options: &WriteOptions, old: &Value) -> Result<Value, ApiError> {
        let of = scale_type();
        let api_version = call.served.facts.api_version();
        let link = Scale { api_version: &api_version, replicas: REPLICAS };
        let mut live = scale_of(old);
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
        let (mut scale, text) = match wish {
            Wish::Replace { scale, text } => (scale.clone(), text.clone()),
            Wish::Patch(patch) => match &patch.form {
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
        match wish {
            Wish::Replace { .. } => check_kind(&mut scale, "autoscaling", "v1", "Scale")?,
            Wish::Patch(patch) => {
                let unfit = |why: String| patch.unfit(|| live.clone(), Some(of), &why);
                if let Some(unknown) = patch.versionless(&scale) {
                    strictness(text.problems(unknown, of), options).map_err(unfit)?;
                    return Err(nameless(call));
                }
                patch.check_kind(&mut scale, ("autoscaling", "v1", "Scale"), Some(of), || live.clone())?;
                if patch.converts() {
                    schema::from_unstructured(&mut scale, of).map_err(unfit)?;
                }
            }
        }
        schema::conform(&mut scale, of).and_then(|unknown| strictness(text.problems(unknown, of), options)).map_err(
            |why| match wish {
                Wish::Replace { .. } => machinery::codec::cannot_be_handled("Scale", "v1", "Scale", &why),
                Wish::Patch(patch) => patch.unfit(|| live.clone(), Some(of), &why),
            },
        )?;
        self.check_namespace(call, &mut scale)?;
        self.check_name(call, &scale)?;
        schema::complete(&mut scale, of);
        if !applied {
            keeper.update(&live, &mut scale, &manager(call, options), &self.now());
        }
        check(call, &scale, old)?;
        let mut new = old.clone();
        value::set(&mut new, "metadata.resourceVersion", value::text(&scale, "metadata.resourceVersion"));
        value::set(&mut new, REPLICAS, value::int(&scale, "spec.replicas").unwrap_or(0));
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
    if replicas < 0 {
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

/// An object's scale.
pub fn scale_of(object: &Value) -> Value {
    let metadata = |key: &str| value::at(object, &format!("metadata.{key}")).cloned().unwrap_or(Value::Null);
    let selector = match value::at(object, "spec.selector") {
        // A ReplicationController's selector is a plain map of labels.
        Some(Value::Object(labels)) if value::text(object, "kind") == "ReplicationController" => {
            LabelSelector::from_labels(
                labels.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())),
            )
            .to_string()
        }
        Some(selector) => LabelSelector::from_value(selector).map(|selector| selector.to_string()).unwrap_or_default(),
        None => String::new(),
    };
    let mut status = json!({"replicas": value::int(object, "status.replicas").unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut spec = json!({});
    if let Some(replicas) = value::int(object, "spec.replicas").filter(|replicas| *replicas != 0) {
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
