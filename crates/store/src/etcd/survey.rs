//! Which members can answer, found out when one is late.
//!
//! A member that is frozen, or cut off without a word, looks like one with a slow disk: nothing comes. So all are asked for something that takes no disk,
//! but a leader and a majority: a linearizable read. Who does not answer that while others do is given up; a write that only takes
//! long is waited for. While a leader is chosen nobody answers, and the first answer says that there is one, and by its term whether it is another one.
//!
//! Everybody who is late at the same time shares one survey, and there is none while answers come in time.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Shared, WeakShared};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use super::RANGE;
use super::client::{CALL, Member};
use super::proto::{RangeRequest, RangeResponse, ResponseHeader};

/// How long after the first answer the others have for theirs, and writes that waited for the leader for their commit.
pub(super) const OTHERS: Duration = Duration::from_millis(250);
/// Between two questions to one that could not answer the first.
const AGAIN: Duration = Duration::from_millis(50);

/// Who answered, in this order, and the latest leader's term.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    endpoints: Vec<String>,
    pub(super) term: u64,
    /// When the first answer came.
    pub(super) since: Option<Instant>,
}

impl Found {
    pub(super) fn first(&self) -> Option<&str> {
        self.endpoints.first().map(String::as_str)
    }

    pub(super) fn answered(&self, endpoint: &str) -> bool {
        self.endpoints.iter().any(|answered| answered == endpoint)
    }
}

/// The survey that is under way, if there is one.
#[derive(Default)]
pub(super) struct Surveys {
    under_way: Mutex<Option<WeakShared<BoxFuture<'static, Found>>>>,
}

impl std::fmt::Debug for Surveys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surveys").finish_non_exhaustive()
    }
}

impl Surveys {
    /// What the survey that is under way finds, or a new one.
    pub(super) fn join(&self, members: &Arc<[Member]>) -> Shared<BoxFuture<'static, Found>> {
        let mut under_way = self.under_way.lock();
        let joined = under_way.as_ref().and_then(WeakShared::upgrade).filter(|survey| survey.peek().is_none());
        joined.unwrap_or_else(|| {
            let survey = survey(members.clone()).boxed().shared();
            *under_way = survey.downgrade();
            survey
        })
    }
}

async fn survey(members: Arc<[Member]>) -> Found {
    let ask = async |member: &Member| {
        let header = answer(member).await;
        (member.endpoint.clone(), header)
    };
    let mut asked: FuturesUnordered<_> = members.iter().map(ask).collect();
    let (mut found, mut limit) = (Found::default(), Instant::now() + CALL);
    while let Ok(Some((endpoint, header))) = tokio::time::timeout_at(limit, asked.next()).await {
        if found.endpoints.is_empty() {
            let now = Instant::now();
            (limit, found.since) = (now + OTHERS, Some(now));
        }
        found.endpoints.push(endpoint);
        found.term = found.term.max(header.raft_term);
    }
    found
}

/// Asks a member until it answers.
async fn answer(member: &Member) -> ResponseHeader {
    loop {
        let asked = async {
            let mut grpc = Grpc::new(member.calls.clone());
            grpc.ready().await.ok()?;
            let request = RangeRequest { key: vec![0], count_only: true, ..RangeRequest::default() };
            let codec = ProstCodec::<RangeRequest, RangeResponse>::default();
            let answer = grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(RANGE), codec).await;
            answer.ok()?.into_inner().header
        };
        match asked.await {
            Some(header) => return header,
            None => tokio::time::sleep(AGAIN).await,
        }
    }
}
