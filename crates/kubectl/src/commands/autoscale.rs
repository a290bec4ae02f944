//! `kubectl autoscale`: a HorizontalPodAutoscaler for a workload.

use machinery::quantity::Quantity;
use serde_json::{Value, json};

use super::create::remember_typed;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::record;
use crate::report::Report;
use crate::resource::helper::{DryRun, Writing};
use crate::resource::{Builder, Info, files, info};

pub static COMMAND: Command = Command {
    name: "autoscale",
    aliases: &[],
    usage: "(-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [--memory=MEMORY]",
    short: "Auto-scale a deployment, replica set, stateful set, or replication controller",
    flags: &[
        sets::PRINT,
        sets::FILENAME,
        sets::DRY_RUN,
        sets::RECORD,
        sets::SAVE_CONFIG,
        &[
            sets::field_manager("kubectl-autoscale"),
            Flag::string("cpu", "", "CPU to aim at: a percentage of requests, or an amount."),
            Flag::int32("cpu-percent", "-1", "CPU to aim at, in percent of requests.").deprecated("Use --cpu with percentage or resource quantity format (e.g., '70%' for utilization or '500m' for milliCPU)."),
            Flag::int32("max", "-1", "The most pods."),
            Flag::string("memory", "", "Memory to aim at: a percentage of requests, or an amount."),
            Flag::int32("min", "-1", "The fewest pods."),
            Flag::string("name", "", "Name of the autoscaler."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    if !flags.changed("max") {
        return Err(Failure::message("required flag(s) \"max\" not set"));
    }
    let (least, most) = (flags.int("min"), flags.int("max"));
    if most < 1 {
        return Err(Failure::Message(format!("--max=MAXPODS is required and must be at least 1, max: {most}")));
    }
    if most < least {
        return Err(Failure::Message(format!(
            "--max=MAXPODS must be larger or equal to --min=MINPODS, max: {most}, min: {least}"
        )));
    }
    if flags.changed("cpu-percent") && flags.changed("cpu") {
        return Err(Failure::message("--cpu-percent and --cpu are mutually exclusive"));
    }
    let percent = flags.int("cpu-percent");
    let cpu = match flags.text("cpu") {
        "" if percent >= 0 => format!("{percent}%"),
        cpu => cpu.to_owned(),
    };
    let mut metrics = Vec::new();
    for (resource, wanted) in [("cpu", cpu.as_str()), ("memory", flags.text("memory"))] {
        if !wanted.is_empty() {
            metrics.push(metric(resource, wanted).map_err(Failure::Message)?);
        }
    }
    let writing = Writing::from_flags(&invocation.flags)?;
    let builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    let mut errors = found.errors;
    if found.infos.is_empty() && errors.is_empty() {
        return Err(Failure::message("no objects passed to autoscale"));
    }
    for of in found.infos {
        match one(invocation, &writing, &of, &metrics).await {
            Ok(object) => {
                let done = if writing.dry_run == DryRun::Client { "created" } else { "autoscaled" };
                Report::new(invocation, writing.dry_run, true)?.say(invocation, &object, done)?;
            }
            Err(error) => errors.push(error),
        }
    }
    Failure::all(errors)
}

async fn one(invocation: &Invocation, writing: &Writing, of: &Info, metrics: &[Value]) -> Outcome<Value> {
    let discovery = invocation.session.discovery().await?;
    let mapping = &of.mapping;
    if !discovery.has_subresource(mapping, "scale") {
        let version = format!("{}/{}", mapping.group, mapping.version);
        return Err(Failure::Message(format!(
            "cannot autoscale a {}: could not find scale subresource for {version}, Resource={} in discovery information",
            mapping.kind, mapping.resource
        )));
    }
    let flags = &invocation.flags;
    let name = flags.given("name").unwrap_or(&of.name);
    let mut spec = json!({
        "maxReplicas": flags.int("max"),
        "scaleTargetRef": {"apiVersion": mapping.api_version(), "kind": mapping.kind, "name": of.name},
    });
    if flags.int("min") > 0 {
        spec["minReplicas"] = flags.int("min").into();
    }
    if !metrics.is_empty() {
        spec["metrics"] = Value::Array(metrics.to_vec());
    }
    let mut metadata = json!({"name": name});
    if invocation.session.namespace_given()? {
        metadata["namespace"] = of.namespace.as_str().into();
    }
    let mut object = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec,
        "status": {"currentMetrics": null, "desiredReplicas": 0},
    });
    // Only what is sent remembers its configuration.
    if flags.is("save-config") && writing.dry_run != DryRun::Client {
        remember_typed(&mut object);
    }
    record::note(invocation, &mut object);
    let own = files::local("autoscaling/v2", "HorizontalPodAutoscaler").unwrap_or_default();
    let mut made = info(&own, object, "");
    made.namespace.clone_from(&of.namespace);
    if writing.dry_run == DryRun::Client {
        return Ok(made.object);
    }
    writing.create(&*invocation.session.api()?, &made).await
}

/// `70%` of what is asked for, or an amount.
fn metric(resource: &str, wanted: &str) -> Result<Value, String> {
    let odd = || format!("invalid resource {resource} value: {wanted}");
    let target = match wanted.strip_suffix('%') {
        Some(percent) => {
            let number = percent.parse::<i32>().ok().filter(|number| *number >= 0);
            let percent = number.ok_or_else(|| format!("invalid percentage value: {percent}"))?;
            json!({"type": "Utilization", "averageUtilization": percent})
        }
        None => {
            // A bare number is thousandths of a processor, or mebibytes.
            let unit = if resource == "cpu" { "m" } else { "Mi" };
            let bare = wanted.parse::<f64>().is_ok_and(f64::is_finite);
            let amount = if bare { format!("{wanted}{unit}") } else { wanted.to_owned() };
            let amount: Quantity = amount.parse().map_err(|_| odd())?;
            json!({"type": "AverageValue", "averageValue": amount.to_string()})
        }
    };
    Ok(json!({"type": "Resource", "resource": {"name": resource, "target": target}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_percentages_or_amounts() {
        let target = |text: &str| metric("cpu", text).map(|metric| metric["resource"]["target"].clone());
        assert_eq!(target("70%"), Ok(json!({"type": "Utilization", "averageUtilization": 70})));
        assert_eq!(target("500m"), Ok(json!({"type": "AverageValue", "averageValue": "500m"})));
        assert_eq!(target("80"), Ok(json!({"type": "AverageValue", "averageValue": "80m"})));
        assert_eq!(
            metric("memory", "80").map(|metric| metric["resource"]["target"]["averageValue"].clone()),
            Ok(json!("80Mi"))
        );
        assert_eq!(target("foo"), Err("invalid resource cpu value: foo".to_owned()));
        for percent in ["x", "-5", "3000000000"] {
            assert_eq!(target(&format!("{percent}%")), Err(format!("invalid percentage value: {percent}")));
        }
    }
}
