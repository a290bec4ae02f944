//! The members of an etcd cluster: who they are, how they are, how one comes in and goes out.
//!
//! A member comes in as a learner, which has no vote: one that never starts, or takes long to catch up, costs the others nothing. It is promoted when
//! it has caught up, which etcd itself judges.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{Context, SHA256, digest};
use tonic::{Code, Status};

use super::Options;
use super::client::{self, Client, Repeat};
use super::proto::{
    self, MemberAddRequest, MemberAddResponse, MemberIdRequest, MemberListRequest, MemberListResponse, Nothing,
    SnapshotResponse, StatusResponse,
};
use crate::Error;
use crate::embedded::private_file;

const ADD: &str = "/etcdserverpb.Cluster/MemberAdd";
const REMOVE: &str = "/etcdserverpb.Cluster/MemberRemove";
const LIST: &str = "/etcdserverpb.Cluster/MemberList";
const PROMOTE: &str = "/etcdserverpb.Cluster/MemberPromote";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const DEFRAGMENT: &str = "/etcdserverpb.Maintenance/Defragment";
const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";
/// A member that gives back room answers nobody meanwhile, and may take long over it.
const DEFRAGMENTING: Duration = Duration::from_secs(300);
/// The longest between two pieces of a snapshot.
const PIECE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: u64,
    /// Empty for one that has not started yet.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub learner: bool,
}

/// How one member is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub version: String,
    pub leader: u64,
    pub raft_index: u64,
    /// Bytes of its database, and how many of them are in use.
    pub size: i64,
    pub size_in_use: i64,
    /// What it complains about, such as a database without room.
    pub errors: Vec<String>,
}

/// Looks after the members of a cluster.
#[derive(Debug, Clone)]
pub struct Members {
    client: Arc<Client>,
}

impl From<proto::Member> for Member {
    fn from(member: proto::Member) -> Self {
        let proto::Member { id, name, peer_urls, client_urls, is_learner } = member;
        Self { id, name, peer_urls, client_urls, learner: is_learner }
    }
}

impl Members {
    /// Connects to nothing yet. Needs a tokio runtime around it.
    pub fn open(options: &Options) -> Result<Self, Error> {
        Ok(Self { client: Arc::new(Client::new(options)?) })
    }

    pub(super) fn of(client: Arc<Client>) -> Self {
        Self { client }
    }

    /// All of them, as a majority knows them, or as the one that is asked does where there is no majority.
    pub async fn list(&self, linearizable: bool) -> Result<Vec<Member>, Error> {
        let request = MemberListRequest { linearizable };
        let answer: MemberListResponse = self.client.call(LIST, request, Repeat::Freely).await.map_err(failed)?;
        Ok(sorted(answer.members))
    }

    /// Adds one without a vote. The answer is all of them; nothing while etcd takes in nobody, because those who vote were not in touch with each other for the last
    /// 5 s, as after the last one came.
    pub async fn add_learner(&self, peer_url: &str) -> Result<Option<Vec<Member>>, Error> {
        let request = MemberAddRequest { peer_urls: vec![peer_url.to_owned()], is_learner: true };
        match self.client.call::<_, MemberAddResponse>(ADD, request, Repeat::IfUnsent).await {
            Ok(answer) => Ok(Some(sorted(answer.members))),
            Err(status) if status.message().contains("unhealthy cluster") => Ok(None),
            Err(status) => Err(failed(status)),
        }
    }

    pub async fn remove(&self, id: u64) -> Result<Vec<Member>, Error> {
        let request = MemberIdRequest { id };
        let answer: MemberListResponse = self.client.call(REMOVE, request, Repeat::IfUnsent).await.map_err(failed)?;
        Ok(sorted(answer.members))
    }

    /// Gives a learner its vote; false while it has not caught up.
    pub async fn promote(&self, id: u64) -> Result<bool, Error> {
        let answer = self.client.call::<_, MemberListResponse>(PROMOTE, MemberIdRequest { id }, Repeat::IfUnsent).await;
        match answer {
            Ok(_) => Ok(true),
            Err(status) if status.message().contains("in sync with leader") => Ok(false),
            // Somebody did so before, or the answer to an earlier attempt was lost.
            Err(status) if status.message().contains("not a learner") => Ok(true),
            Err(status) => Err(failed(status)),
        }
    }

    /// How the first of the endpoints is.
    pub async fn health(&self) -> Result<Health, Error> {
        let answer: StatusResponse = self.client.call(STATUS, Nothing {}, Repeat::Freely).await.map_err(failed)?;
        let StatusResponse { version, db_size, leader, raft_index, errors, db_size_in_use } = answer;
        Ok(Health { version, leader, raft_index, size: db_size, size_in_use: db_size_in_use, errors })
    }

    /// Makes the first of the endpoints give back the room that it does not use. It answers nobody meanwhile.
    pub async fn defragment(&self) -> Result<(), Error> {
        let answer = self.client.patiently::<_, Nothing>(DEFRAGMENT, Nothing {}, DEFRAGMENTING).await;
        answer.map(drop).map_err(failed)
    }

    /// Writes all that one member has into a file, as etcd's own programs read it, and says how many bytes that are. etcd ends it with its hash, which is checked.
    pub async fn snapshot(&self, file: &Path) -> Result<u64, Error> {
        let unwritable = |error: std::io::Error| Error::Unavailable(format!("{}: {error}", file.display()));
        let mut pieces = self.client.stream::<_, SnapshotResponse>(SNAPSHOT, Nothing {}).await.map_err(failed)?;
        let mut out = private_file().create_new(true).open(file).map_err(unwritable)?;
        let written = async {
            let (mut hash, mut tail, mut size) = (Context::new(&SHA256), Vec::new(), 0_u64);
            loop {
                let piece = tokio::time::timeout(PIECE, pieces.message()).await;
                let piece = piece.map_err(|_| Error::Unavailable("etcd: the snapshot came to a halt".to_owned()))?;
                let Some(piece) = piece.map_err(failed)? else { break };
                out.write_all(&piece.blob).map_err(unwritable)?;
                size += piece.blob.len() as u64;
                // The last 32 bytes of all are the hash of those before them.
                tail.extend_from_slice(&piece.blob);
                let whole = tail.len().saturating_sub(digest(&SHA256, b"").as_ref().len());
                hash.update(&tail[..whole]);
                tail.drain(..whole);
            }
            if hash.finish().as_ref() != tail {
                return Err(Error::Damaged("the snapshot that etcd sent is not whole".to_owned()));
            }
            out.sync_all().map_err(unwritable)?;
            Ok(size)
        };
        written.await.inspect_err(|_| drop(std::fs::remove_file(file)))
    }
}

fn sorted(members: Vec<proto::Member>) -> Vec<Member> {
    let mut members: Vec<Member> = members.into_iter().map(Member::from).collect();
    members.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
    members
}

/// What etcd refuses because of the state that it is in is said in its words.
fn failed(status: Status) -> Error {
    match status.code() {
        Code::FailedPrecondition | Code::InvalidArgument | Code::NotFound | Code::AlreadyExists => {
            Error::Unavailable(status.message().to_owned())
        }
        _ => client::error(&status),
    }
}
