//! Create.

use http::StatusCode;
use machinery::Value;
use machinery::rest::{Body, Response};
use machinery::schema::Form;
use machinery::status::ApiError;
use machinery::value;

use super::body::settle;
use super::options::WriteOptions;
use super::{Api, Call, object_response};
use crate::admission::Operation;

/// How long a generated name may be, suffix included.
const MAX_GENERATED: usize = 63;
/// How often a generated name that is taken is made anew.
const NAME_ATTEMPTS: usize = 8;

impl Api {
    /// Makes a new object.
    pub(super) async fn create(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let options = WriteOptions::parse(call.query, "CreateOptions")?;
        let object = self.read_object(call, body, &options).await?;
        let object = self.create_object(call, object, &options, false).await?;
        Ok(object_response(StatusCode::CREATED, self.convert(call, object)?))
    }

    /// Everything after decoding: also how an apply (which has recorded its manager already) or an update makes an object
    /// that is not there yet.
    pub(super) async fn create_object(
        &self,
        call: &Call<'_>,
        mut object: Value,
        options: &WriteOptions,
        applied: bool,
    ) -> Result<std::sync::Arc<machinery::Object>, ApiError> {
        wipe_system_fields(&mut object);
        self.check_namespace(call, &mut object)?;
        let request = self.admission_request(call, Operation::Create, options.dry_run);
        if call.resource.form.as_ref().is_some_and(|form| form.definition.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(&call.subject(), value::text(&object, "metadata.name"), why));
        }
        let labelled = call.resource.strategy.take_labels(&mut object);
        // What admission adds belongs to nobody: the record is of what the client wrote.
        if !applied {
            self.record(call, None, &mut object, options);
        }
        self.mutate(&request, &mut object, None).await?;
        // A name is made up only now: whoever changes new objects sees that they have none, and may give them one.
        let base = value::text(&object, "metadata.generateName").to_owned();
        let generated = value::text(&object, "metadata.name").is_empty() && !base.is_empty();
        let attempts = if generated { NAME_ATTEMPTS } else { 1 };
        let mut taken = String::new();
        for _ in 0..attempts {
            // Only a name that may be taken makes another attempt.
            let mut new = if generated { object.clone() } else { std::mem::take(&mut object) };
            if generated {
                value::set(&mut new, "metadata.name", generate_name(&base));
            }
            let reservation = self.allocator.reserve(self, call, &mut new, None, options.dry_run).await?;
            let checked = async {
                if labelled {
                    call.resource.strategy.return_labels(&mut new);
                }
                self.before_create(call, &mut new)?;
                self.admission.validate(self, &request, Some(&new), None).await?;
                refuse_version(&mut new, applied || options.dry_run)
            };
            if let Err(refused) = checked.await {
                reservation.release(self).await;
                return Err(refused);
            }
            // A dry run shows what would be stored, too.
            settle(&call.resource.storage, &mut new, Form::Stored);
            let key = call.resource.key(&call.info.namespace, value::text(&new, "metadata.name"));
            let inserted = self.insert(call.writes(call.resource, &key), &new, options.dry_run).await;
            match inserted {
                Ok(Some(stored)) => return Ok(stored),
                Ok(None) => {
                    reservation.release(self).await;
                    // Upstream takes a name that came with a prefix for one that was made of it.
                    if base.is_empty() {
                        return Err(ApiError::already_exists(&call.subject(), value::text(&new, "metadata.name")));
                    }
                    value::text(&new, "metadata.name").clone_into(&mut taken);
                }
                // Whether the write happened is unknown: what it reserved stays reserved, and the repair at start sorts it out.
                Err(error) => return Err(error),
            }
        }
        let mut error = ApiError::already_exists(&call.subject(), &taken);
        error.message.push_str(", the server was not able to generate a unique name for the object");
        Err(error.retry_after(1))
    }

    /// System fields, the strategy's preparation and validation, in upstream's order.
    fn before_create(&self, call: &Call<'_>, new: &mut Value) -> Result<(), ApiError> {
        let strategy = &call.resource.strategy;
        let metadata = value::object_mut(new, "metadata");
        metadata.insert("uid".to_owned(), common::new_uuid().to_string().into());
        metadata.insert("creationTimestamp".to_owned(), self.now().into());
        // Nobody but the server counts: a number that somebody made up could be one that nothing can follow.
        if strategy.flags().counts_generations {
            metadata.insert("generation".to_owned(), 1.into());
        } else if metadata.get("generation").and_then(Value::as_i64).is_none_or(|made_up| made_up >= 0) {
            // A negative one stays, for validation to refuse.
            metadata.remove("generation");
        }
        if call.resource.storage.subresource("status").is_some() && !strategy.flags().keeps_status_on_create {
            value::remove(new, "status");
        }
        let mut warnings = strategy.warnings_about_sent(new);
        strategy.prepare_for_create(new);
        strategy.record_creator(new, call.user);
        complete_status(&call.resource.storage, new);
        let hop = hops::stage(hops::Stage::Validate, "create").within(call.exchange.trace);
        let mut errors = self.validate_metadata(call, new, None);
        errors.extend(strategy.validate(new));
        errors.extend(strategy.validate_version(&call.served.facts.api_version(), new, None));
        hop.end(value::text(new, "metadata.uid"), "", 0);
        self.refuse_invalid(call, new, errors)?;
        warnings.extend(strategy.warnings(new, None));
        warnings.into_iter().for_each(|text| call.warn(text));
        Ok(())
    }
}

/// What only the server says, taken out before anybody is recorded as its author.
pub(super) fn wipe_system_fields(object: &mut Value) {
    let metadata = value::object_mut(object, "metadata");
    for key in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(key);
    }
}

/// A new object has no version yet. One that cannot be read, or that nothing is written by, is passed over.
fn refuse_version(new: &mut Value, lenient: bool) -> Result<(), ApiError> {
    let given = value::remove(new, "metadata.resourceVersion");
    let version = given.as_ref().and_then(Value::as_str).and_then(|given| given.parse::<u64>().ok());
    match version {
        Some(version) if version != 0 && !lenient => {
            Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"))
        }
        _ => Ok(()),
    }
}

/// A status that is written even when there is nothing in it, as upstream writes one that is no pointer.
fn complete_status(facts: &facts::Resource, new: &mut Value) {
    let Some(field) = facts.ty.and_then(|ty| ty.def().field("status")) else { return };
    if field.always && new.get("status").is_none_or(Value::is_null) {
        value::set(new, "status", Value::Object(Default::default()));
    }
    if let (Some(status), Some(of)) = (new.get_mut("status"), field.schema.object()) {
        machinery::schema::complete(status, of);
    }
}

/// `base` and five random characters, shortened to fit.
fn generate_name(base: &str) -> String {
    let mut end = base.len().min(MAX_GENERATED - 5);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    name.push_str(&machinery::names::suffix(|below| rand::random_range(0..below)));
    name
}
