//! `kubectl top live`, and `trireme top`: what nodes, pods and the control plane itself use, drawn again every few seconds. Upstream has no
//! such command. `read` asks the server, `draw` makes the picture and is pure.

use std::io::Write as _;
use std::time::{Duration, Instant};

use http::Method;
use machinery::quantity::Quantity;
use machinery::value::{list, text};
use serde_json::Value;

use super::usage::{amount, fraction, shown, sum};
use crate::api::Api;
use crate::command::{Command, Invocation};
use crate::error::Outcome;
use crate::flags::Flag;
use crate::remote::terminal;

pub static COMMAND: Command = Command {
    name: "live",
    aliases: &[],
    usage: "[--interval=DURATION] [--count=NUMBER]",
    short: "Display what nodes, pods and the control plane use, as it changes",
    flags: &[&[
        Flag::duration("interval", "3s", "How long a picture stands."),
        Flag::int("count", "0", "How many pictures; 0 is until it is interrupted."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// Where nobody says how large the terminal is.
const SIZE: (usize, usize) = (100, 40);
/// Longer bars say no more.
const BAR: usize = 30;
const SHORTEST: Duration = Duration::from_millis(500);

/// What the server's process has used since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cost {
    cpu_seconds: f64,
    memory: f64,
    requests: f64,
    watches: f64,
}

struct Reading {
    at: Instant,
    nodes: Vec<Value>,
    node_usage: Vec<Value>,
    pod_usage: Vec<Value>,
    /// Nothing for whoever may not read the server's figures.
    cost: Option<Cost>,
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let interval = invocation.flags.duration("interval").max(SHORTEST);
    let count = invocation.flags.int("count");
    let group = super::group(invocation).await?;
    let api = invocation.session.api()?;
    let mut interrupted = Box::pin(terminal::interrupted());
    let screen = invocation.streams.terminal;
    if screen {
        invocation.print("\x1b[?1049h\x1b[?25l")?;
    }
    let mut before = None;
    let mut drawn = 0;
    let outcome = loop {
        let reading = match read(&api, &group).await {
            Ok(reading) => reading,
            Err(error) => break Err(error),
        };
        let size = terminal::size().map_or(SIZE, |(width, height)| (usize::from(width), usize::from(height)));
        let picture = draw(&reading, before.as_ref(), if screen { size } else { SIZE });
        let begin = if screen { "\x1b[H\x1b[2J" } else { "" };
        invocation.print(&format!("{begin}{picture}"))?;
        invocation.streams.out.flush()?;
        drawn += 1;
        if drawn == count {
            break Ok(());
        }
        before = Some((reading.at, reading.cost));
        tokio::select! {
            ended = &mut interrupted => break ended,
            () = tokio::time::sleep(interval) => {}
        }
    };
    if screen {
        invocation.print("\x1b[?25h\x1b[?1049l")?;
    }
    outcome
}

async fn read(api: &Api, group: &str) -> Outcome<Reading> {
    let items = async |path: String| -> Outcome<Vec<Value>> { Ok(list(&api.get(&path).await?, "items").to_vec()) };
    let nodes = items("/api/v1/nodes".to_owned()).await?;
    let node_usage = items(format!("{group}/nodes")).await?;
    let pod_usage = items(format!("{group}/pods")).await?;
    let figures = api.call(Method::GET, "/metrics", None, "text/plain").await.ok();
    let cost = figures.map(|(_, bytes)| cost(&String::from_utf8_lossy(&bytes)));
    Ok(Reading { at: Instant::now(), nodes, node_usage, pod_usage, cost })
}

/// The figures of the process, from the server's page of them.
fn cost(page: &str) -> Cost {
    let mut cost = Cost::default();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        match name.split('{').next().unwrap_or_default() {
            "process_cpu_seconds_total" => cost.cpu_seconds = value,
            "process_resident_memory_bytes" => cost.memory = value,
            "apiserver_request_total" => cost.requests += value,
            "apiserver_longrunning_requests" if name.contains("verb=\"WATCH\"") => cost.watches += value,
            _ => {}
        }
    }
    cost
}

/// One picture, as large as fits.
fn draw(reading: &Reading, before: Option<&(Instant, Option<Cost>)>, (width, height): (usize, usize)) -> String {
    let mut lines = vec![own_cost(reading, before), String::new()];
    lines.push(format!("{:<24} {:>9} {:>5} {:>10} {:>5}", "NODE", "CPU", "", "MEMORY", ""));
    let most = height.saturating_sub(6) / 2;
    for node in reading.nodes.iter().take(most.max(1)) {
        lines.push(node_line(node, &reading.node_usage));
    }
    if reading.nodes.len() > most.max(1) {
        lines.push(format!("and {} more", reading.nodes.len() - most.max(1)));
    }
    lines.push(String::new());
    lines.push(format!("{:<24} {:<40} {:>9} {:>10}", "NAMESPACE", "POD", "CPU", "MEMORY"));
    for (pod, cpu, memory) in busiest(&reading.pod_usage).into_iter().take(height.saturating_sub(lines.len() + 1)) {
        let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
        lines.push(format!("{namespace:<24} {name:<40} {:>9} {:>10}", shown("cpu", &cpu), shown("memory", &memory)));
    }
    let cut = |line: String| line.chars().take(width).collect::<String>().trim_end().to_owned() + "\n";
    lines.into_iter().map(cut).collect()
}

fn own_cost(reading: &Reading, before: Option<&(Instant, Option<Cost>)>) -> String {
    let Some(now) = reading.cost else { return "control plane: its figures may not be read".to_owned() };
    let (memory, watches) = (now.memory / f64::from(1 << 20), now.watches);
    let rates = match before {
        Some((at, Some(then))) => {
            let seconds = reading.at.duration_since(*at).as_secs_f64().max(f64::MIN_POSITIVE);
            let cpu = (now.cpu_seconds - then.cpu_seconds).max(0.0) / seconds * 1000.0;
            let requests = (now.requests - then.requests).max(0.0) / seconds;
            format!("{cpu:.0}m CPU, {requests:.1} requests/s")
        }
        _ => "counting".to_owned(),
    };
    format!("control plane: {rates}, {memory:.0}Mi, {watches:.0} watches")
}

fn node_line(node: &Value, usages: &[Value]) -> String {
    let name = text(node, "metadata.name");
    let Some(used) = usages.iter().find(|usage| text(usage, "metadata.name") == name) else {
        return format!("{name:<24} {:>9}", "<unknown>");
    };
    let there = &node["status"]["allocatable"];
    let part = |resource: &str| {
        let (used, there) = (amount(&used["usage"], resource), amount(there, resource));
        (shown(resource, &used), fraction(&used, &there), bar(&used, &there))
    };
    let ((cpu, of_cpu, bar), (memory, of_memory, _)) = (part("cpu"), part("memory"));
    format!("{name:<24} {cpu:>9} {of_cpu:>5} {memory:>10} {of_memory:>5}  {bar}")
}

fn bar(used: &Quantity, there: &Quantity) -> String {
    let part = used.milli_value() as f64 / (there.milli_value() as f64).max(1.0);
    "█".repeat((part.clamp(0.0, 1.0) * BAR as f64).round() as usize)
}

/// Pods by how much CPU they use, then by their names.
fn busiest(pods: &[Value]) -> Vec<(&Value, Quantity, Quantity)> {
    let of = |pod: &Value, resource: &str| sum(list(pod, "containers").iter().map(|one| &one["usage"]), resource);
    let mut all: Vec<_> = pods.iter().map(|pod| (pod, of(pod, "cpu"), of(pod, "memory"))).collect();
    all.sort_by(|(first, one, _), (second, other, _)| {
        let names = |pod: &Value| (text(pod, "metadata.namespace").to_owned(), text(pod, "metadata.name").to_owned());
        other.milli_value().cmp(&one.milli_value()).then_with(|| names(first).cmp(&names(second)))
    });
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, cpu: &str) -> Value {
        json!({"metadata": {"namespace": "a", "name": name}, "containers": [{"usage": {"cpu": cpu, "memory": "3Mi"}}]})
    }

    #[test]
    fn a_picture_has_the_control_plane_nodes_and_the_busiest_pods() {
        let page = "# TYPE a counter\nprocess_cpu_seconds_total 10\nprocess_resident_memory_bytes 1.048576e+08\n\
                    apiserver_request_total{verb=\"GET\"} 7\napiserver_request_total{verb=\"LIST\"} 5\n\
                    apiserver_longrunning_requests{verb=\"WATCH\"} 3\napiserver_longrunning_requests{verb=\"CONNECT\"} 1\n";
        let at = Instant::now();
        let reading = Reading {
            at: at + Duration::from_secs(2),
            nodes: vec![
                json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "100Mi"}}}),
                json!({"metadata": {"name": "n2"}}),
            ],
            node_usage: vec![json!({"metadata": {"name": "n1"}, "usage": {"cpu": "1", "memory": "50Mi"}})],
            pod_usage: vec![pod("idle", "1m"), pod("busy", "900m"), pod("calm", "1m")],
            cost: Some(cost(page)),
        };
        let before = (at, Some(Cost { cpu_seconds: 9.0, requests: 2.0, ..Cost::default() }));
        let picture = draw(&reading, Some(&before), (100, 12));
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!(lines[0], "control plane: 500m CPU, 5.0 requests/s, 100Mi, 3 watches");
        assert_eq!(lines[3], "n1                           1000m   25%       50Mi   50%  ████████");
        assert_eq!(lines[4], "n2                       <unknown>");
        let pods: Vec<&str> = lines[7..].iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(pods, ["busy", "calm", "idle"]);
        assert!(draw(&reading, None, (20, 12)).lines().all(|line| line.chars().count() <= 20));
        let hidden = draw(&Reading { cost: None, ..reading }, None, (100, 12));
        assert!(hidden.starts_with("control plane: its figures may not be read\n"), "{hidden}");
    }
}
