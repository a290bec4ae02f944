//! `kubectl auth whoami`.

use machinery::value::{at, list, text};
use serde_json::{Value, json};

use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::sets;
use crate::print::tabs::Tabs;
use crate::print::{OBJECTS, Printer, Request, golang};

pub static COMMAND: Command = Command {
    name: "whoami",
    aliases: &[],
    usage: "",
    short: "Experimental: Check self subject attributes",
    flags: &[sets::PRINT],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}, "status": {"userInfo": {}}});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = invocation.session.api()?.send(http::Method::POST, path, JSON, &review).await.map_err(|error| match &error {
        Failure::Api(api) if api.code == 404 => {
            Failure::message("the selfsubjectreviews API is not enabled in the cluster\nenable APISelfSubjectReview feature gate and authentication.k8s.io/v1alpha1 or authentication.k8s.io/v1beta1 API")
        }
        Failure::Api(api) if api.code == 403 => Failure::message(
            "the selfsubjectreviews API is not enabled in the cluster or you do not have permission to call it",
        ),
        _ => error,
    })?;
    let request = Request { allowed: OBJECTS, typed: true };
    let text = match Printer::from_output(&invocation.flags, &invocation.session.environment, &request)? {
        Some(mut printer) => printer.print(&answer)?,
        None => table(&answer),
    };
    invocation.print(&text)
}

fn table(answer: &Value) -> String {
    let mut lines = "ATTRIBUTE\tVALUE\n".to_owned();
    for (name, field) in [("Username", "status.userInfo.username"), ("UID", "status.userInfo.uid")] {
        if !text(answer, field).is_empty() {
            lines += &format!("{name}\t{}\n", text(answer, field));
        }
    }
    let groups = list(answer, "status.userInfo.groups");
    if !groups.is_empty() {
        lines += &format!("Groups\t{}\n", golang::print(&Value::Array(groups.to_vec())));
    }
    for (key, value) in at(answer, "status.userInfo.extra").and_then(Value::as_object).into_iter().flatten() {
        lines += &format!("Extra: {key}\t{}\n", golang::print(value));
    }
    Tabs::new().align(&lines)
}
