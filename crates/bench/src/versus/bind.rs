//! Pods from create to bound, on hollow nodes.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, PostParams};

use super::outside::{Lines, eventually};
use super::requests::typed;
use super::sheet::{Figure, Sheet};
use super::{Outside, Side};
use crate::{Failure, Options};

pub const SPACE: &str = "bench-bind";
const PODS: usize = 5_000;
const PATIENCE: Duration = Duration::from_secs(300);
/// How often nodes are counted: a list of them is not for nothing.
const LOOK: Duration = Duration::from_secs(2);
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

pub async fn measure(side: &Side, usual: usize, options: &Options, sheet: &mut Sheet) -> Result<(), Failure> {
    let nodes = options.scaled(usual, 10);
    let outside = Outside::connect(side.kubeconfig()).await?;
    outside.space(SPACE).await?;
    let _hollow = side.hollow_nodes(nodes)?;
    let all: Api<Node> = Api::all(outside.client());
    eventually("all nodes are ready", LOOK, async || Ok(ready(&all).await? >= nodes)).await?;
    // One that is bound shows that the scheduler is there.
    let mut bound = Bound::watch(&outside, SPACE).await?;
    create(&outside, SPACE, "first", 1, "100m").await?;
    bound.reach(1).await?;

    let pods = options.scaled(PODS, 100);
    let (begun, used) = (Instant::now(), side.cpu()?);
    let (created, reached) = tokio::join!(create(&outside, SPACE, "bound", pods, "100m"), bound.reach(pods + 1));
    created?;
    reached?;
    let (took, used) = (begun.elapsed(), side.cpu()? - used);
    let figures = [(Figure::Cpu, used * 1e3 / pods as f64), (Figure::Rate, pods as f64 / took.as_secs_f64())];
    sheet.add(side, &format!("bind_{usual}"), &format!("create and bind, {nodes} nodes"), &figures);
    Ok(())
}

/// Nodes that are ready and have no taint that keeps pods away.
pub async fn ready(nodes: &Api<Node>) -> Result<usize, Failure> {
    let fine = |node: &&Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).is_some_and(|taints| !taints.is_empty());
        !taints && rules::pods::is_node_ready(node)
    };
    Ok(nodes.list(&ListParams::default()).await?.items.iter().filter(fine).count())
}

/// Makes pods that ask for so much.
pub async fn create(
    outside: &Outside,
    space: &'static str,
    prefix: &'static str,
    count: usize,
    cpu: &'static str,
) -> Result<crate::load::Run, Failure> {
    let one = move |client: kube::Client, number: usize| async move {
        let pod = typed(crate::pods::ordinary(&format!("{prefix}-{number}"), "", cpu));
        Api::<Pod>::namespaced(client, space).create(&PostParams::default(), &pod).await.map(drop)
    };
    outside.load(count, one).await
}

/// Counts pods that got a node, by a watch that shows no others and nothing but metadata.
pub struct Bound<'a> {
    outside: &'a Outside,
    path: String,
    lines: Lines,
    seen: usize,
}

impl<'a> Bound<'a> {
    pub async fn watch(outside: &'a Outside, space: &str) -> Result<Self, Failure> {
        let path = format!("/api/v1/namespaces/{space}/pods?watch=true&fieldSelector=spec.nodeName!%3D");
        Ok(Self { lines: outside.watch(&path, METADATA).await?, outside, path, seen: 0 })
    }

    /// Waits until so many have a node.
    pub async fn reach(&mut self, wanted: usize) -> Result<(), Failure> {
        self.reach_within(wanted, PATIENCE).await
    }

    /// As [`Bound::reach`], with a patience of the caller's.
    pub async fn reach_within(&mut self, wanted: usize, patience: Duration) -> Result<(), Failure> {
        let reaching = async {
            while self.seen < wanted {
                let seen = &mut self.seen;
                let read = self.lines.next(|line| *seen += usize::from(line.starts_with(b"{\"type\":\"ADDED\""))).await;
                if read.is_err() {
                    // A server may end any watch, one that is slow for example. The next begins with all that there are.
                    self.lines = self.outside.watch(&self.path, METADATA).await?;
                    self.seen = 0;
                }
            }
            Ok::<_, Failure>(())
        };
        let outcome = tokio::time::timeout(patience, reaching).await;
        outcome.map_err(|_| format!("only {} of {wanted} pods got a node in time", self.seen))?
    }
}
