//! The audit log: who did what, when, and what came of it, by an `audit.k8s.io/v1` policy.
//!
//! [`Audit::begin`] opens a [`Record`] for a request that has been authenticated; the gates add to it on the way, and
//! [`Record::answered`] closes it before the answer goes out. Without a policy there is no `Audit`, and a request costs
//! nothing more than the question whether there is one.
//!
//! What is guaranteed, with a log in one of the blocking modes (the default):
//! - The answer to a request that changes something goes out only after its `ResponseComplete` line is on disk. Requests
//!   that end at the same time share one `fdatasync`. If the line cannot be written, the client gets an error instead of
//!   its answer. So no acknowledged change is without its line, after a SIGKILL and after a power cut alike.
//! - The answer to a request that changes nothing goes out after its line is in the system's hands: a SIGKILL of the server
//!   does not lose it, a power cut may.
//! - `RequestReceived` lines are written in order before the lines that follow them, and are waited for in
//!   `blocking-strict` mode only, where a request whose line cannot be written is refused before it does anything.
//! - The `ResponseComplete` of a watch or another stream is written when it ends, without anybody waiting for it.
//!
//! In `batch` mode nobody waits; lines that find the queue full are dropped and counted in `apiserver_audit_error_total`.

mod event;
pub mod log;
pub mod policy;
mod truncate;
pub mod webhook;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use common::Clock;
use common::held;
use figures::samples;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderMap};
use machinery::rest::{Body, Payload, Peer, Response, User};
use machinery::status::ApiError;
use parking_lot::Mutex;
use serde_json::json;

use crate::Exchange;
use crate::body::{media_type, read_bytes};
use crate::outbound;
use event::{Event, Named};
use policy::{Level, Policy, Ruling, Stage};

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The webhook cannot be used.
    #[error(transparent)]
    Webhook(#[from] outbound::Error),
}

/// How requests wait for a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Batch,
    /// Before they are answered.
    Blocking,
    /// Before they are answered, and before they do anything.
    BlockingStrict,
}

/// How safe a line has to be before somebody goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Never,
    /// A crash of the server does not lose it.
    Written,
    /// A crash of the machine does not lose it.
    Durable,
}

/// What is written, and where to.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--audit-policy-file`, read.
    pub policy: Policy,
    pub log: Option<log::Settings>,
    pub webhook: Option<webhook::Settings>,
}

pub struct Audit {
    policy: Policy,
    log: Option<log::Log>,
    webhook: Option<webhook::Webhook>,
    clock: Clock,
    events: AtomicU64,
    levels: [AtomicU64; 4],
    rejected: AtomicU64,
    log_errors: Arc<AtomicU64>,
    webhook_errors: Arc<AtomicU64>,
}

impl Audit {
    /// Opens what is to be written to.
    pub fn open(settings: Settings, clock: Clock) -> Result<Self, Error> {
        let (log_errors, webhook_errors) = (Arc::default(), Arc::default());
        Ok(Self {
            policy: settings.policy,
            log: settings.log.map(|log| log::Log::open(log, Arc::clone(&log_errors))).transpose()?,
            webhook: settings
                .webhook
                .map(|webhook| webhook::Webhook::open(&webhook, Arc::clone(&webhook_errors)))
                .transpose()?,
            clock,
            events: AtomicU64::new(0),
            levels: Default::default(),
            rejected: AtomicU64::new(0),
            log_errors,
            webhook_errors,
        })
    }

    /// Opens the record of a request, if the policy wants one, and writes that it was received.
    pub async fn begin(self: &Arc<Self>, exchange: &Exchange) -> Result<Option<Arc<Record>>, ApiError> {
        let Exchange { info, user, .. } = exchange;
        let ruling = self.policy.of(user, info);
        self.levels[ruling.level as usize].fetch_add(1, Ordering::Relaxed);
        if ruling.level == Level::None {
            return Ok(None);
        }
        let event = Event::new(exchange, Arc::clone(user), (self.clock)());
        let record = Arc::new(Record {
            audit: Arc::clone(self),
            ruling,
            mutates: info.is_mutating(),
            long_running: info.is_long_running(),
            event: Mutex::new(event),
            open: AtomicBool::new(true),
        });
        let strict = self.modes().any(|mode| mode == Mode::BlockingStrict);
        let wait = if strict { Wait::Durable } else { Wait::Never };
        if !record.write(Stage::RequestReceived, wait).await && strict {
            record.open.store(false, Ordering::Relaxed);
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return Err(ApiError::internal("failed to store audit event"));
        }
        Ok(Some(record))
    }

    /// Writes that nobody could be made out behind a request.
    pub async fn unauthenticated(self: &Arc<Self>, exchange: &Exchange, attempted: Option<String>) {
        let nobody = Arc::new(User::default());
        let ruling = self.policy.of(&nobody, &exchange.info);
        if !ruling.covers(Stage::ResponseStarted) {
            return;
        }
        let mut event = Event::new(exchange, nobody, (self.clock)());
        let message = match attempted {
            Some(methods) => format!("Authentication failed, attempted: {methods}"),
            None => "Authentication failed, no credentials provided".to_owned(),
        };
        event.status = Some(json!({
            "metadata": {}, "status": "Failure", "message": message, "reason": "Unauthorized", "code": 401,
        }));
        let line = event.line(ruling.level, Stage::ResponseStarted, (self.clock)());
        self.submit(line, Wait::Written).await;
    }

    fn modes(&self) -> impl Iterator<Item = Mode> {
        self.log.as_ref().map(log::Log::mode).into_iter().chain(self.webhook.as_ref().map(webhook::Webhook::mode))
    }

    /// Whether every backend took the line.
    async fn submit(&self, line: Bytes, wait: Wait) -> bool {
        self.events.fetch_add(1, Ordering::Relaxed);
        let log = async {
            match &self.log {
                Some(log) => log.submit(line.clone(), wait).await,
                None => true,
            }
        };
        let webhook = async {
            match &self.webhook {
                Some(webhook) => webhook.submit(line.clone(), wait).await,
                None => true,
            }
        };
        let (logged, sent) = futures::join!(log, webhook);
        logged && sent
    }

    fn offer(&self, line: &Bytes) {
        self.events.fetch_add(1, Ordering::Relaxed);
        if let Some(log) = &self.log {
            log.offer(line.clone());
        }
        if let Some(webhook) = &self.webhook {
            webhook.offer(line.clone());
        }
    }

    /// Writes and sends what waits.
    pub async fn close(&self) {
        if let Some(log) = &self.log {
            log.close().await;
        }
        if let Some(webhook) = &self.webhook {
            webhook.close().await;
        }
    }

    /// The figures, in the Prometheus text format.
    pub fn metrics(&self, text: &mut String) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let help = "[ALPHA] Counter of audit events generated and sent to the audit backend.";
        samples(text, "apiserver_audit_event_total", "counter", help).add(&[], read(&self.events));
        let help = "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.";
        let mut family = samples(text, "apiserver_audit_error_total", "counter", help);
        for (plugin, errors) in [("log", &self.log_errors), ("webhook", &self.webhook_errors)] {
            family.add(&[("plugin", plugin)], read(errors));
        }
        let help = "[ALPHA] Counter of policy levels for audit events (1 per request).";
        let mut family = samples(text, "apiserver_audit_level_total", "counter", help);
        for (level, requests) in ["None", "Metadata", "Request", "RequestResponse"].into_iter().zip(&self.levels) {
            family.add(&[("level", level)], read(requests));
        }
        let help = "[ALPHA] Counter of apiserver requests rejected due to an error in audit logging backend.";
        samples(text, "apiserver_audit_requests_rejected_total", "counter", help).add(&[], read(&self.rejected));
    }
}

/// What is written of one request. Its last line is owed until it is written; a record that is dropped before writes it
/// then, as a stream that ends does.
pub struct Record {
    audit: Arc<Audit>,
    ruling: Ruling,
    mutates: bool,
    long_running: bool,
    event: Mutex<Event>,
    open: AtomicBool,
}

impl Record {
    /// Whether the event shows what was written; then it may show what others made of it, too.
    pub fn shows_bodies(&self) -> bool {
        self.ruling.level >= Level::Request
    }

    /// Whom the user acts as, and by which permission, where it is not one for everything.
    pub fn impersonates(&self, user: &Arc<User>, constraint: Option<&'static str>) {
        let mut event = self.event.lock();
        event.impersonated = Some(Arc::clone(user));
        event.constraint = constraint;
    }

    /// Adds what the gates decided.
    pub fn annotate(&self, key: &str, text: &str) {
        self.event.lock().annotations.insert(key.to_owned(), text.to_owned());
    }

    /// Takes down what was sent. The body is read for that, so this comes after the gates that need none.
    pub async fn sent(&self, headers: &HeaderMap, body: Body) -> Result<Body, ApiError> {
        let verb = self.event.lock().verb;
        let whole = self.ruling.level >= Level::Request;
        if !matches!(verb, "create" | "update") && !whole {
            return Ok(body);
        }
        let body = match body {
            Body::Incoming(_) => Body::Bytes(read_bytes(body).await?),
            other => other,
        };
        let names = matches!(verb, "create" | "update");
        match &body {
            Body::Value(tree) => {
                self.take_down(names.then(|| Named::of(tree)), whole.then(|| tree.clone()));
            }
            Body::Bytes(bytes) if !bytes.is_empty() => {
                let media = media_type(headers);
                let json = media.is_empty() || media == "application/json" || media.ends_with("+json");
                if json && !whole {
                    // Only the names are looked for; what is no JSON is refused where it is read.
                    self.take_down(serde_json::from_slice(bytes).ok(), None);
                } else {
                    let media = match media {
                        _ if json => "application/json",
                        media if media.ends_with("+yaml") => "application/yaml",
                        media if media.ends_with("+cbor") => "application/cbor",
                        media => media,
                    };
                    if let Ok((tree, _)) = machinery::codec::decode(media, bytes) {
                        self.take_down(names.then(|| Named::of(&tree)), whole.then_some(tree));
                    }
                }
            }
            _ => {}
        }
        Ok(body)
    }

    fn take_down(&self, named: Option<Named>, tree: Option<machinery::Value>) {
        let mut event = self.event.lock();
        if let (Some(object), Some(named)) = (&mut event.object, named) {
            object.complete(named);
        }
        if let Some(tree) = tree {
            event.request = event::raw(tree, self.ruling.omit_managed_fields);
        }
    }

    /// Writes what came of the request. The answer that may go out now: the same, or an error if it must not.
    pub async fn answered(
        self: Arc<Self>,
        response: Response,
        panicked: bool,
        annotations: std::collections::BTreeMap<String, String>,
    ) -> Response {
        let (parts, payload) = response.into_parts();
        {
            let mut event = self.event.lock();
            event.annotations.extend(annotations);
            event.status = Some(event::status(parts.status.as_u16(), &payload));
            if self.ruling.level >= Level::RequestResponse {
                event.response = event::object(&payload, self.ruling.omit_managed_fields);
            }
        }
        if panicked {
            self.open.store(false, Ordering::Relaxed);
            self.write(Stage::Panic, Wait::Written).await;
            return Response::from_parts(parts, payload);
        }
        if self.long_running {
            self.write(Stage::ResponseStarted, Wait::Written).await;
        }
        let payload = match payload {
            Payload::Watch(events) => return Response::from_parts(parts, Payload::Watch(held(events, self))),
            Payload::Stream(pieces) => return Response::from_parts(parts, Payload::Stream(held(pieces, self))),
            // Whoever carries the connection from here on holds the record.
            payload if parts.status == StatusCode::SWITCHING_PROTOCOLS => return Response::from_parts(parts, payload),
            payload => payload,
        };
        self.open.store(false, Ordering::Relaxed);
        let wait = if self.mutates { Wait::Durable } else { Wait::Written };
        let written = self.write(Stage::ResponseComplete, wait).await;
        if !written && self.mutates && self.audit.modes().any(|mode| mode != Mode::Batch) {
            let error = ApiError::internal("failed to store audit event");
            let mut refusal = Response::new(Payload::Value(error.to_value()));
            *refusal.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return refusal;
        }
        Response::from_parts(parts, payload)
    }

    async fn write(&self, stage: Stage, wait: Wait) -> bool {
        if !self.ruling.covers(stage) {
            return true;
        }
        let line = self.event.lock().line(self.ruling.level, stage, (self.audit.clock)());
        self.audit.submit(line, wait).await
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if *self.open.get_mut() && self.ruling.covers(Stage::ResponseComplete) {
            let event = self.event.get_mut();
            // The client went away before there was an answer.
            event.status.get_or_insert_with(
                || json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200}),
            );
            let line = event.line(self.ruling.level, Stage::ResponseComplete, (self.audit.clock)());
            self.audit.offer(&line);
        }
    }
}

/// Which kinds of credentials a request shows, for a line about their failure.
pub fn attempted(headers: &HeaderMap, peer: &Peer) -> Option<String> {
    let mut methods = Vec::new();
    if let Some(header) = headers.get(AUTHORIZATION) {
        let scheme = header.to_str().ok().and_then(|text| text.split(' ').next()).unwrap_or_default();
        methods.push(match scheme {
            scheme if scheme.eq_ignore_ascii_case("basic") => "basic",
            scheme if scheme.eq_ignore_ascii_case("bearer") => "bearer",
            _ => "unknown",
        });
    }
    if let Peer::Remote { certificates, doubtful, .. } = peer
        && (*doubtful || !certificates.is_empty())
    {
        methods.push("x509");
    }
    (!methods.is_empty()).then(|| methods.join(", "))
}
