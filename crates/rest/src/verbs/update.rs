//! Update, and what every change of an existing object has in common.

use std::sync::Arc;

use http::StatusCode;
use kinds::keep::keep;
use machinery::apply::equal_but_times;
use machinery::object::Object;
use machinery::rest::{Body, Response};
use machinery::schema::Form;
use machinery::status::{ApiError, FieldError};
use machinery::{Value, value};
use threads::heavy;

use super::body::settle;
use super::commit::{Change, Changed, MAX_RACES, Swapped};
use super::options::WriteOptions;
use super::{Api, Call, object_response};
use crate::admission::Operation;

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status.
    Main,
    Status,
    /// Only what the subresource's own code changed; the strategy has no say.
    Direct,
}

/// What a write wants an object to be.
pub struct Produced {
    /// The object, in storage form.
    pub new: Value,
    /// Whether it comes from an apply, which keeps the record of field owners itself.
    pub applied: bool,
}

impl Produced {
    /// By an update or a patch.
    pub fn written(new: Value) -> Self {
        Self { new, applied: false }
    }
}

impl Api {
    pub(super) async fn update(&self, call: &Call<'_>, body: Body) -> Result<Response, ApiError> {
        let part = if call.info.subresource == "status" { Part::Status } else { Part::Main };
        let options = WriteOptions::parse(call.query, "UpdateOptions")?;
        let mut new = self.read_object(call, body, &options).await?;
        self.check_name(call, &new)?;
        self.check_namespace(call, &mut new)?;
        let replaced = self.replace(call, part, &options, |_, _| Ok(Produced::written(new.clone())));
        let (object, created) = match replaced.await? {
            Some(changed) => (changed.object(), false),
            None if part == Part::Main && call.resource.strategy.flags().creates_on_update => {
                value::remove(&mut new, "metadata.resourceVersion");
                (self.create_object(call, new, &options, false).await?, true)
            }
            None => return Err(call.not_found()),
        };
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        Ok(object_response(status, self.convert(call, object)?))
    }

    /// Changes an object by a function from the old tree to the new one. `None` if there is no such object.
    pub(crate) async fn replace(
        &self,
        call: &Call<'_>,
        part: Part,
        options: &WriteOptions,
        mut produce: impl FnMut(&Value, &Arc<Object>) -> Result<Produced, ApiError>,
    ) -> Result<Option<Changed>, ApiError> {
        // Admission may wait (for a webhook), the change function may not: so admission runs on a candidate, and the
        // candidate counts only for the version of the object it was made from.
        for _ in 0..MAX_RACES {
            let Some(old_object) = self.read(call.resource, &call.key()).await? else { return Ok(None) };
            // A small patch of a large object is large work.
            heavy::weigh(old_object.stored_len()).await;
            let old = old_object.to_value();
            let Produced { mut new, applied } = produce(&old, &old_object)?;
            // What was made may take long to judge: not for a client that has gone.
            heavy::weigh(old_object.stored_len()).await;
            self.check_version(call, &mut new, &old_object)?;
            let request = self.admission_request(call, Operation::Update, options.dry_run);
            // What admission adds belongs to nobody: the record is of what the client wrote.
            if !applied {
                self.record(call, Some(&old), &mut new, options);
            }
            self.mutate(&request, &mut new, Some(&old)).await?;
            let unsettled = settle(&call.resource.storage, &mut new, Form::Judged);
            let reservation = self.allocator.reserve(self, call, &mut new, Some(&old), options.dry_run).await?;
            let checked = async {
                self.before_update(call, part, &mut new, &old)?;
                self.admission.validate(self, &request, Some(&new), Some(&old)).await
            };
            if let Err(refused) = checked.await {
                reservation.release(self).await;
                return Err(refused);
            }
            if unsettled {
                settle(&call.resource.storage, &mut new, Form::Stored);
            }
            let gone = is_finished(&new, &old) && !call.resource.strategy.holds(&new);
            // Only the time of the record differs: nobody needs to know, unless that is how an object gets a new key.
            let same = !gone && equal_but_times(&new, &old);
            let keep = same && !self.stale(call.resource, &call.key()).await?;
            let change = match gone {
                true => Change::Delete,
                false if keep => Change::Keep,
                false => Change::Put(&new),
            };
            let key = call.key();
            match self.swap(call.writes(call.resource, &key), &old_object, &old, change, options.dry_run).await {
                Ok(Swapped::Done(changed)) => {
                    reservation.commit(self, call, Some(&old), &new).await;
                    if gone {
                        self.allocator.release_all(self, call.resource, &new).await;
                        let last = self.shown(call.resource, &new, changed.object().revision())?;
                        return Ok(Some(Changed::Deleted(last)));
                    }
                    return Ok(Some(changed));
                }
                // Whether the write happened is unknown: what it reserved stays reserved.
                Err(error) => return Err(error),
                // Somebody else was faster: from the top, with the object as it is now.
                Ok(Swapped::Raced(_)) => reservation.release(self).await,
            }
        }
        Err(ApiError::stale(&call.subject(), &call.info.name))
    }

    /// The name in the object must be the one in the path.
    pub(crate) fn check_name(&self, call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
        let (name, asked) = (value::text(object, "metadata.name"), &call.info.name);
        if name.is_empty() {
            return Err(nameless(call));
        }
        if name != asked {
            let why = "does not match the name on the URL";
            return Err(ApiError::bad_request(format!("the name of the object ({name}) {why} ({asked})")));
        }
        Ok(())
    }

    /// Optimistic concurrency: the write is for the version it names, or, where the kind allows, for whatever is there.
    fn check_version(&self, call: &Call<'_>, new: &mut Value, old: &Object) -> Result<(), ApiError> {
        // For an update the uid is a precondition; what a patch makes of it is judged with the rest of the object.
        let uid = value::text(new, "metadata.uid");
        if call.info.verb == "update" && !uid.is_empty() && uid != &*old.meta().uid {
            let at = &call.resource.prefix;
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {at}{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                call.key(),
                old.meta().uid
            );
            return Err(ApiError::conflict(&call.subject(), &call.info.name, &why));
        }
        let version = value::text(new, "metadata.resourceVersion");
        let unconditional = version.is_empty() || version == "0";
        if unconditional && !call.resource.strategy.flags().allows_unconditional_update {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            // Upstream names the resource here, where all other errors name the kind.
            let subject = &call.resource.name;
            return Err(ApiError::invalid(&subject.group, &subject.resource, &call.info.name, &[error]));
        }
        if !unconditional && version.parse::<u64>().is_err() {
            let long = version.bytes().all(|byte| byte.is_ascii_digit());
            let why = if long { "value out of range" } else { "invalid syntax" };
            return Err(ApiError::bad_request(format!("strconv.ParseUint: parsing {version:?}: {why}")));
        }
        if !unconditional && version != old.revision().to_string() {
            return Err(ApiError::stale(&call.subject(), &call.info.name));
        }
        value::set(new, "metadata.resourceVersion", old.revision().to_string());
        Ok(())
    }

    /// System fields, the strategy's preparation and validation, in upstream's order.
    fn before_update(&self, call: &Call<'_>, part: Part, new: &mut Value, old: &Value) -> Result<(), ApiError> {
        let (strategy, subresource) = (&call.resource.strategy, call.info.subresource.as_str());
        keep_metadata(new, old);
        let has_status = call.resource.storage.subresource("status").is_some();
        match part {
            Part::Main => {
                // A subresource of its own decides itself what of the object it may change: an approval is in the status.
                if matches!(subresource, "" | "scale") {
                    if has_status {
                        keep(new, old, "status");
                    }
                    strategy.prepare_for_update(new, old);
                } else {
                    strategy.prepare_for_subresource_update(subresource, new, old);
                }
                if strategy.desired_state_changed(new, old) {
                    let generation = value::int(old, "metadata.generation").unwrap_or(0);
                    value::set(new, "metadata.generation", generation.saturating_add(1));
                }
            }
            Part::Status => {
                keep(new, old, "spec");
                if strategy.flags().status_resets_metadata {
                    for key in ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"] {
                        keep(new, old, &format!("metadata.{key}"));
                    }
                }
                strategy.prepare_for_status_update(new, old);
                strategy.stamp_status(new, old, &|| self.now());
            }
            Part::Direct => {}
        }
        let hop = hops::stage(hops::Stage::Validate, call.info.verb).within(call.exchange.trace);
        let mut errors = self.validate_metadata(call, new, Some(old));
        let mut warnings = Vec::new();
        match part {
            Part::Main if matches!(subresource, "" | "scale") => {
                let judged = strategy.judge_update(new, old);
                errors.extend(judged.0);
                errors.extend(strategy.validate_version(&call.served.facts.api_version(), new, Some(old)));
                warnings = judged.1;
            }
            Part::Main => errors.extend(strategy.validate_subresource_update(subresource, new, old)),
            Part::Status => {
                let judged = strategy.judge_status_update(new, old);
                errors.extend(judged.0);
                warnings = judged.1;
            }
            Part::Direct => {}
        }
        hop.end(value::text(old, "metadata.uid"), "", 0);
        self.refuse_invalid(call, new, errors)?;
        warnings.into_iter().for_each(|text| call.warn(text));
        Ok(())
    }
}

/// The answer to an object without a name.
pub(super) fn nameless(call: &Call<'_>) -> ApiError {
    let asked = &call.info.name;
    let message = format!("the name of the object ({asked} based on URL) was undeterminable: name must be provided");
    ApiError::bad_request(message)
}

/// What of the metadata no write changes. What validation refuses, rather than overlooks, stays as the client said it.
fn keep_metadata(new: &mut Value, old: &Value) {
    keep(new, old, "metadata.generation");
    keep(new, old, "metadata.creationTimestamp");
    // A field of long ago, which upstream does not store.
    value::remove(new, "metadata.selfLink");
    for key in ["metadata.uid", "metadata.deletionGracePeriodSeconds"] {
        if value::at(new, key).is_none_or(|value| value.is_null() || value == "") {
            keep(new, old, key);
        }
    }
    if value::at(old, "metadata.deletionTimestamp").is_some() {
        keep(new, old, "metadata.deletionTimestamp");
    }
}

/// Whether this change removes the last thing that held back a deletion.
fn is_finished(new: &Value, old: &Value) -> bool {
    let deleting = value::at(old, "metadata.deletionTimestamp").is_some();
    let waits = value::int(old, "metadata.deletionGracePeriodSeconds").is_some_and(|seconds| seconds > 0);
    deleting && !waits && value::list(new, "metadata.finalizers").is_empty()
}
