//! Creates, GETs, lists, patches and applies of pods, and what the server has in memory then.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::sheet::{Figure, Sheet};
use super::{AFTERMATH, Outside, Side};
use crate::load::Run;
use crate::pods::ordinary;
use crate::report::quantile_ms;
use crate::{Failure, Options};

const SPACE: &str = "bench-requests";
const PODS: usize = 5_000;
const GETS: usize = 20_000;
const PATCHES: usize = 5_000;
const LISTS: usize = 20;
/// What is freed goes back to the system within seconds.
const SETTLING: Duration = Duration::from_secs(5);

pub async fn measure(side: &Side, outside: &Outside, options: &Options, sheet: &mut Sheet) -> Result<(), Failure> {
    let pods = options.scaled(PODS, 200);
    outside.space(SPACE).await?;
    let (resident, private) = side.memory()?;
    sheet.add(side, "empty", "nothing in it", &[(Figure::Resident, resident), (Figure::Private, private)]);

    let run = counted(side, outside.load(pods, create)).await?;
    sheet.add(side, "create", "create of a pod", &run);
    tokio::time::sleep(SETTLING).await;
    let (resident, private) = side.memory()?;
    let title = format!("after {pods} pods");
    sheet.add(side, "memory", &title, &[(Figure::Resident, resident), (Figure::Private, private)]);

    let gets = options.scaled(GETS, 500);
    let get = move |client: kube::Client, number: usize| async move {
        Api::<Pod>::namespaced(client, SPACE).get(&name(number * 7919 % pods)).await.map(drop)
    };
    let run = counted(side, outside.load(gets, get)).await?;
    sheet.add(side, "get", "GET of a pod", &run);

    lists(side, outside, pods, sheet).await?;

    let patches = options.scaled(PATCHES, 200);
    let run = counted(side, outside.load(patches, move |client, number| patch(client, number % pods, number))).await?;
    sheet.add(side, "merge_patch", "merge patch of a pod", &run);
    let run = counted(side, outside.load(patches, move |client, number| apply(client, number % pods, number))).await?;
    sheet.add(side, "apply", "server-side apply of a pod", &run);
    Ok(())
}

/// A load with the server's time for it and for what it leaves to controllers.
async fn counted(side: &Side, load: impl Future<Output = Result<Run, Failure>>) -> Result<Vec<(Figure, f64)>, Failure> {
    let used = side.cpu()?;
    let run = load.await?;
    tokio::time::sleep(AFTERMATH).await;
    let used = side.cpu()? - used;
    Ok(vec![
        (Figure::Cpu, used * 1e3 / run.latencies.len() as f64),
        (Figure::Rate, run.per_second()),
        (Figure::P50, quantile_ms(&run.latencies, 0.5)),
        (Figure::P99, quantile_ms(&run.latencies, 0.99)),
    ])
}

async fn lists(side: &Side, outside: &Outside, pods: usize, sheet: &mut Sheet) -> Result<(), Failure> {
    let path = format!("/api/v1/namespaces/{SPACE}/pods");
    let used = side.cpu()?;
    let mut latencies = Vec::with_capacity(LISTS);
    for _ in 0..LISTS {
        let sent = Instant::now();
        if outside.read(&path).await? < pods * 1_000 {
            return Err("a list without its pods".into());
        }
        latencies.push(sent.elapsed());
    }
    let used = side.cpu()? - used;
    latencies.sort_unstable();
    let figures = [(Figure::Cpu, used * 1e3 / LISTS as f64), (Figure::P50, quantile_ms(&latencies, 0.5))];
    sheet.add(side, "list", &format!("list of {pods} pods, to its last byte"), &figures);
    Ok(())
}

fn name(number: usize) -> String {
    format!("p{number}")
}

pub fn typed(pod: Value) -> Pod {
    serde_json::from_value(pod).expect("it is a pod")
}

async fn create(client: kube::Client, number: usize) -> Result<(), kube::Error> {
    let pod = typed(ordinary(&name(number), "", "100m"));
    Api::<Pod>::namespaced(client, SPACE).create(&PostParams::default(), &pod).await.map(drop)
}

async fn patch(client: kube::Client, pod: usize, number: usize) -> Result<(), kube::Error> {
    let change = json!({"metadata": {"annotations": {"bench/sent": number.to_string()}}});
    let pods = Api::<Pod>::namespaced(client, SPACE);
    pods.patch(&name(pod), &PatchParams::default(), &Patch::Merge(change)).await.map(drop)
}

async fn apply(client: kube::Client, number: usize, turn: usize) -> Result<(), kube::Error> {
    let mut wanted = ordinary(&name(number), &format!("applied {turn}"), "100m");
    wanted["spec"]["containers"][0]["image"] = json!(format!("registry.example.com/team/application:v{turn}"));
    let pods = Api::<Pod>::namespaced(client, SPACE);
    pods.patch(&name(number), &PatchParams::apply("bench").force(), &Patch::Apply(wanted)).await.map(drop)
}
