//! Encryption at rest: what is written to the store is sealed, by resource, as an `EncryptionConfiguration` says.
//!
//! [`Encrypted`] is a store around the store: whatever is above it sees plain objects, whatever is below it sees only
//! sealed bytes in upstream's form (`k8s:enc:aescbc:v1:key1:...`), so that either can read what the other wrote. The key of
//! the object in the store is authenticated with it where the cipher can, so that nobody who writes to the store can pass
//! one object for another.
//!
//! [`configuration`] reads the file, [`cipher`] has the ciphers with a key in the file, [`kms`] those whose key is with a
//! key management service, [`reload`] follows the file.

mod cipher;
mod configuration;
mod kms;
mod reload;
mod sealed;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;

pub use configuration::Layout;
use configuration::{Configuration, Rule};
use kms::Kms;
pub use sealed::Encrypted;

/// What sealed bytes begin with.
const SEALED: &[u8] = b"k8s:enc:";

/// Why nothing can be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("error reading encryption provider configuration file {path:?}: {why}")]
    Read { path: String, why: String },
    /// The file makes no sense.
    #[error("error while parsing file: {0}")]
    Configuration(String),
    /// Bytes cannot be opened with any of the keys.
    #[error("{0}")]
    Open(String),
    /// A key management service does not do as it should.
    #[error("{0}")]
    Kms(String),
}

/// Where the configuration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `--encryption-provider-config`.
    pub path: PathBuf,
    /// `--encryption-provider-config-automatic-reload`.
    pub reload: bool,
}

impl Settings {
    /// Whether the file makes sense, before anything is started.
    pub fn check(&self) -> Result<(), Error> {
        Configuration::parse(&read(&self.path)?).map(|_| ())
    }
}

/// The present configuration, in use.
pub struct Encryption {
    rules: RwLock<Arc<Rules>>,
    layout: Layout,
    settings: Settings,
    reloaded: AtomicU64,
    failed: AtomicU64,
    /// The task that follows the file.
    following: parking_lot::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// One configuration with its services.
struct Rules {
    configuration: Configuration,
    services: Vec<Arc<Kms>>,
    /// The file's bytes, hashed.
    hash: [u8; 32],
}

impl Encryption {
    /// Reads the file and, where asked for, follows it.
    pub async fn open(settings: Settings, layout: Layout) -> Result<Arc<Self>, Error> {
        let text = read(&settings.path)?;
        let rules = Rules::new(&text)?;
        // A service that is away is no reason not to start: what it has sealed cannot be read until it is back.
        for service in &rules.services {
            if let Err(error) = service.check().await {
                tracing::warn!(%error, "a key management service is not ready");
            }
        }
        let reload = settings.reload;
        let encryption = Arc::new(Self {
            rules: RwLock::new(Arc::new(rules)),
            layout,
            settings,
            reloaded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            following: parking_lot::Mutex::default(),
        });
        if reload {
            let task = reload::follow(&encryption)?;
            *encryption.following.lock() = Some(task);
        }
        Ok(encryption)
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    /// Takes in the file if it changed. What is wrong with a new one leaves the present one in force.
    async fn reload(&self) {
        let outcome = async {
            let text = read(&self.settings.path)?;
            if hash(&text) == self.rules().hash {
                return Ok(false);
            }
            let rules = Rules::new(&text)?;
            for service in &rules.services {
                service.check().await?;
            }
            *self.rules.write() = Arc::new(rules);
            Ok::<bool, Error>(true)
        };
        match outcome.await {
            Ok(false) => {}
            Ok(true) => {
                self.reloaded.fetch_add(1, Ordering::Relaxed);
                tracing::info!("the encryption configuration was loaded again");
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%error, "the new encryption configuration cannot be used; the one before stays in force");
            }
        }
    }

    /// Why the check `kms-providers` fails, if it does; nothing where there is no such check.
    pub fn health(&self) -> Option<Result<(), String>> {
        let rules = self.rules();
        if rules.services.is_empty() && !self.settings.reload {
            return None;
        }
        let failed: Vec<String> = rules
            .services
            .iter()
            .enumerate()
            .filter_map(|(at, service)| service.health().err().map(|why| format!("kms-provider-{at}: {why}")))
            .collect();
        Some(if failed.is_empty() { Ok(()) } else { Err(failed.join(", ")) })
    }

    /// The figures, in the Prometheus text format.
    pub fn metrics(&self, text: &mut String) {
        let name = "apiserver_encryption_config_controller_automatic_reloads_total";
        let help = "[ALPHA] Total number of reload successes and failures of encryption configuration split by apiserver identity.";
        let mut samples = figures::samples(text, name, "counter", help);
        for (status, count) in [("success", &self.reloaded), ("failure", &self.failed)] {
            samples.add(&[("status", status)], count.load(Ordering::Relaxed) as f64);
        }
        let name = "apiserver_encryption_config_controller_last_config_info";
        let help = "[ALPHA] Information about the last applied encryption configuration with hash as label, split by apiserver identity.";
        let hash: String = self.rules().hash.iter().map(|byte| format!("{byte:02x}")).collect();
        figures::samples(text, name, "gauge", help).add(&[("hash", &format!("sha256:{hash}"))], 1.0);
    }
}

impl Drop for Encryption {
    fn drop(&mut self) {
        if let Some(task) = self.following.get_mut().take() {
            task.abort();
        }
    }
}

impl Rules {
    fn new(text: &[u8]) -> Result<Self, Error> {
        let configuration = Configuration::parse(text)?;
        let services = configuration.services();
        Ok(Self { configuration, services, hash: hash(text) })
    }

    /// The rule for an object; none leaves it as it is.
    fn of(&self, layout: &Layout, key: &str) -> Option<&Rule> {
        let (group, resource) = layout.resource_of(key)?;
        self.configuration.rule(group, resource)
    }
}

impl Rule {
    /// What is written for a value.
    async fn seal(&self, key: &str, plain: &Bytes) -> Result<Bytes, Error> {
        self.providers[0].seal(key, plain).await
    }

    /// What was written, and whether it would be written differently now.
    async fn open(&self, key: &str, stored: &Bytes) -> Result<(Bytes, bool), Error> {
        let mut last = None;
        for (at, provider) in self.providers.iter().enumerate().filter(|(_, provider)| provider.wrote(stored)) {
            match provider.open(key, stored).await {
                Ok((plain, stale)) => return Ok((plain, stale || at > 0)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Open("no matching prefix found".to_owned())))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::Read { path: path.display().to_string(), why: error.to_string() })
}

fn hash(text: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
