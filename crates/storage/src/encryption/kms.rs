//! Key management services, version 2: gRPC over a unix socket.
//!
//! The service never sees an object. It seals a random seed once per key of its own; from that seed and 32 random bytes that
//! are stored with each object comes the key of that one object. So a write costs no call, and neither does a read once the
//! seed is known. The service is asked how it is once a minute; when the name of its key changes, a new seed is made.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use common::expiring::Expiring;
use http::uri::PathAndQuery;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::Error;
use super::cipher::{Cipher, random};

/// How often a service that is well is asked, and one that is not.
const WELL: Duration = Duration::from_secs(60);
const UNWELL: Duration = Duration::from_secs(10);
/// How long a seed is written with after the service was last well.
const WRITES: Duration = Duration::from_secs(3 * 60);
/// Seeds that are remembered.
const MAX_SEEDS: usize = 4096;
const SEED: usize = 32;
const MAX_KEY_ID: usize = 1024;
const MAX_SEALED_SEED: usize = 1024;
const MAX_ANNOTATIONS: usize = 32 * 1024;

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    encrypted_data: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(bytes = "vec", tag = "3")]
    encrypted_dek_source: Vec<u8>,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
    #[prost(int32, tag = "5")]
    encrypted_dek_source_type: i32,
}

/// The source is the key itself, as upstream wrote before 1.29.
const SOURCE_KEY: i32 = 0;
/// The source is a seed of keys.
const SOURCE_SEED: i32 = 1;

/// A secret that the service has sealed.
struct Source {
    secret: Vec<u8>,
    kind: i32,
}

/// The seed that is written with.
struct Current {
    source: Arc<Source>,
    /// Everything but the data.
    object: EncryptedObject,
    until: Instant,
}

pub struct Kms {
    name: String,
    channel: Channel,
    timeout: Duration,
    current: RwLock<Option<Current>>,
    known: Expiring<[u8; 32], Arc<Source>>,
    health: Mutex<Result<(), String>>,
    /// Held while the service is asked how it is.
    checking: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for Kms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kms({})", self.name)
    }
}

impl Kms {
    /// At a socket. It is connected to when it is first asked, and asked how it is from then on.
    pub fn new(name: &str, socket: &str, timeout: Duration) -> Result<Arc<Self>, Error> {
        let endpoint = Endpoint::try_from(format!("unix://{socket}"))
            .map_err(|error| Error::Kms(format!("invalid endpoint for kms provider, error: {error}")))?;
        let kms = Arc::new(Self {
            name: name.to_owned(),
            channel: endpoint.connect_timeout(timeout).timeout(timeout).connect_lazy(),
            timeout,
            current: RwLock::default(),
            known: Expiring::new(MAX_SEEDS),
            health: Mutex::new(Err("the service has not been asked yet".to_owned())),
            checking: tokio::sync::Mutex::default(),
        });
        tokio::spawn(Self::look_after(Arc::downgrade(&kms)));
        Ok(kms)
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it was when it was last asked.
    pub fn health(&self) -> Result<(), String> {
        self.health.lock().clone()
    }

    /// Asks the service how it is, until nobody uses it any more. There is nothing to watch: this is its protocol.
    async fn look_after(kms: Weak<Self>) {
        loop {
            let Some(service) = kms.upgrade() else { return };
            let pause = if service.health().is_ok() { WELL } else { UNWELL };
            drop(service);
            tokio::time::sleep(pause).await;
            let Some(service) = kms.upgrade() else { return };
            if let Err(error) = service.check().await {
                tracing::warn!(name = service.name, %error, "a key management service is not well");
            }
        }
    }

    /// Asks how it is, and makes a new seed if its key is another one.
    pub async fn check(&self) -> Result<(), Error> {
        let _one_at_a_time = self.checking.lock().await;
        let outcome = self.check_once().await;
        *self.health.lock() = match &outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        outcome
    }

    async fn check_once(&self) -> Result<(), Error> {
        let failed = |why: String| {
            Error::Kms(format!(
                "failed to perform status section of the healthz check for KMS Provider {}, error: {why}",
                self.name
            ))
        };
        let started = Instant::now();
        let status: StatusResponse =
            self.call("/v2.KeyManagementService/Status", StatusRequest {}).await.map_err(failed)?;
        if !matches!(status.version.as_str(), "v2" | "v2beta1") {
            return Err(failed(format!("expected KMSv2 API version v2, got {}", status.version)));
        }
        if status.healthz != "ok" {
            return Err(failed(format!("got unexpected healthz status: {}", status.healthz)));
        }
        if status.key_id.is_empty() || status.key_id.len() > MAX_KEY_ID {
            return Err(failed("expected KMSv2 KeyID to be set, and not to be too long".to_owned()));
        }
        if let Some(current) = &mut *self.current.write()
            && current.object.key_id == status.key_id
        {
            current.until = started + WRITES;
            return Ok(());
        }
        let secret = random::<SEED>()?.to_vec();
        let request = EncryptRequest { plaintext: secret.clone(), uid: common::new_uuid().to_string() };
        let sealed: Result<EncryptResponse, String> = self.call("/v2.KeyManagementService/Encrypt", request).await;
        let sealed = sealed.map_err(|why| Error::Kms(format!("failed to encrypt DEK, error: {why}")))?;
        if sealed.key_id != status.key_id {
            return Err(Error::Kms(format!("the key of KMS Provider {} changed while it was asked", self.name)));
        }
        let object = EncryptedObject {
            encrypted_data: Vec::new(),
            key_id: sealed.key_id,
            encrypted_dek_source: sealed.ciphertext,
            annotations: sealed.annotations,
            encrypted_dek_source_type: SOURCE_SEED,
        };
        validate(&object)?;
        let source = Arc::new(Source { secret, kind: SOURCE_SEED });
        self.known.put(fingerprint(&object), source.clone(), i64::MAX);
        *self.current.write() = Some(Current { source, object, until: started + WRITES });
        Ok(())
    }

    /// Seals something that belongs to `place`.
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, Error> {
        let current = self.current.read();
        let Some(current) = &*current else {
            return Err(Error::Kms(format!("got unexpected nil state for KMS Provider {}", self.name)));
        };
        if Instant::now() > current.until {
            return Err(Error::Kms(format!("the encryptedDEKSource of KMS Provider {} has expired", self.name)));
        }
        let object = EncryptedObject { encrypted_data: current.source.seal(place, plain)?, ..current.object.clone() };
        Ok(object.encode_to_vec())
    }

    /// Opens what belongs to `place`; and whether it was sealed with another key than is used now.
    pub async fn open(&self, place: &[u8], stored: &[u8]) -> Result<(Vec<u8>, bool), Error> {
        let object = EncryptedObject::decode(stored).map_err(|error| Error::Open(error.to_string()))?;
        validate(&object)?;
        if object.encrypted_data.is_empty() {
            return Err(Error::Open("encrypted data is empty".to_owned()));
        }
        let print = fingerprint(&object);
        let source = match self.known.get(&print, 0) {
            Some(source) => source,
            None => {
                let request = DecryptRequest {
                    ciphertext: object.encrypted_dek_source.clone(),
                    uid: common::new_uuid().to_string(),
                    key_id: object.key_id.clone(),
                    annotations: object.annotations.clone(),
                };
                let opened: Result<DecryptResponse, String> =
                    self.call("/v2.KeyManagementService/Decrypt", request).await;
                let opened = opened.map_err(|why| Error::Kms(format!("failed to decrypt DEK, error: {why}")))?;
                let source = Arc::new(Source { secret: opened.plaintext, kind: object.encrypted_dek_source_type });
                self.known.put(print, source.clone(), i64::MAX);
                source
            }
        };
        let plain = source.open(place, &object.encrypted_data)?;
        let current = self.current.read();
        let stale = current.as_ref().is_some_and(|current| {
            current.object.key_id != object.key_id || object.encrypted_dek_source_type != SOURCE_SEED
        });
        Ok((plain, stale))
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, String>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let exchange = async {
            let mut grpc = Grpc::new(self.channel.clone());
            grpc.ready().await.map_err(|error| error.to_string())?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
        };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    }
}

impl Source {
    fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, Error> {
        let info = random::<SEED>()?;
        let sealed = Cipher::AesGcm(self.derived(&info)?).seal(place, plain)?;
        Ok([&info[..], &sealed].concat())
    }

    fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Error> {
        if self.kind == SOURCE_KEY {
            return Cipher::AesGcm(self.secret.clone()).open(place, sealed);
        }
        let short = || Error::Open("the stored data was shorter than the required size".to_owned());
        let (info, sealed) = sealed.split_at_checked(SEED).ok_or_else(short)?;
        Cipher::AesGcm(self.derived(info)?).open(place, sealed)
    }

    /// The key of one object.
    fn derived(&self, info: &[u8]) -> Result<Vec<u8>, Error> {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                SEED
            }
        }
        let failed = |_| Error::Open("failed to KDF expand seed with info".to_owned());
        let mut key = vec![0; SEED];
        let seed = Prk::new_less_safe(HKDF_SHA256, &self.secret);
        seed.expand(&[info], Length).and_then(|expanded| expanded.fill(&mut key)).map_err(failed)?;
        Ok(key)
    }
}

fn validate(object: &EncryptedObject) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Open(why.to_owned()));
    if !matches!(object.encrypted_dek_source_type, SOURCE_KEY | SOURCE_SEED) {
        return refuse("unknown encryptedDEKSourceType");
    }
    if object.encrypted_dek_source.is_empty() || object.encrypted_dek_source.len() > MAX_SEALED_SEED {
        return refuse("failed to validate encrypted DEK source");
    }
    if object.key_id.is_empty() || object.key_id.len() > MAX_KEY_ID {
        return refuse("failed to validate key id");
    }
    let size: usize = object.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ANNOTATIONS || object.annotations.keys().any(|key| !key.contains('.')) {
        return refuse("failed to validate annotations");
    }
    Ok(())
}

/// Names a sealed source: everything that the service needs to open it.
fn fingerprint(object: &EncryptedObject) -> [u8; 32] {
    let source = EncryptedObject { encrypted_data: Vec::new(), ..object.clone() };
    super::hash(&source.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_a_key_of_its_own() {
        let source = Source { secret: vec![3; SEED], kind: SOURCE_SEED };
        let sealed = source.seal(b"a", b"plain").expect("sealed");
        assert_eq!(source.open(b"a", &sealed).expect("opened"), b"plain");
        assert!(source.open(b"b", &sealed).is_err(), "another's object");
        assert_ne!(sealed[..SEED], source.seal(b"a", b"plain").expect("sealed")[..SEED]);
        // RFC 5869, A.1: what is expanded from the extracted key of the first test case.
        let secret = hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
        let derived = Source { secret, kind: SOURCE_SEED }.derived(&hex("f0f1f2f3f4f5f6f7f8f9")).expect("a key");
        assert_eq!(derived, hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"));
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
    }
}
