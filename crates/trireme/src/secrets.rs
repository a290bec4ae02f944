//! `trireme secrets encrypt`: Secrets sealed in the store, by commands instead of by editing an EncryptionConfiguration.
//!
//! The configuration is `DIR/encryption.yaml`, which a server takes when it is told of no other, and takes in again whenever it changes. So a new key needs no
//! restart: it is written first into the list, what is read with an older one is sealed anew when it is written next, and `reencrypt` writes everything. Older
//! keys stay in the list, because history and backups are sealed with them, until they are dropped on purpose.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Client, ListParams};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use crate::component::Failure;
use crate::standalone::connect;

/// The configuration in a data directory.
pub const FILE: &str = "encryption.yaml";
/// Secrets read at once.
const PAGE: u32 = 500;
/// How often one is tried that somebody else writes at the same time.
const TRIES: usize = 5;
/// How long a server may take to take a new configuration in, and how often it is asked.
const TAKEN_IN: Duration = Duration::from_secs(60);
const ASK: Duration = Duration::from_millis(250);

/// What to do with Secrets.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Have Secrets sealed in the store.
    #[command(subcommand)]
    Encrypt(Encrypt),
}

/// What to do about the sealing of Secrets.
#[derive(Debug, clap::Subcommand)]
pub enum Encrypt {
    /// Say which keys there are, and which one seals.
    Status(Place),
    /// Make a first key. The server has to be started again once; then `reencrypt` seals what is there.
    Enable(Place),
    /// Make a new key, which seals from now on; `reencrypt` seals what is there with it.
    Rotate {
        #[command(flatten)]
        place: Place,
        /// Let servers know the key without sealing with it yet. Where several servers share a store, copy the file to all of them first.
        #[arg(long)]
        prepare: bool,
    },
    /// Write every Secret once, sealed with the newest key.
    Reencrypt {
        #[command(flatten)]
        place: Place,
        /// Remove the older keys when all is written. What history and backups have of Secrets cannot be read without them.
        #[arg(long)]
        drop_old_keys: bool,
    },
}

/// Whose Secrets.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// The server's data directory.
    #[arg(long, value_name = "DIR", env = "TRIREME_DATA_DIR", default_value = "/var/lib/trireme")]
    data_dir: PathBuf,
}

impl Place {
    fn file(&self) -> PathBuf {
        self.data_dir.join(FILE)
    }

    fn client(&self) -> Result<Client, Failure> {
        connect(&self.data_dir.join("admin.kubeconfig"))
    }

    fn keys(&self) -> Result<Keys, Failure> {
        let file = self.file();
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("{}: {error}; `trireme secrets encrypt enable` makes it", file.display()))?;
        Ok(Keys::read(&text).map_err(|why| format!("{}: {why}", file.display()))?)
    }

    fn write(&self, keys: &Keys) -> Result<(), Failure> {
        Ok(pki::write_private(&self.file(), &keys.text())?)
    }
}

/// Keys by name, the one that seals first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Keys(Vec<(String, String)>);

impl Keys {
    /// Reads a configuration that was made here; another one is its owner's.
    fn read(text: &str) -> Result<Self, String> {
        let tree: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let foreign = "it was not made by `trireme secrets encrypt`: change it as you made it";
        let keys = tree["resources"][0]["providers"][0]["secretbox"]["keys"].as_array().ok_or(foreign)?;
        let key = |key: &Value| Some((key["name"].as_str()?.to_owned(), key["secret"].as_str()?.to_owned()));
        let keys = Self(keys.iter().map(key).collect::<Option<_>>().ok_or(foreign)?);
        if keys.tree() == tree && !keys.0.is_empty() { Ok(keys) } else { Err(foreign.to_owned()) }
    }

    fn tree(&self) -> Value {
        let keys: Vec<Value> = self.0.iter().map(|(name, secret)| json!({"name": name, "secret": secret})).collect();
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}]}],
        })
    }

    /// As a file has it: JSON is YAML, too.
    fn text(&self) -> String {
        format!("{:#}\n", self.tree())
    }

    fn new_key(&self, now: Timestamp) -> (String, String) {
        let base = format!("key-{}", now.strftime("%Y%m%d%H%M%S"));
        let taken = |name: &String| self.0.iter().any(|(known, _)| known == name);
        let more = (2..).map(|number| format!("{base}-{number}"));
        let name = std::iter::once(base.clone()).chain(more).find(|name| !taken(name)).unwrap_or(base);
        (name, STANDARD.encode(rand::random::<[u8; 32]>()))
    }

    /// With a new key that can open and does not seal.
    fn prepared(mut self, now: Timestamp) -> Self {
        let key = self.new_key(now);
        self.0.push(key);
        self
    }

    /// With the key that was prepared, or else a new one, as the one that seals.
    fn rotated(mut self, now: Timestamp) -> Self {
        let newest = |keys: &[(String, String)]| keys.iter().map(|(name, _)| name.clone()).max();
        let key = match self.0.last() {
            Some((last, _)) if self.0.len() > 1 && newest(&self.0).as_ref() == Some(last) => self.0.pop(),
            _ => None,
        };
        let key = key.unwrap_or_else(|| self.new_key(now));
        self.0.insert(0, key);
        self
    }

    fn shown(&self) -> String {
        let line = |(at, (name, _)): (usize, &(String, String))| {
            format!("{name:<22} {}\n", if at == 0 { "seals and opens" } else { "opens" })
        };
        let lines: String = self.0.iter().enumerate().map(line).collect();
        format!("{:<22} USE\n{lines}", "KEY")
    }
}

/// Runs the command.
pub async fn run(command: Command) -> Result<(), Failure> {
    let Command::Encrypt(command) = command;
    match command {
        Encrypt::Status(place) => {
            print!("{}", place.keys()?.shown());
            Ok(())
        }
        Encrypt::Enable(place) => enable(&place),
        Encrypt::Rotate { place, prepare } => {
            let (keys, now) = (place.keys()?, Timestamp::now());
            let keys = if prepare { keys.prepared(now) } else { keys.rotated(now) };
            place.write(&keys)?;
            print!("{}", keys.shown());
            println!(
                "A server that runs takes it in at once. `trireme secrets encrypt reencrypt` seals with it what is there."
            );
            Ok(())
        }
        Encrypt::Reencrypt { place, drop_old_keys } => reencrypt(&place, drop_old_keys).await,
    }
}

fn enable(place: &Place) -> Result<(), Failure> {
    if place.file().exists() {
        return Err(format!("{} is there already; `rotate` makes a new key", place.file().display()).into());
    }
    let keys = Keys(Vec::new()).rotated(Timestamp::now());
    place.write(&keys)?;
    print!("{}", keys.shown());
    println!("Start the server again, then run `trireme secrets encrypt reencrypt`.");
    println!(
        "Keep a copy of {}: without it nobody can read Secrets in the store or in a backup.",
        place.file().display()
    );
    Ok(())
}

async fn reencrypt(place: &Place, drop_old_keys: bool) -> Result<(), Failure> {
    let (keys, client) = (place.keys()?, place.client()?);
    taken_in(&client, &place.file()).await?;
    let (mut done, mut params) = (0, ListParams { limit: Some(PAGE), ..ListParams::default() });
    loop {
        let page = client.list::<Secret>("", &params).await?;
        let left = page.remaining.unwrap_or_default();
        for secret in page.items {
            rewrite(&client, secret).await?;
            done += 1;
        }
        println!("{done} of {} Secrets are sealed with {}", done + left, keys.0[0].0);
        match page.next.filter(|next| !next.is_empty()) {
            Some(next) => params.next = Some(next),
            None => break,
        }
    }
    if drop_old_keys {
        let only = Keys(keys.0[..1].to_vec());
        place.write(&only)?;
        taken_in(&client, &place.file()).await?;
        println!("{} older keys are gone", keys.0.len() - 1);
    }
    Ok(())
}

/// Writes a Secret as it is; one that somebody else writes meanwhile is sealed by that.
async fn rewrite(client: &Client, mut secret: Arc<Secret>) -> Result<(), Failure> {
    let (namespace, name) =
        (secret.metadata.namespace.clone().unwrap_or_default(), secret.metadata.name.clone().unwrap_or_default());
    for _ in 0..TRIES {
        match client.update(&*secret).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(format!("{namespace}/{name}: {error}").into()),
        }
        secret = match client.get::<Secret>(&namespace, &name).await {
            Ok(secret) => Arc::new(secret),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(format!("{namespace}/{name}: {error}").into()),
        };
    }
    Err(format!("{namespace}/{name} is written by somebody else all the time").into())
}

/// Waits until the server seals as a file says.
async fn taken_in(client: &Client, file: &Path) -> Result<(), Failure> {
    let hash = pki::fingerprint(&std::fs::read(file)?);
    let asked = async {
        loop {
            let figures = client.raw("/metrics").await?;
            if String::from_utf8_lossy(&figures).contains(&format!("hash=\"{hash}\"")) {
                return Ok::<(), client::Error>(());
            }
            tokio::time::sleep(ASK).await;
        }
    };
    match tokio::time::timeout(TAKEN_IN, asked).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(format!("the server does not seal as {} says: start it again", file.display()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_added_in_front_and_prepared_behind() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let names = |keys: &Keys| keys.0.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(" ");
        let first = Keys(Vec::new()).rotated(at("2026-01-01T00:00:00Z"));
        assert_eq!(names(&first), "key-20260101000000");
        let second = first.clone().rotated(at("2026-02-01T00:00:00Z"));
        assert_eq!(names(&second), "key-20260201000000 key-20260101000000");
        let prepared = second.prepared(at("2026-03-01T00:00:00Z"));
        assert_eq!(names(&prepared), "key-20260201000000 key-20260101000000 key-20260301000000");
        let third = prepared.rotated(at("2026-03-02T00:00:00Z"));
        assert_eq!(names(&third), "key-20260301000000 key-20260201000000 key-20260101000000");
        assert_eq!(Keys::read(&third.text()).as_ref(), Ok(&third));
        let soon = first.rotated(at("2026-01-01T00:00:00Z"));
        assert_eq!(names(&soon), "key-20260101000000-2 key-20260101000000");
    }

    #[test]
    fn a_configuration_of_somebody_else_is_left_alone() {
        let other = "kind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{identity: {}}]}]";
        assert!(Keys::read(other).expect_err("not ours").starts_with("it was not made by"));
        assert!(
            !Keys::read(&Keys(Vec::new()).rotated(Timestamp::now()).text()).expect("ours").shown().contains("secret")
        );
    }
}
