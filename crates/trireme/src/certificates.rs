//! `trireme certificates`: what the certificates of a data directory say and when they end, and new ones before that.
//!
//! Renewing removes a certificate; whoever keeps it makes another: the server that runs hears of it at once, one that does not run at its next start. So
//! there is one place that knows what a certificate has to say. Authorities are not renewed here: everybody who trusts the cluster has them.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use pki::{Certificate, Rotation};

use crate::component::Failure;

/// What to do with certificates.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the certificates of a server: whose they are, who signed them, when they end.
    List {
        /// The server's data directory.
        #[arg(long, value_name = "DIR", env = "TRIREME_DATA_DIR", default_value = "/var/lib/trireme")]
        data_dir: PathBuf,
    },
    /// Have certificates made anew. A running server shows the new ones to new connections; those that there are go on.
    ///
    /// Kubeconfigs that were copied from admin.kubeconfig stay good until their certificate ends.
    Renew {
        /// The server's data directory.
        #[arg(long, value_name = "DIR", env = "TRIREME_DATA_DIR", default_value = "/var/lib/trireme")]
        data_dir: PathBuf,
        /// Their names, as `list` shows them; without one, all but the authorities and those of a node, which a start makes anew.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Put another authority in place of the cluster's, in three steps, so that everybody is believed throughout.
    ///
    /// `begin` has both believed: start the server again, then every agent, which learns of both; pods do by themselves. `switch` has the new one sign: start
    /// the server again, then every agent, which gets new certificates. `finish` has the old one believed no more: start the server again, then every agent.
    /// Kubeconfigs for people have to be made anew before that. Without a word it says how far it has come. Where several servers share a cluster, copy the
    /// files `ca*` of `pki` in the data directory to the others after each step. The authorities of aggregation and of etcd stay.
    RotateCa {
        /// The server's data directory.
        #[arg(long, value_name = "DIR", env = "TRIREME_DATA_DIR", default_value = "/var/lib/trireme")]
        data_dir: PathBuf,
        /// begin, switch or finish.
        #[arg(value_enum)]
        step: Option<Step>,
    },
}

/// A step of putting another authority in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// Both are believed, the old one signs.
    Begin,
    /// Both are believed, the new one signs.
    Switch,
    /// The new one alone is believed.
    Finish,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List { data_dir } => {
            print!("{}", table(&read(&data_dir.join("pki"))?, Timestamp::now()));
            Ok(())
        }
        Command::Renew { data_dir, names } => renew(&data_dir.join("pki"), names),
        Command::RotateCa { data_dir, step } => rotate(&data_dir.join("pki"), *step),
    }
}

fn rotate(directory: &Path, step: Option<Step>) -> Result<(), Failure> {
    // A directory without an authority is nobody's.
    if !read(directory)?.iter().any(|found| found.name == "ca") {
        return Err(format!("{} has no authority", directory.display()).into());
    }
    let next = "Start the server again, then every agent.";
    match (step, Rotation::of(directory)) {
        (None, Rotation::None) => println!("One authority signs and is believed; `begin` makes another."),
        (None, Rotation::Begun) => println!("Two are believed, the old one signs; `switch` is next."),
        (None, Rotation::Switched) => println!("Two are believed, the new one signs; `finish` is next."),
        (Some(Step::Begin), Rotation::None) => {
            Rotation::begin(directory, Timestamp::now())?;
            println!("There is another authority. {next} Both are believed then.");
        }
        (Some(Step::Switch), Rotation::Begun) => {
            Rotation::switch(directory)?;
            println!("The new authority signs. {next} They get new certificates then.");
        }
        (Some(Step::Finish), Rotation::Switched) => {
            Rotation::finish(directory)?;
            println!("The old authority is believed no more. {next}");
        }
        (Some(_), Rotation::None) => return Err("it has not begun: `trireme certificates rotate-ca begin`".into()),
        (Some(_), Rotation::Begun) => return Err("it has begun: `switch` is next".into()),
        (Some(_), Rotation::Switched) => return Err("it is switched: `finish` is next".into()),
    }
    Ok(())
}

/// A certificate on disk.
struct Found {
    name: String,
    file: PathBuf,
    certificate: Certificate,
}

impl Found {
    fn is_signed_by(&self, other: &Self) -> bool {
        self.certificate.verify_signed_by(&other.certificate.public_key).is_ok()
    }

    fn is_authority(&self) -> bool {
        self.is_signed_by(self)
    }
}

/// All of them, by name.
fn read(directory: &Path) -> Result<Vec<Found>, Failure> {
    let entries = std::fs::read_dir(directory).map_err(|error| {
        format!("{}: {error}; name the server's data directory with --data-dir", directory.display())
    })?;
    let mut found = Vec::new();
    for entry in entries {
        let file = entry?.path();
        let Some(name) = file.file_name().and_then(|name| name.to_str()?.strip_suffix(".crt")).map(str::to_owned)
        else {
            continue;
        };
        let certificate =
            std::fs::read_to_string(&file).map_err(Failure::from).and_then(|text| Ok(Certificate::from_pem(&text)?));
        let certificate = certificate.map_err(|error| format!("{}: {error}", file.display()))?;
        found.push(Found { name, file, certificate });
    }
    found.sort_by(|a, b| (!a.is_authority(), &a.name).cmp(&(!b.is_authority(), &b.name)));
    Ok(found)
}

/// The name of the authority that signed it.
fn signer(found: &Found, all: &[Found]) -> String {
    let signer = all.iter().filter(|other| other.is_authority()).find(|other| found.is_signed_by(other));
    signer.map_or("another", |signer| &signer.name).to_owned()
}

fn table(all: &[Found], now: Timestamp) -> String {
    let rows: Vec<[String; 5]> = all
        .iter()
        .map(|found| {
            let Certificate { subject, not_after, .. } = &found.certificate;
            let signer = signer(found, all);
            [
                found.name.clone(),
                subject.common_name.clone(),
                signer,
                not_after.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                left(not_after.duration_since(now)),
            ]
        })
        .collect();
    let head = ["NAME", "SUBJECT", "SIGNED BY", "EXPIRES", "LEFT"].map(str::to_owned);
    let lines: Vec<&[String; 5]> = std::iter::once(&head).chain(&rows).collect();
    let widths = [0, 1, 2, 3].map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or_default());
    let line = |cells: &&[String; 5]| {
        let padded = widths.iter().zip(cells.iter()).map(|(width, cell)| format!("{cell:<width$}   "));
        format!("{}{}\n", padded.collect::<String>(), cells[4])
    };
    lines.iter().map(line).collect()
}

/// How long it is good, in the largest unit that says something.
fn left(left: SignedDuration) -> String {
    match left.as_hours() {
        _ if left.is_negative() => "ended".to_owned(),
        hours @ 0..48 => format!("{hours}h"),
        hours if hours < 2 * 365 * 24 => format!("{}d", hours / 24),
        hours => format!("{}y", hours / (365 * 24)),
    }
}

fn renew(directory: &Path, names: &[String]) -> Result<(), Failure> {
    let found = read(directory)?;
    for name in names {
        match found.iter().find(|found| found.name == *name) {
            None => {
                return Err(format!(
                    "there is no certificate {name}; `trireme certificates list` shows those that there are"
                )
                .into());
            }
            Some(found) if found.is_authority() => {
                return Err(format!(
                    "{name} is an authority: whoever trusts the cluster knows it, so it is not renewed like others"
                )
                .into());
            }
            Some(_) => {}
        }
    }
    let is_usual = |found: &Found| !found.is_authority() && !found.name.starts_with("node-");
    let chosen = |found: &&Found| if names.is_empty() { is_usual(found) } else { names.contains(&found.name) };
    for found in found.iter().filter(chosen) {
        std::fs::remove_file(&found.file).map_err(|error| format!("{}: {error}", found.file.display()))?;
        println!("{}: to be made anew", found.name);
    }
    println!("A server that runs makes them now, another one at its next start.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_said_in_the_largest_unit_that_says_something() {
        for (hours, expected) in
            [(-1, "ended"), (0, "0h"), (47, "47h"), (48, "2d"), (24 * 365, "365d"), (24 * 3650, "10y")]
        {
            assert_eq!(left(SignedDuration::from_hours(hours)), expected, "{hours}");
        }
    }

    #[test]
    fn authorities_come_first_and_are_not_renewed() {
        let directory = tempfile::tempdir().expect("a directory");
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let options = pki::Options {
            now,
            service_address: [10, 96, 0, 1].into(),
            cluster_domain: "cluster.local".to_owned(),
            hosts: Vec::new(),
        };
        pki::Cluster::ensure(directory.path(), &options).expect("a PKI");
        let shown = table(&read(directory.path()).expect("certificates"), now);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["ca", "kubernetes", "ca", "2035-12-30T00:00:00Z", "10y"], "{shown}");
        assert_eq!(lines[3], ["admin", "kubernetes-admin", "ca", "2027-01-01T00:00:00Z", "365d"], "{shown}");
        let refused = renew(directory.path(), &["ca".to_owned()]).expect_err("it is an authority");
        assert!(refused.to_string().starts_with("ca is an authority"), "{refused}");
        let refused = renew(directory.path(), &["admin".to_owned(), "nobody".to_owned()]).expect_err("no such one");
        assert!(refused.to_string().starts_with("there is no certificate nobody"), "{refused}");
        assert!(directory.path().join("admin.crt").exists(), "nothing is removed where something is wrong");
        renew(directory.path(), &[]).expect("renewed");
        let names: Vec<String> =
            read(directory.path()).expect("those left").into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["ca", "front-proxy-ca"]);
    }
}
