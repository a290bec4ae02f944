//! `kubectl scale`: how many pods there are to be.

use machinery::status::go_quote;
use serde_json::{Value, json};

use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::record;
use crate::report::Report;
use crate::resource::helper::{DryRun, MERGE, Writing};
use crate::resource::{Builder, Info};

pub static COMMAND: Command = Command {
    name: "scale",
    aliases: &[],
    usage: "[--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME)",
    short: "Set a new size for a deployment, replica set, or replication controller",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::SELECTOR,
        sets::ALL,
        sets::DRY_RUN,
        sets::RECORD,
        &[
            Flag::int("current-replicas", "-1", "Change only what has this many."),
            Flag::int("replicas", "0", "How many there are to be."),
            Flag::string("resource-version", "", "Change only this version of the object."),
            Flag::duration("timeout", "0s", "How long to wait until there are so many; 0 does not wait."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    if flags.is("all") && !flags.text("selector").is_empty() {
        return Err(Failure::message("cannot set --all and --selector at the same time"));
    }
    if !flags.changed("replicas") {
        return Err(Failure::message("required flag(s) \"replicas\" not set"));
    }
    let replicas = flags.int("replicas");
    if replicas < 0 {
        return Err(Failure::message(
            "The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0",
        ));
    }
    let current = flags.int("current-replicas");
    if current < -1 {
        return Err(Failure::message("The --current-replicas must specify an integer of -1 or greater"));
    }
    let version = flags.text("resource-version").to_owned();
    let mut writing = Writing::from_flags(flags)?;
    "scale".clone_into(&mut writing.subresource);
    let builder = Builder::from_flags(&invocation.session, flags)?;
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    if !version.is_empty() && found.infos.len() > 1 {
        return Err(Failure::message("cannot use --resource-version with multiple resources"));
    }
    let errors = found.errors;
    let mut report = Report::new(invocation, writing.dry_run, false)?;
    if found.infos.is_empty() && errors.is_empty() {
        return Err(Failure::message("no objects passed to scale"));
    }
    for mut info in found.infos {
        if writing.dry_run != DryRun::Client {
            // The first that cannot be scaled ends it.
            one(invocation, &writing, &info, replicas, current, &version).await?;
        }
        machinery::value::set(&mut info.object, "spec.replicas", replicas);
        report.say(invocation, &info.object, "scaled")?;
    }
    Failure::all(errors)
}

async fn one(
    invocation: &Invocation,
    writing: &Writing,
    info: &Info,
    replicas: i64,
    current: i64,
    version: &str,
) -> Outcome {
    let api = invocation.session.api()?;
    let path = info.mapping.path(&info.namespace, &info.name, "scale");
    let mut patch = json!({"spec": {"replicas": replicas}});
    if current >= 0 || !version.is_empty() {
        let scale = api.get(&path).await.map_err(unscalable)?;
        let known = machinery::value::int(&scale, "spec.replicas").unwrap_or_default();
        if current >= 0 && known != current {
            return Err(Failure::Message(format!("Expected replicas to be {current}, was {known}")));
        }
        let seen = machinery::value::text(&scale, "metadata.resourceVersion").to_owned();
        if !version.is_empty() && seen != version {
            return Err(Failure::Message(format!("Expected resource version to be {version}, was {seen}")));
        }
        patch["metadata"] = json!({"resourceVersion": seen});
    }
    writing.patch(&api, info, MERGE, &patch).await.map_err(unscalable)?;
    if let Some(patch) = record::patch(invocation) {
        let whole = Writing { subresource: String::new(), ..writing.clone() };
        whole.patch(&api, info, MERGE, &patch).await?;
    }
    let limit = invocation.flags.duration("timeout");
    if limit.is_zero() || writing.dry_run != DryRun::No {
        return Ok(());
    }
    let reached = async {
        loop {
            let scale: Value = api.get(&path).await?;
            let is = machinery::value::int(&scale, "status.replicas").unwrap_or_default();
            if is == replicas {
                return Ok::<(), Failure>(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
    };
    tokio::time::timeout(limit, reached).await.unwrap_or_else(|_| {
        Err(Failure::Message(format!("timed out waiting for {} to be synced", go_quote(&info.name))))
    })
}

fn unscalable(error: Failure) -> Failure {
    match error {
        Failure::Api(error) if error.code == 404 && error.message.contains("could not find the requested resource") => {
            Failure::Plain(format!("Error from server (NotFound): {}", error.message))
        }
        other => other,
    }
}
