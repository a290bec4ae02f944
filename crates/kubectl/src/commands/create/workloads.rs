//! `kubectl create deployment`, `job` and `cronjob`.

use serde_json::{Value, json};

use super::{GENERATOR, generated, name};
use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;
use crate::resource;

pub static DEPLOYMENT: Command = Command {
    name: "deployment",
    aliases: &["deploy"],
    usage: "NAME --image=image -- [COMMAND] [args...] [flags]",
    short: "Create a deployment with the specified name",
    flags: &[
        GENERATOR,
        &[
            Flag::slice("image", "Images of the containers."),
            Flag::int32("port", "-1", "Port that the container exposes."),
            Flag::int32("replicas", "1", "How many pods there are to be.").short('r'),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(deployment(invocation))),
};

pub static JOB: Command = Command {
    name: "job",
    aliases: &[],
    usage: "NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...]",
    short: "Create a job with the specified name",
    flags: &[
        GENERATOR,
        &[
            Flag::string("from", "", "Where the job's template is: cronjob/NAME."),
            Flag::string("image", "", "Image of the container."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(job(invocation))),
};

pub static CRON_JOB: Command = Command {
    name: "cronjob",
    aliases: &["cj"],
    usage: "NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...] [flags]",
    short: "Create a cron job with the specified name",
    flags: &[
        GENERATOR,
        &[
            Flag::string("image", "", "Image of the container."),
            Flag::string("restart", "", "Restart policy: OnFailure or Never."),
            Flag::string("schedule", "", "When it runs, in the format of cron."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(cron_job(invocation))),
};

/// What stands after the name: the command of the container.
fn command(invocation: &Invocation) -> Vec<String> {
    let arguments = &invocation.flags.arguments;
    arguments.get(1..).map(<[String]>::to_vec).unwrap_or_default()
}

/// A name for the container of an image: its last part, without tag and digest. One that had to be changed might be another's,
/// and so ends in something of its own.
fn container_name(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let last = last.split(['@', ':']).next().unwrap_or(last);
    if !last.contains(['.', '_']) {
        return last.to_owned();
    }
    format!("{}-{}", last.replace(['.', '_'], "-"), crate::commands::suffix())
}

async fn deployment(invocation: &mut Invocation) -> Outcome {
    let arguments = &invocation.flags.arguments;
    if arguments.is_empty() || (invocation.flags.dash != Some(1) && arguments.len() != 1) {
        return Err(invocation.usage(format_args!("exactly one NAME is required, got {}", arguments.len())));
    }
    let name = arguments[0].clone();
    let (images, command) = (invocation.flags.list("image"), command(invocation));
    if images.len() > 1 && !command.is_empty() {
        return Err(Failure::message("cannot specify multiple --image options and command"));
    }
    let port = invocation.flags.int("port");
    let container = |(at, image): (usize, &String)| {
        let mut container = json!({"name": container_name(image), "image": image, "resources": {}});
        if !command.is_empty() {
            container["command"] = json!(command);
        }
        if at == 0 && port >= 0 {
            container["ports"] = json!([{"containerPort": port}]);
        }
        container
    };
    let containers: Vec<Value> = images.iter().enumerate().map(container).collect();
    let labels = json!({"app": name});
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": invocation.flags.int("replicas"), "strategy": {},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
        "status": {},
    });
    generated(invocation, "deployment:", object).await
}

fn pod_template(name: &str, image: &str, command: &[String], restart: &str) -> Value {
    let mut container = json!({"name": name, "image": image, "resources": {}});
    if !command.is_empty() {
        container["command"] = json!(command);
    }
    json!({"metadata": {}, "spec": {"containers": [container], "restartPolicy": restart}})
}

async fn job(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let (image, from) = (invocation.flags.text("image").to_owned(), invocation.flags.text("from").to_owned());
    if image.is_empty() == from.is_empty() {
        return Err(Failure::message("either --image or --from must be specified"));
    }
    let command = command(invocation);
    if !command.is_empty() && !from.is_empty() {
        return Err(Failure::message("cannot specify --from and command"));
    }
    let object = if from.is_empty() {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": pod_template(&name, &image, &command, "Never")}, "status": {},
        })
    } else {
        from_cron_job(invocation, &name, &from).await?
    };
    generated(invocation, "job:", object).await
}

/// A job as a cron job would make it now.
async fn from_cron_job(invocation: &Invocation, name: &str, from: &str) -> Outcome<Value> {
    let (mapping, target) = resource::arguments::parse_single(&invocation.session, from).await?;
    let Some(target) = target else {
        return Err(Failure::message("resource(s) were provided, but no name was specified"));
    };
    let namespace = invocation.session.namespace()?;
    let path = mapping.path(&namespace, &target, "");
    let cron = resource::named(&*invocation.session.api()?, &namespace, &path, JSON).await?;
    if mapping.kind != "CronJob" {
        return Err(Failure::Message(format!("unknown object type *{}.{}", mapping.version, mapping.kind)));
    }
    let at = |path: &str| machinery::value::at(&cron, path).cloned();
    let mut annotations = at("spec.jobTemplate.metadata.annotations").unwrap_or_else(|| json!({}));
    annotations["cronjob.kubernetes.io/instantiate"] = "manual".into();
    let mut metadata = json!({
        "name": name, "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "CronJob", "name": at("metadata.name"), "uid": at("metadata.uid"),
            "controller": true,
        }],
    });
    if let Some(labels) = at("spec.jobTemplate.metadata.labels") {
        metadata["labels"] = labels;
    }
    Ok(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": at("spec.jobTemplate.spec"), "status": {},
    }))
}

async fn cron_job(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let image = invocation.flags.text("image").to_owned();
    let schedule = invocation.flags.text("schedule").to_owned();
    let restart = match invocation.flags.text("restart") {
        "" => "OnFailure".to_owned(),
        other => other.to_owned(),
    };
    let template = pod_template(&name, &image, &command(invocation), &restart);
    let object = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {
            "schedule": schedule,
            "jobTemplate": {"metadata": {"name": name}, "spec": {"template": template}},
        },
        "status": {},
    });
    generated(invocation, "cronjob:", object).await
}

#[cfg(test)]
mod tests {
    use super::container_name;

    #[test]
    fn containers_are_named_after_their_image() {
        for (image, expected) in [
            ("nginx", "nginx"),
            ("a.b/c/web_app:1.2", "web-app-"),
            ("host:5000/x@sha256:0", "x"),
            ("k8s.gcr.io/a.b:1", "a-b-"),
        ] {
            let name = container_name(image);
            let random = if expected.ends_with('-') { 5 } else { 0 };
            assert!(name.starts_with(expected) && name.len() == expected.len() + random, "{name}");
        }
    }
}
