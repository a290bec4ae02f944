//! `kubectl create token`.

use serde_json::json;

use super::name;
use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::{self, OBJECTS, Printer, Request};

pub static COMMAND: Command = Command {
    name: "token",
    aliases: &[],
    usage: "SERVICE_ACCOUNT_NAME",
    short: "Request a service account token",
    flags: &[
        sets::PRINT,
        &[
            Flag::array("audience", "Whom the token is for."),
            Flag::string("bound-object-kind", "", "Kind of the object whose end ends the token."),
            Flag::string("bound-object-name", "", "Name of that object."),
            Flag::string("bound-object-uid", "", "UID of that object."),
            Flag::duration("duration", "0s", "How long it is to last."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

const KINDS: [&str; 3] = ["Node", "Pod", "Secret"];

async fn run(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let flags = &invocation.flags;
    let nanos = flags.nanos("duration");
    if nanos < 0 {
        return Err(Failure::message("--duration must be greater than or equal to 0"));
    }
    if nanos % 1_000_000_000 != 0 {
        return Err(Failure::message("--duration cannot be expressed in units less than seconds"));
    }
    let mut spec = json!({});
    let audiences = flags.list("audience");
    if audiences.iter().any(String::is_empty) {
        return Err(Failure::message("--audience must not be an empty string"));
    }
    if !audiences.is_empty() {
        spec["audiences"] = json!(audiences);
    }
    if nanos > 0 {
        spec["expirationSeconds"] = (nanos / 1_000_000_000).into();
    }
    let (kind, object, uid) =
        (flags.text("bound-object-kind"), flags.text("bound-object-name"), flags.text("bound-object-uid"));
    if kind.is_empty() {
        for (flag, value) in [("bound-object-name", object), ("bound-object-uid", uid)] {
            if !value.is_empty() {
                return Err(Failure::Message(format!("--{flag} can only be set if --bound-object-kind is provided")));
            }
        }
    } else {
        if !KINDS.contains(&kind) {
            return Err(Failure::Message(format!("supported --bound-object-kind values are {}", KINDS.join(", "))));
        }
        if object.is_empty() {
            return Err(Failure::message("--bound-object-name is required if --bound-object-kind is provided"));
        }
        spec["boundObjectRef"] = json!({"kind": kind, "apiVersion": "v1", "name": object});
        if !uid.is_empty() {
            spec["boundObjectRef"]["uid"] = uid.into();
        }
    }
    let status = json!({"expirationTimestamp": null, "token": ""});
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": spec, "status": status});
    if let Some(why) = crate::resource::arguments::odd_name(&name) {
        return Err(Failure::Message(format!("failed to create token: {why}")));
    }
    let namespace = invocation.session.namespace()?;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{}/token", crate::discovery::segment(&name));
    let api = invocation.session.api()?;
    let answer = api.send(http::Method::POST, &path, JSON, &request).await.map_err(|error| match error {
        Failure::Api(error) => Failure::Message(format!("failed to create token: {}", error.message)),
        other => other,
    })?;
    let token = machinery::value::text(&answer, "status.token").to_owned();
    if token.is_empty() {
        return Err(Failure::message("failed to create token: no token in server response"));
    }
    let printer = Printer::from_flags(
        &invocation.flags,
        &invocation.session.environment,
        &Request { allowed: OBJECTS, typed: true },
    )?;
    match printer {
        // What is not read by people is the token alone.
        None if invocation.streams.terminal => invocation.say(&token),
        None => invocation.print(&token),
        Some(mut printer) => {
            let mut answer = answer;
            if !invocation.flags.is("show-managed-fields") {
                print::without_managed_fields(&mut answer);
            }
            let text = printer.print(&answer)?;
            invocation.print(&text)
        }
    }
}
