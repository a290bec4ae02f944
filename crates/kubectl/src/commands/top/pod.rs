//! `kubectl top pod`.

use std::collections::BTreeSet;
use std::time::Duration;

use machinery::value::{list, text};
use serde_json::Value;

use super::usage;
use crate::command::{Command, Invocation};
use crate::discovery::{query, segment};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::tabs::Tabs;

pub static COMMAND: Command = Command {
    name: "pod",
    aliases: &["pods", "po"],
    usage: "[NAME | -l label]",
    short: "Display resource (CPU/memory) usage of pods",
    flags: &[
        sets::SELECTOR,
        sets::FIELD_SELECTOR,
        sets::ALL_NAMESPACES,
        super::COMMON,
        &[Flag::bool("containers", "Show containers."), Flag::bool("sum", "Show the sum of all.")],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// How long it takes until a pod has figures.
const DELAY: Duration = Duration::from_secs(120);

async fn run(invocation: &mut Invocation) -> Outcome {
    let name = super::name(invocation)?;
    super::validate_order(invocation)?;
    let flags = &invocation.flags;
    let (labels, fields) = (flags.text("selector").to_owned(), flags.text("field-selector").to_owned());
    if !name.is_empty() && (!labels.is_empty() || !fields.is_empty()) {
        return Err(Failure::message("only one of NAME or selector can be provided"));
    }
    let everywhere = flags.is("all-namespaces");
    let namespace = invocation.session.namespace()?;
    let group = super::group(invocation).await?;
    let place = if everywhere { String::new() } else { format!("/namespaces/{}", segment(&namespace)) };
    let api = invocation.session.api()?;
    let mut metrics = if name.is_empty() {
        let found = api.get(&format!("{group}{place}/pods{}", query(&[("labelSelector", &labels)]))).await?;
        list(&found, "items").to_vec()
    } else {
        vec![api.get(&format!("{group}{place}/pods/{}", segment(&name))).await?]
    };
    let selected = query(&[("fieldSelector", &fields), ("labelSelector", &labels)]);
    if !metrics.is_empty() && !fields.is_empty() {
        let pods = api.get(&format!("/api/v1{place}/pods{selected}")).await?;
        let key = |object: &Value| format!("{}/{}", text(object, "metadata.namespace"), text(object, "metadata.name"));
        let known: BTreeSet<String> = list(&pods, "items").iter().map(key).collect();
        metrics.retain(|pod| known.contains(&key(pod)));
    }
    if metrics.is_empty() {
        let pods = api.get(&format!("/api/v1/namespaces/{}/pods{selected}", segment(&namespace))).await?;
        explain(list(&pods, "items"), jiff::Timestamp::now()).map_err(Failure::Message)?;
        invocation.streams.error(&if everywhere {
            "No resources found".to_owned()
        } else {
            format!("No resources found in {namespace} namespace.")
        });
    }
    let flags = &invocation.flags;
    let options = Options {
        containers: flags.is("containers"),
        namespaces: everywhere,
        headers: !flags.is("no-headers"),
        order: flags.text("sort-by").to_owned(),
        sum: flags.is("sum"),
        swap: flags.is("show-swap"),
    };
    invocation.print(&table(metrics, &options))
}

/// Why there are no figures of pods that are there.
fn explain(pods: &[Value], now: jiff::Timestamp) -> Result<(), String> {
    if pods.is_empty() {
        return Ok(());
    }
    for pod in pods {
        let begun = machinery::time::parse(text(pod, "metadata.creationTimestamp"));
        let age = begun.and_then(|begun| Duration::try_from(now.duration_since(begun)).ok()).unwrap_or_default();
        if age > DELAY {
            let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
            let nanos = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
            let age = machinery::duration::format_nanos(nanos);
            return Err(format!("Metrics not available for pod {namespace}/{name}, age: {age}"));
        }
    }
    Err("metrics not available yet".to_owned())
}

struct Options {
    containers: bool,
    namespaces: bool,
    headers: bool,
    order: String,
    sum: bool,
    swap: bool,
}

fn table(mut metrics: Vec<Value>, options: &Options) -> String {
    if metrics.is_empty() {
        return String::new();
    }
    let measured = usage::measured(options.swap);
    let used =
        |pod: &Value, resource: &str| usage::sum(list(pod, "containers").iter().map(|one| &one["usage"]), resource);
    metrics.sort_by(|first, second| {
        let name = |pod: &Value| match options.namespaces {
            true => format!("{}\0{}", text(pod, "metadata.namespace"), text(pod, "metadata.name")),
            false => text(pod, "metadata.name").to_owned(),
        };
        let (one, other) = (used(first, &options.order), used(second, &options.order));
        usage::order(&options.order, (&one, &name(first)), (&other, &name(second)))
    });
    let mut lines = String::new();
    let mut columns = 3 + usize::from(options.swap);
    if options.headers {
        for (wanted, name) in [(options.namespaces, "NAMESPACE"), (options.containers, "POD")] {
            if wanted {
                lines += &format!("{name}\t");
                columns += 1;
            }
        }
        lines += "NAME\tCPU(cores)\tMEMORY(bytes)\t";
        lines += if options.swap { "SWAP(bytes)\t\n" } else { "\n" };
    }
    let line = |name: &str, figures: &dyn Fn(&str) -> String| {
        let all: String = measured.iter().map(|resource| figures(resource) + "\t").collect();
        format!("{name}\t{all}\n")
    };
    for pod in &metrics {
        let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
        let before = if options.namespaces { format!("{namespace}\t") } else { String::new() };
        if !options.containers {
            lines += &before;
            lines += &line(name, &|resource| usage::shown(resource, &used(pod, resource)));
            continue;
        }
        let mut containers = list(pod, "containers").to_vec();
        containers.sort_by(|first, second| {
            let key = |one: &Value| usage::amount(&one["usage"], &options.order);
            usage::order(&options.order, (&key(first), text(first, "name")), (&key(second), text(second, "name")))
        });
        for container in &containers {
            lines += &format!("{before}{name}\t");
            lines += &line(text(container, "name"), &|resource| {
                usage::shown(resource, &usage::amount(&container["usage"], resource))
            });
        }
    }
    if options.sum {
        lines += &format!("{}________\t________\t\n", "\t".repeat(columns - 2));
        lines += &"\t".repeat(columns - 3);
        lines += &line("", &|resource| {
            let all = metrics.iter().flat_map(|pod| list(pod, "containers")).map(|one| &one["usage"]);
            usage::shown(resource, &usage::sum(all, resource))
        });
    }
    Tabs::new().align(&lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, cpu: &str) -> Value {
        json!({"metadata": {"namespace": "n", "name": name}, "containers": [
            {"name": "x", "usage": {"cpu": cpu, "memory": "1Mi"}}, {"name": "y", "usage": {"cpu": "1m", "memory": "2Mi"}},
        ]})
    }

    #[test]
    fn pods_are_shown_whole_or_by_their_containers() {
        let options = Options {
            containers: false,
            namespaces: false,
            headers: true,
            order: "cpu".to_owned(),
            sum: true,
            swap: false,
        };
        assert_eq!(
            table(vec![pod("a", "1m"), pod("b", "5m")], &options),
            "NAME   CPU(cores)   MEMORY(bytes)   \n\
             b      6m           3Mi             \n\
             a      2m           3Mi             \n\
             \u{20}      ________     ________        \n\
             \u{20}      8m           6Mi             \n"
        );
        let options = Options { containers: true, headers: false, order: "memory".to_owned(), sum: false, ..options };
        assert_eq!(table(vec![pod("a", "1m")], &options), "a     y     1m    2Mi   \na     x     1m    1Mi   \n");
        assert_eq!(table(Vec::new(), &options), "");
    }

    #[test]
    fn the_lack_of_figures_is_explained_by_age() {
        let now: jiff::Timestamp = "2030-01-01T00:10:00Z".parse().expect("a time");
        let pod = |at: &str| json!({"metadata": {"namespace": "n", "name": "p", "creationTimestamp": at}});
        assert_eq!(explain(&[], now), Ok(()));
        assert_eq!(explain(&[pod("2030-01-01T00:09:00Z")], now), Err("metrics not available yet".to_owned()));
        let old = explain(&[pod("2030-01-01T00:00:00Z")], now);
        assert_eq!(old, Err("Metrics not available for pod n/p, age: 10m0s".to_owned()));
    }
}
