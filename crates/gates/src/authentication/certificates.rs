//! Client certificates: `CN` is the user, every `O` a group. And the front proxy, whose certificate lets it name others.
//!
//! TLS has proved that the peer holds the key and that an authority we know signed it. Where the front proxy has an
//! authority of its own, which of the two signed decides what the certificate may do.

use std::sync::Arc;

use bytes::Bytes;
use common::Clock;
use common::expiring::Expiring;
use http::HeaderMap;
use machinery::rest::User;
use pki::{Clients, Handshake};
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;

/// Certificates whose owner is remembered.
const MAX_REMEMBERED: usize = 10_000;

/// Whom the front proxy is, and where it says whom it speaks for.
#[derive(Debug, Clone, Default)]
pub struct FrontProxy {
    /// `--requestheader-client-ca-file`, in PEM.
    pub authority: String,
    /// The authority of everybody else, in PEM.
    pub clients: String,
    /// `--requestheader-allowed-names`; none is any.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub user_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_prefixes: Vec<String>,
}

/// Why the authorities cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the authority of client certificates cannot be used: {0}")]
pub struct Error(#[from] pki::Error);

/// What a certificate makes its owner.
#[derive(Debug, Clone)]
enum Owner {
    User(Arc<User>),
    Proxy,
    Nobody,
}

struct Proxy {
    settings: FrontProxy,
    authority: Clients,
    clients: Clients,
}

pub struct Certificates {
    proxy: Option<Proxy>,
    remembered: Expiring<Bytes, Owner>,
    clock: Clock,
}

impl Certificates {
    /// With a front proxy, if there is one.
    pub fn new(proxy: Option<FrontProxy>, clock: Clock) -> Result<Self, Error> {
        let proxy = match proxy {
            None => None,
            Some(settings) => {
                let clients = |pem: &str| Clients::new(pem, &Handshake::default());
                Some(Proxy { authority: clients(&settings.authority)?, clients: clients(&settings.clients)?, settings })
            }
        };
        Ok(Self { proxy, remembered: Expiring::new(MAX_REMEMBERED), clock })
    }

    /// The user behind the certificates that a peer showed.
    pub fn authenticate(&self, chain: &[Bytes], headers: &HeaderMap) -> Option<Arc<User>> {
        let leaf = chain.first()?;
        let now = (self.clock)();
        let owner = match self.remembered.get(leaf, now.as_millisecond()) {
            Some(owner) => owner,
            None => {
                let (owner, until) = self.owner(chain)?;
                // An own copy: the peer's bytes may be part of something larger.
                self.remembered.put(Bytes::copy_from_slice(leaf), owner.clone(), until);
                owner
            }
        };
        match (owner, &self.proxy) {
            (Owner::User(user), _) => Some(user),
            (Owner::Proxy, Some(proxy)) => proxy.settings.user(headers).map(Arc::new),
            _ => None,
        }
    }

    /// Takes out the headers in which a front proxy names others, whoever sent them.
    pub fn strip(&self, headers: &mut HeaderMap) {
        let Some(proxy) = &self.proxy else { return };
        let FrontProxy { user_headers, uid_headers, group_headers, extra_prefixes, .. } = &proxy.settings;
        for name in user_headers.iter().chain(uid_headers).chain(group_headers) {
            headers.remove(name.as_str());
        }
        let extra: Vec<_> = headers
            .keys()
            .filter(|name| extra_prefixes.iter().any(|prefix| strip_prefix(name.as_str(), prefix).is_some()))
            .cloned()
            .collect();
        for name in extra {
            headers.remove(name);
        }
    }

    fn owner(&self, chain: &[Bytes]) -> Option<(Owner, i64)> {
        let certificate = pki::Certificate::from_der(&chain[0]).ok()?;
        let until = certificate.not_after.as_millisecond();
        // The handshake may be long ago.
        let now = (self.clock)();
        if until <= now.as_millisecond() {
            return None;
        }
        let subject = certificate.subject;
        if let Some(proxy) = &self.proxy {
            let shown: Vec<CertificateDer<'_>> = chain.iter().map(|der| CertificateDer::from(&der[..])).collect();
            let allowed = &proxy.settings.allowed_names;
            let named = allowed.is_empty() || allowed.contains(&subject.common_name);
            if named && proxy.authority.believes(&shown, now).is_ok() {
                return Some((Owner::Proxy, until));
            }
            if proxy.clients.believes(&shown, now).is_err() {
                return Some((Owner::Nobody, until));
            }
        }
        if subject.common_name.is_empty() {
            return Some((Owner::Nobody, until));
        }
        let mut user = User::new(subject.common_name, subject.organizations.iter().map(String::as_str));
        let fingerprint: String =
            digest(&SHA256, &chain[0]).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        user.extra
            .insert("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={fingerprint}")]);
        Some((Owner::User(Arc::new(user)), until))
    }
}

impl FrontProxy {
    /// Whom a proxy says it speaks for.
    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let values = |name: &str| -> Vec<String> {
            let all = headers.get_all(name).iter().filter_map(|header| header.to_str().ok());
            all.filter(|text| !text.is_empty()).map(str::to_owned).collect()
        };
        let first = |names: &[String]| names.iter().find_map(|name| values(name).into_iter().next());
        let name = first(&self.user_headers)?;
        let groups: Vec<String> = self.group_headers.iter().flat_map(|name| values(name)).collect();
        let mut user = User::new(name, groups.iter().map(String::as_str));
        user.uid = first(&self.uid_headers).unwrap_or_default();
        for prefix in &self.extra_prefixes {
            for name in headers.keys() {
                if let Some(key) = strip_prefix(name.as_str(), prefix) {
                    user.extra.entry(unescape(&key.to_ascii_lowercase())).or_default().extend(values(name.as_str()));
                }
            }
        }
        Some(user)
    }
}

fn strip_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let head = name.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &name[prefix.len()..])
}

/// A key of extra as headers write it: what a header name cannot hold is percent-encoded.
pub fn unescape(key: &str) -> String {
    match percent_encoding::percent_decode_str(key).decode_utf8() {
        Ok(text) => text.into_owned(),
        Err(_) => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use jiff::Timestamp;
    use pki::{Authority, Leaf, PrivateKey, Subject};
    use std::time::Duration;

    fn authority(name: &str) -> Authority {
        let year = Duration::from_secs(365 * 86_400);
        Authority::new(name, PrivateKey::generate().expect("a key"), Timestamp::now(), year).expect("an authority")
    }

    fn client(authority: &Authority, name: &str, groups: &[&str]) -> Bytes {
        let key = PrivateKey::generate().expect("a key");
        let leaf = Leaf::client(Subject::new(name, groups.iter().copied()), Duration::from_secs(3600));
        let issued = authority.issue(&leaf, &key.public(), Timestamp::now()).expect("a certificate");
        Bytes::copy_from_slice(issued.to_der())
    }

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("jane"));
        headers.append("x-remote-group", HeaderValue::from_static("devs"));
        headers.append("x-remote-group", HeaderValue::from_static("ops"));
        headers.insert("x-remote-extra-acme.com%2fscope", HeaderValue::from_static("all"));
        headers
    }

    fn front(front: &Authority, clients: &Authority) -> FrontProxy {
        let one = |text: &str| vec![text.to_owned()];
        FrontProxy {
            authority: front.certificate().to_pem(),
            clients: clients.certificate().to_pem(),
            allowed_names: one("front-proxy-client"),
            user_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }

    #[test]
    fn a_certificate_names_a_user_and_headers_mean_nothing() {
        let clients = authority("clients");
        let certificates = Certificates::new(None, Arc::new(Timestamp::now)).expect("no proxy");
        let user = certificates.authenticate(&[client(&clients, "bob", &["a", "b"])], &headers()).expect("a user");
        assert_eq!((user.name.as_str(), &user.groups[..2]), ("bob", &["a".to_owned(), "b".to_owned()][..]));
        assert!(certificates.authenticate(&[client(&clients, "", &["a"])], &headers()).is_none());
        assert!(certificates.authenticate(&[Bytes::from_static(b"junk")], &headers()).is_none());
    }

    #[test]
    fn only_the_front_proxys_own_authority_lets_it_name_others() {
        let (proxies, clients) = (authority("front"), authority("clients"));
        let certificates =
            Certificates::new(Some(front(&proxies, &clients)), Arc::new(Timestamp::now)).expect("a proxy");
        let proxied =
            certificates.authenticate(&[client(&proxies, "front-proxy-client", &[])], &headers()).expect("a user");
        assert_eq!((proxied.name.as_str(), &proxied.groups[..2]), ("jane", &["devs".to_owned(), "ops".to_owned()][..]));
        assert_eq!(proxied.extra["acme.com/scope"], ["all"]);
        // Somebody with a certificate of the clients' authority is who that says, whatever the headers say.
        let spoofing =
            certificates.authenticate(&[client(&clients, "front-proxy-client", &[])], &headers()).expect("a user");
        assert_eq!(spoofing.name, "front-proxy-client");
        // The proxies' authority makes proxies, and no users.
        assert!(certificates.authenticate(&[client(&proxies, "admin", &["system:masters"])], &headers()).is_none());
        assert!(
            certificates
                .authenticate(&[client(&authority("others"), "admin", &["system:masters"])], &headers())
                .is_none()
        );
        let mut sent = headers();
        certificates.strip(&mut sent);
        assert!(sent.is_empty());
    }

    #[test]
    fn a_certificate_is_nobodys_after_its_end() {
        use std::sync::atomic::{AtomicI64, Ordering};
        let shift = Arc::new(AtomicI64::new(0));
        let clock: Clock = {
            let shift = shift.clone();
            Arc::new(move || Timestamp::now() + jiff::SignedDuration::from_secs(shift.load(Ordering::Relaxed)))
        };
        let clients = authority("clients");
        let certificates = Certificates::new(None, clock).expect("no proxy");
        let leaf = [client(&clients, "bob", &[])];
        assert!(certificates.authenticate(&leaf, &HeaderMap::new()).is_some());
        shift.store(7200, Ordering::Relaxed);
        assert!(certificates.authenticate(&leaf, &HeaderMap::new()).is_none());
    }
}
