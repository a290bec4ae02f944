//! ImageLocality: nodes that have the images already start pods sooner.

use std::sync::Arc;

use crate::framework::{CycleState, Interest, MAX_SCORE, Plugin, Points, PreScore, Score};
use crate::model::cluster::{Cluster, ImageState, NodeList};
use crate::model::node::NodeInfo;
use crate::model::pod::PodInfo;

const MIB: i64 = 1024 * 1024;
/// Less than this is pulled in no time.
const MIN_BYTES: i64 = 23 * MIB;
/// More than this per image counts no further.
const MAX_BYTES_PER_IMAGE: i64 = 1000 * MIB;

/// Ranks nodes by the size of the pod's images that they have, discounted for images that few nodes have: otherwise
/// pods would pile up on the first node that pulled.
pub struct ImageLocality;

/// The pod's images that some node has, each with the bytes that count, and the number of all its images.
#[derive(Clone, Default)]
struct Images {
    known: Vec<(Arc<ImageState>, i64)>,
    count: i64,
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        super::IMAGE_LOCALITY
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_score, score)
    }

    fn interests(&self) -> Vec<Interest> {
        // It rejects no pod.
        Vec::new()
    }
}

/// The name as nodes report it: without a tag, `latest` is meant.
fn normalized(name: &str) -> String {
    let colon = name.rfind(':').map_or(-1, |i| i as i64);
    let slash = name.rfind('/').map_or(-1, |i| i as i64);
    if colon <= slash { format!("{name}:latest") } else { name.to_owned() }
}

fn priority(bytes: i64, images: i64) -> i64 {
    let max = MAX_BYTES_PER_IMAGE * images;
    MAX_SCORE * (bytes.max(MIN_BYTES).min(max.max(MIN_BYTES)) - MIN_BYTES) / (max - MIN_BYTES)
}

impl PreScore for ImageLocality {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster, _: NodeList<'_>) -> bool {
        let images = state.get_or_default::<Images>();
        images.known.clear();
        images.count = 0;
        let nodes = cluster.order().len() as f64;
        for image in &pod.images {
            images.count += 1;
            if let Some(known) = cluster.image(image).or_else(|| cluster.image(&normalized(image))) {
                let scaled = (known.size as f64 * (known.nodes.len() as f64 / nodes)) as i64;
                images.known.push((known.clone(), scaled));
            }
        }
        // Without any image anywhere every node scores zero.
        !images.known.is_empty()
    }
}

impl Score for ImageLocality {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        let images = state.expect::<Images>();
        let here = images.known.iter().filter(|(image, _)| image.nodes.contains(&node.idx()));
        priority(here.map(|(_, bytes)| bytes).sum(), images.count)
    }

    fn is_local(&self) -> bool {
        true
    }
}
