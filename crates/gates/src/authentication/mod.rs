//! Who is it? A chain of authenticators: the first that knows the peer wins, and who shows nothing is anonymous.
//!
//! A credential that is shown and does not hold is refused; only its absence makes a request anonymous. What costs a
//! signature check or a call is remembered for a short while, so that a client's next request costs a look-up.

mod bootstrap;
pub mod certificates;
pub mod claims;
pub mod impersonation;
pub mod issuers;
mod jwt;
pub mod oidc;
pub mod service_accounts;
pub mod settings;
mod token_file;
pub mod tracking;
pub mod webhook;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::Clock;
use common::expiring::Expiring;
use common::reload::{Changes, Reloads};
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use machinery::rest::{Peer, User};
use machinery::status::ApiError;
use parking_lot::RwLock;
use storage::Lookup;
use storage::cache::Caches;

use super::notes::Notes;
use certificates::Certificates;
use oidc::Oidc;
use service_accounts::ServiceAccounts;
pub use settings::{Anonymous, Settings};
use token_file::TokenFile;
use webhook::Webhook;

/// How a browser, which cannot set headers on a WebSocket, shows its token.
const WEBSOCKET_TOKEN: &str = "base64url.bearer.authorization.k8s.io.";
/// The message for somebody whose token is passed over.
const SPACE_BEFORE_TOKEN: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";
/// How long the user of another issuer's token is remembered.
const REMEMBER_MILLIS: i64 = 10_000;
const MAX_REMEMBERED: usize = 4096;

/// A user, and for which of the audiences asked for the credential was made.
#[derive(Debug, Clone)]
pub struct Authenticated {
    pub user: Arc<User>,
    pub audiences: Vec<String>,
}

/// Somebody, nobody that this authenticator knows, or why a credential it knows does not hold.
pub type Outcome = Result<Option<Authenticated>, String>;

/// The audiences in both lists, in the order of the first.
pub fn common(wanted: &[String], given: &[String]) -> Vec<String> {
    wanted.iter().filter(|audience| given.contains(audience)).cloned().collect()
}

/// Other issuers of tokens, and whose tokens of theirs were seen lately.
struct Issuers {
    all: Vec<Oidc>,
    remembered: Expiring<([u8; 32], Vec<String>), Authenticated>,
}

impl Issuers {
    fn new(settings: Vec<oidc::Settings>, clock: &Clock) -> Self {
        let all = settings.into_iter().map(|issuer| Oidc::new(issuer, clock.clone())).collect();
        Self { all, remembered: Expiring::new(MAX_REMEMBERED) }
    }
}

/// A file that is followed.
struct Followed {
    path: std::path::PathBuf,
    reloads: Reloads,
    /// What the file was read into at first.
    settings: Settings,
}

pub struct Authenticator {
    certificates: Certificates,
    token_file: TokenFile,
    service_accounts: Arc<ServiceAccounts>,
    bootstrap_tokens: bool,
    /// Others take their place when the file that names them changes.
    issuers: RwLock<Arc<Issuers>>,
    webhook: Option<Webhook>,
    anonymous: Anonymous,
    /// The file that names the issuers.
    followed: Option<Followed>,
    /// By which permission who impersonated others last.
    pub impersonation: impersonation::LastModes,
    clock: Clock,
    /// Where bootstrap tokens are kept.
    lookup: Arc<dyn Lookup>,
    caches: Arc<Caches>,
}

impl Authenticator {
    /// By these settings, with tokens and accounts that are found here.
    pub fn new(
        settings: Settings,
        service_accounts: Arc<ServiceAccounts>,
        lookup: Arc<dyn Lookup>,
        caches: Arc<Caches>,
        clock: &Clock,
    ) -> Result<Self, settings::Error> {
        let webhook = settings.webhook.as_ref().map(|webhook| Webhook::new(webhook, clock.clone())).transpose()?;
        let followed = settings.file.clone().map(|(path, content)| Followed {
            path,
            reloads: Reloads::new("authentication", content),
            settings: settings.clone(),
        });
        Ok(Self {
            followed,
            certificates: Certificates::new(settings.front_proxy, clock.clone())?,
            token_file: settings.token_file.as_deref().map(TokenFile::load).transpose()?.unwrap_or_default(),
            service_accounts,
            bootstrap_tokens: settings.bootstrap_tokens,
            issuers: RwLock::new(Arc::new(Issuers::new(settings.issuers, clock))),
            webhook,
            anonymous: settings.anonymous,
            impersonation: impersonation::LastModes::default(),
            clock: clock.clone(),
            lookup,
            caches,
        })
    }

    /// Takes in the file that names the issuers whenever it changes, for as long as there is this authenticator.
    pub fn follow(self: &Arc<Self>) -> std::io::Result<()> {
        let Some(followed) = &self.followed else { return Ok(()) };
        Changes::of(&followed.path)?.follow(self, Self::reload);
        Ok(())
    }

    fn reload(&self) {
        let Some(Followed { path, reloads, settings }) = &self.followed else { return };
        reloads.take(path, (self.clock)(), |content| {
            let issuers = Issuers::new(settings.issuers_of(content)?, &self.clock);
            *self.issuers.write() = Arc::new(issuers);
            Ok::<(), settings::Error>(())
        });
    }

    /// What came of following the file, in the Prometheus text format.
    pub fn metrics(&self, text: &mut String) {
        if let Some(followed) = &self.followed {
            followed.reloads.metrics(text);
        }
    }

    /// The identity behind a request, or 401. The headers that prove it are taken out: they are for us alone.
    pub async fn authenticate(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
        path: &str,
        notes: &Notes,
    ) -> Result<Arc<User>, ApiError> {
        let (chain, doubtful) = match peer {
            Peer::InProcess(user) => return Ok(user.clone()),
            Peer::Remote { certificates, doubtful, .. } => (certificates, *doubtful),
        };
        let by_certificate = self.certificates.authenticate(chain, headers);
        self.certificates.strip(headers);
        if let Some(user) = by_certificate {
            headers.remove(AUTHORIZATION);
            return Ok(user);
        }
        if let Some(token) = bearer(headers, notes)? {
            headers.remove(AUTHORIZATION);
            return match self.token(&token, self.service_accounts.audiences(), notes).await {
                Ok(Some(known)) => Ok(known.user),
                Ok(None) => Err(ApiError::unauthorized()),
                Err(error) => {
                    tracing::debug!(%error, "a token was refused");
                    Err(ApiError::unauthorized())
                }
            };
        }
        // A certificate that was shown and makes nobody must not become anonymous access.
        if doubtful || !chain.is_empty() || !self.anonymous.allows(path) {
            return Err(ApiError::unauthorized());
        }
        Ok(Arc::new(User {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..User::default()
        }))
    }

    /// The user of a bearer token that is meant for one of the audiences.
    pub async fn token(&self, token: &str, audiences: &[String], notes: &Notes) -> Outcome {
        let before = self.caches.revision();
        let outcome = self.ask(token, audiences, notes).await;
        if matches!(outcome, Ok(Some(_))) {
            return outcome;
        }
        // A token may be younger than what the caches have come to.
        match self.caches.settle().await {
            Ok(now) if now != before => self.ask(token, audiences, notes).await,
            _ => outcome,
        }
    }

    async fn ask(&self, token: &str, audiences: &[String], notes: &Notes) -> Outcome {
        // Tokens that say nothing of audiences are for the API server.
        let implicit = self.service_accounts.audiences();
        let for_us = common(audiences, implicit);
        if !for_us.is_empty() {
            let known = self.token_file.authenticate(token).or_else(|| self.bootstrap_token(token));
            if let Some(user) = known {
                return Ok(Some(Authenticated { user, audiences: for_us }));
            }
        }
        let mut errors = Vec::new();
        match self.service_accounts.authenticate(token, audiences, notes) {
            Ok(None) => {}
            Ok(known) => return Ok(known),
            Err(error) => errors.push(error),
        }
        let issuers = self.issuers.read().clone();
        if !issuers.all.is_empty() && !for_us.is_empty() {
            let key = (service_accounts::hash(token), for_us.clone());
            let now = (self.clock)().as_millisecond();
            if let Some(known) = issuers.remembered.get(&key, now) {
                return Ok(Some(known));
            }
            for issuer in &issuers.all {
                match issuer.authenticate(token, &for_us).await {
                    Ok(None) => {}
                    Ok(Some(known)) => {
                        issuers.remembered.put(key, known.clone(), now + REMEMBER_MILLIS);
                        return Ok(Some(known));
                    }
                    Err(error) => errors.push(error),
                }
            }
        }
        if let Some(webhook) = &self.webhook {
            match webhook.authenticate(token, audiences, implicit).await {
                Ok(None) => {}
                Ok(known) => return Ok(known),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            return Ok(None);
        }
        Err(format!("[invalid bearer token, {}]", errors.join(", ")))
    }

    fn bootstrap_token(&self, token: &str) -> Option<Arc<User>> {
        let found = self.bootstrap_tokens.then(|| bootstrap::authenticate(&*self.lookup, token, (self.clock)()));
        found.flatten().map(Arc::new)
    }
}

/// The token of an `Authorization: Bearer` header, or of a WebSocket's protocols, from which it is taken out.
fn bearer(headers: &mut HeaderMap, notes: &Notes) -> Result<Option<String>, ApiError> {
    if let Some(header) = headers.get(AUTHORIZATION) {
        let text = header.to_str().map_err(|_| ApiError::unauthorized())?;
        // Another scheme, or a scheme without a token, shows nothing that anybody here looks at.
        let mut words = text.trim().split(' ');
        let (scheme, token) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if scheme.eq_ignore_ascii_case("bearer") {
            if !token.is_empty() {
                return Ok(Some(token.to_owned()));
            }
            if words.next().is_some() {
                notes.warn(SPACE_BEFORE_TOKEN);
            }
        }
    }
    let Some(header) = headers.get(SEC_WEBSOCKET_PROTOCOL) else { return Ok(None) };
    let text = header.to_str().map_err(|_| ApiError::unauthorized())?.to_owned();
    let (tokens, rest): (Vec<&str>, Vec<&str>) =
        text.split(',').map(str::trim).partition(|protocol| protocol.starts_with(WEBSOCKET_TOKEN));
    let [token] = tokens.as_slice() else {
        return if tokens.is_empty() { Ok(None) } else { Err(ApiError::unauthorized()) };
    };
    // A token alone would leave no protocol to speak.
    let decoded =
        URL_SAFE_NO_PAD.decode(&token[WEBSOCKET_TOKEN.len()..]).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.filter(|token| !token.is_empty() && !rest.is_empty()).ok_or_else(ApiError::unauthorized)?;
    let rest = http::HeaderValue::from_str(&rest.join(",")).map_err(|_| ApiError::unauthorized())?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, rest);
    Ok(Some(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn tokens_come_in_headers_and_in_protocols() {
        let read = |name: http::HeaderName, text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(text));
            let token = bearer(&mut headers, &Notes::default());
            (token.map_err(|error| error.code), headers)
        };
        assert_eq!(read(AUTHORIZATION, "Bearer abc").0, Ok(Some("abc".to_owned())));
        assert_eq!(read(AUTHORIZATION, "bearer abc").0, Ok(Some("abc".to_owned())));
        for nothing in ["bearer  abc", "Basic abc", "Bearer ", "Bearer"] {
            assert_eq!(read(AUTHORIZATION, nothing).0, Ok(None), "{nothing}");
        }
        let (token, headers) =
            read(SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.YWJj");
        assert_eq!(token, Ok(Some("abc".to_owned())));
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "v4.channel.k8s.io");
        assert_eq!(read(SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io").0, Ok(None));
        assert_eq!(read(SEC_WEBSOCKET_PROTOCOL, "base64url.bearer.authorization.k8s.io.YWJj").0, Err(401));
    }
}
