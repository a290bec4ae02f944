//! What `kubectl run -i` does after the pod was made: wait until it runs, join its streams, and end as it ends.

use std::time::Duration;

use machinery::value::{list, text};
use serde_json::{Value, json};

use crate::api::JSON;
use crate::command::Invocation;
use crate::commands::talk::{self, StreamOptions};
use crate::commands::{logs, patience, pods};
use crate::error::{Failure, Outcome};
use crate::resource::{files, info};

/// Holds the session, and deletes what was made for it where that was asked for.
pub async fn hold(invocation: &mut Invocation, made: &[Value]) -> Outcome {
    let outcome = talk_to(invocation, &made[0]).await;
    if invocation.flags.is("rm") {
        remove(invocation, made).await?;
    }
    outcome
}

fn completed(pod: &Value) -> bool {
    matches!(text(pod, "status.phase"), "Succeeded" | "Failed")
}

fn is_ready(pod: &Value) -> bool {
    list(pod, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True")
}

async fn talk_to(invocation: &mut Invocation, pod: &Value) -> Outcome {
    let patience = patience(invocation)?;
    let (namespace, name) = (text(pod, "metadata.namespace").to_owned(), text(pod, "metadata.name").to_owned());
    let runs = |pod: &Value| completed(pod) || (text(pod, "status.phase") == "Running" && is_ready(pod));
    let pod = pods::until(&invocation.session, &namespace, &name, patience, runs).await?;
    if completed(&pod) {
        logs::show(invocation, &pod, "", "").await?;
    } else {
        attach(invocation, &pod).await?;
    }
    let restart = text(&pod, "spec.restartPolicy");
    if invocation.flags.is("leave-stdin-open") || !matches!(restart, "Never" | "OnFailure") {
        return Ok(());
    }
    let ended = |pod: &Value| match restart {
        "OnFailure" => text(pod, "status.phase") == "Succeeded",
        _ => completed(pod),
    };
    judge(&pods::until(&invocation.session, &namespace, &name, patience, ended).await?)
}

async fn attach(invocation: &mut Invocation, pod: &Value) -> Outcome {
    let stream = StreamOptions {
        stdin: invocation.flags.is("stdin"),
        tty: invocation.flags.is("tty"),
        quiet: invocation.flags.is("quiet"),
        detach_keys: invocation.flags.text("detach-keys").to_owned(),
    };
    // What was said before the session began is in the log alone.
    let mut since = String::new();
    match tokio::time::timeout(Duration::from_secs(5), logs::show(invocation, pod, "", "")).await {
        Ok(Ok(())) => since = machinery::time::format(jiff::Timestamp::now()),
        Ok(Err(error)) => {
            let why = error.bare();
            invocation.streams.error(&format!("warning: couldn't fetch pre-attach logs: {why}"));
        }
        Err(_) => {
            invocation.streams.error("warning: couldn't fetch pre-attach logs: context deadline exceeded");
        }
    }
    match talk::attach(invocation, pod, "", &stream, "kubectl attach").await {
        Ok(()) => Ok(()),
        Err(failure @ Failure::Exit(_)) => Err(failure),
        Err(error) => {
            let name = text(pod, "metadata.name");
            invocation.streams.error(&format!(
                "warning: couldn't attach to pod/{name}, falling back to streaming logs: {}",
                error.bare()
            ));
            logs::show(invocation, pod, "", &since).await
        }
    }
}

/// The pod's end as an exit code.
fn judge(pod: &Value) -> Outcome {
    let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
    match text(pod, "status.phase") {
        "Succeeded" => Ok(()),
        "Failed" => {
            let end = list(pod, "status.containerStatuses").first().map(|status| &status["state"]["terminated"]);
            let code = end.and_then(|end| end["exitCode"].as_i64()).and_then(|code| i32::try_from(code).ok());
            match (end, code) {
                (Some(end), Some(code)) if code != 0 => Err(Failure::WithCode(
                    format!("pod {namespace}/{name} terminated ({})\n{}", text(end, "reason"), text(end, "message")),
                    code,
                )),
                _ => Err(Failure::Message(format!("pod {namespace}/{name} failed with unknown exit code"))),
            }
        }
        phase => Err(Failure::Message(format!("pod {namespace}/{name} left in phase {phase}"))),
    }
}

async fn remove(invocation: &mut Invocation, made: &[Value]) -> Outcome {
    for object in made {
        let mapping = files::local(text(object, "apiVersion"), text(object, "kind")).unwrap_or_default();
        let info = info(&mapping, object.clone(), "");
        let options = json!({"propagationPolicy": "Background"});
        match invocation.session.api()?.send(http::Method::DELETE, &info.path(), JSON, &options).await {
            Ok(_) if invocation.flags.is("quiet") => {}
            Ok(_) => invocation.say(&format!(
                "{} {:?} deleted from {} namespace",
                info.mapping.kind_name(),
                info.name,
                info.namespace
            ))?,
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_failed_gives_its_exit_code() {
        let pod = |phase: &str, code: i64| {
            json!({"metadata": {"namespace": "n", "name": "p"}, "status": {"phase": phase,
                "containerStatuses": [{"state": {"terminated": {"exitCode": code, "reason": "Error", "message": "m"}}}]}})
        };
        let judged = |pod: &Value| judge(pod).err().map(|failure| (failure.render(), failure.code()));
        assert_eq!(judged(&pod("Succeeded", 0)), None);
        assert_eq!(judged(&pod("Failed", 3)), Some(("pod n/p terminated (Error)\nm".to_owned(), 3)));
        assert_eq!(judged(&pod("Failed", 0)), Some(("error: pod n/p failed with unknown exit code".to_owned(), 1)));
        assert_eq!(judged(&pod("Pending", 0)), Some(("error: pod n/p left in phase Pending".to_owned(), 1)));
    }
}
