//! `trireme etcd`: looking after the members of the etcd that a cluster's servers share, on the machine of one of them.
//!
//! Everything is asked of etcd itself, with the certificates in the server's data directory: it works while no API server does. What to do when a majority of
//! the members is lost for good is `recover`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use node::etcd::Etcd;
use store::etcd::{Health, Member, Members};

use crate::backup::Access;
use crate::component::Failure;
use crate::servers::{Directory, Record};

/// How long a member that was recovered may take to answer.
const RECOVERED: Duration = Duration::from_secs(120);

/// What to do with the members.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the members and how they are.
    Members {
        #[command(flatten)]
        place: Place,
    },
    /// Take a member out: its machine is lost, or is to be given up.
    ///
    /// Stop the server on that machine first, if it can be. To come back it joins again, with an empty data directory.
    Remove {
        #[command(flatten)]
        place: Place,
        /// Its name, as `members` shows it.
        name: String,
    },
    /// Write everything that etcd holds into a file, as `etcdctl snapshot restore` reads it.
    Snapshot {
        #[command(flatten)]
        place: Place,
        /// The file to write; it must not exist. With `--to` its name in the bucket [default there: etcd-TIME.snapshot].
        #[arg(required_unless_present = "to")]
        file: Option<PathBuf>,
        /// Send it to a bucket instead of keeping it here: s3://BUCKET/PREFIX.
        #[arg(long, value_name = "ADDRESS")]
        to: Option<s3::Address>,
        #[command(flatten)]
        s3: Access,
    },
    /// Make every member give back the room on disk that it does not use, one after the other, the leader last.
    Defrag {
        #[command(flatten)]
        place: Place,
    },
    /// Go on with this machine's member alone, after a majority of the members was lost for good.
    ///
    /// The servers of all machines have to be stopped. What the other members had and this one had not is lost; choose the member with the highest
    /// raft index. Then start the server here, empty the data directories of the others, and let them join again.
    Recover {
        #[command(flatten)]
        place: Place,
        /// The etcd to start: a path, or a name to be looked for.
        #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
        etcd_binary: PathBuf,
    },
}

/// Whose etcd.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// The data directory of the server on this machine.
    #[arg(long, value_name = "DIR", env = "TRIREME_DATA_DIR", default_value = "/var/lib/trireme")]
    data_dir: PathBuf,
}

impl Place {
    fn open(&self) -> Result<Directory, Failure> {
        Ok(Directory::open(&self.data_dir, &self.record()?.1)?)
    }

    fn record(&self) -> Result<(Record, crate::servers::Member), Failure> {
        let unmanaged = || Failure::from(format!("the server in {} looks after no etcd", self.data_dir.display()));
        let record = Record::read(&self.data_dir)?.ok_or_else(unmanaged)?;
        let member = record.etcd.clone().ok_or_else(unmanaged)?;
        Ok((record, member))
    }
}

pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Members { place } => members(&place.open()?).await,
        Command::Remove { place, name } => remove(&place.open()?, &name).await,
        Command::Snapshot { place, file, to, s3 } => match (file, to) {
            (file, Some(address)) => send(&place.open()?, file.as_deref(), &address, &s3).await,
            (Some(file), None) => {
                let size = snapshot(&place.open()?, &file).await?;
                println!("{size} bytes written to {}", file.display());
                Ok(())
            }
            (None, None) => Err("a file or --to is wanted".into()),
        },
        Command::Defrag { place } => defrag(&place.open()?).await,
        Command::Recover { place, etcd_binary } => recover(&place, &etcd_binary).await,
    }
}

async fn snapshot(directory: &Directory, file: &Path) -> Result<u64, Failure> {
    Ok(Members::open(&directory.reach(directory.endpoints()))?.snapshot(file).await?)
}

/// Sends a snapshot to a bucket. It is here only until it is there: whole, and its hash compared, before the first of it leaves.
async fn send(
    directory: &Directory,
    file: Option<&Path>,
    address: &s3::Address,
    access: &Access,
) -> Result<(), Failure> {
    let name = match file {
        Some(file) => {
            let plain = file.components().count() == 1 && file.file_name().is_some();
            let name = file.to_str().filter(|_| plain);
            name.ok_or_else(|| format!("{} is no name for a snapshot in a bucket", file.display()))?.to_owned()
        }
        None => format!("etcd-{}.snapshot", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ")),
    };
    // What is wrong with the bucket's address is said before anything is made.
    let bucket = access.bucket(address)?;
    let here = directory.path.join("snapshot.part");
    if here.exists() {
        // Of a command that was killed.
        std::fs::remove_file(&here)?;
    }
    let size = snapshot(directory, &here).await?;
    let key = address.key(&name);
    let sent = bucket.upload(&key, &here).await;
    std::fs::remove_file(&here)?;
    sent?;
    println!("{size} bytes written to s3://{}/{key}", address.bucket);
    Ok(())
}

async fn members(directory: &Directory) -> Result<(), Failure> {
    println!(
        "{:<28} {:<18} {:<8} {:<30} {:<9} {:>11} {:>11}",
        "NAME", "ID", "STATUS", "PEER", "VERSION", "SIZE", "RAFT INDEX"
    );
    for (member, health) in all(directory).await? {
        let peer = member.peer_urls.first().map_or("", String::as_str);
        let name = if member.name.is_empty() { "<not started>" } else { &member.name };
        let (version, size, index) = match &health {
            Some(health) => (health.version.as_str(), health.size.to_string(), health.raft_index.to_string()),
            None => ("", String::new(), String::new()),
        };
        println!(
            "{name:<28} {:<18x} {:<8} {peer:<30} {version:<9} {size:>11} {index:>11}",
            member.id,
            state(&member, health.as_ref())
        );
        for error in health.iter().flat_map(|health| &health.errors) {
            println!("  {error}");
        }
    }
    Ok(())
}

fn state(member: &Member, health: Option<&Health>) -> &'static str {
    match health {
        _ if member.learner => "learner",
        None => "lost",
        Some(health) if health.leader == member.id => "leader",
        Some(health) if health.leader == 0 => "alone",
        Some(_) => "member",
    }
}

/// The members, and how those are that answer. Without a majority, the members are those that whoever answers knows of.
async fn all(directory: &Directory) -> Result<Vec<(Member, Option<Health>)>, Failure> {
    let known = Members::open(&directory.reach(directory.endpoints()))?;
    let members = match known.list(true).await {
        Ok(members) => members,
        Err(_) => known.list(false).await?,
    };
    let each = members.into_iter().map(|member| async {
        let health = match member.client_urls.is_empty() {
            true => None,
            false => Members::open(&directory.reach(member.client_urls.clone()))?.health().await.ok(),
        };
        Ok::<_, Failure>((member, health))
    });
    futures::future::try_join_all(each).await
}

async fn remove(directory: &Directory, name: &str) -> Result<(), Failure> {
    let members = Members::open(&directory.reach(directory.endpoints()))?;
    let all = members.list(true).await?;
    let names = || all.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|member| member.name == name || format!("{:x}", member.id) == name);
    let member = found.ok_or_else(|| format!("etcd has no member {name}: there are {}", names()))?;
    members.remove(member.id).await?;
    println!("member {name} removed");
    Ok(())
}

async fn defrag(directory: &Directory) -> Result<(), Failure> {
    let mut all = all(directory).await?;
    // While one does it, it answers nobody; a leader hands over less often if it is the last.
    all.sort_by_key(|(member, health)| health.as_ref().is_some_and(|health| health.leader == member.id));
    for (member, before) in all {
        let Some(before) = before else {
            println!("{}: does not answer", member.name);
            continue;
        };
        let one = Members::open(&directory.reach(member.client_urls.clone()))?;
        one.defragment().await?;
        println!("{}: {} bytes before, {} after", member.name, before.size, one.health().await?.size);
    }
    Ok(())
}

async fn recover(place: &Place, program: &Path) -> Result<(), Failure> {
    let (mut record, mut member) = place.record()?;
    let directory = Directory::open(&place.data_dir, &member)?;
    if !directory.data().join("member").is_dir() {
        return Err(format!("{} holds no member of etcd", directory.data().display()).into());
    }
    let config = directory.program(program, &["--force-new-cluster"]);
    if config.is_running() {
        return Err("etcd runs on this machine: stop the server first".into());
    }
    let alone = Members::open(&directory.reach(vec![directory.own_endpoint()]))?;
    let etcd = Etcd::start(config).await?;
    let begun = Instant::now();
    let recovered = loop {
        match alone.list(true).await {
            Ok(members) if members.len() == 1 => break Ok(()),
            Err(error) if begun.elapsed() > RECOVERED => break Err(Failure::from(error)),
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    };
    etcd.stop().await?;
    recovered?;
    member.others.clear();
    Directory { member: member.clone(), ..directory }.forget_others()?;
    record.etcd = Some(member.clone());
    record.write(&place.data_dir)?;
    println!(
        "member {} goes on alone: start the server here, then let the others join again with empty data directories",
        member.name
    );
    Ok(())
}
