//! Where a store is and how to get in: what was given, what the environment says, what a file has, in this order, under the names that everybody uses for S3.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;
use rustls::ClientConfig;

use crate::Error;

const REGION: &str = "us-east-1";
const PROFILE: &str = "default";

/// What the command line says. Secrets are no part of it: others on the machine can read command lines.
#[derive(Debug, Clone, Default)]
pub struct Given {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// In the form of `~/.aws/credentials`.
    pub credentials: Option<PathBuf>,
    /// PEM of the authorities that the endpoint's certificate is checked against.
    pub authorities: Option<PathBuf>,
}

/// Who asks.
#[derive(Clone)]
pub struct Credentials {
    pub id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("id", &self.id).finish_non_exhaustive()
    }
}

/// All that is needed to ask.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) endpoint: Uri,
    pub(crate) region: String,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Arc<ClientConfig>,
}

impl Settings {
    /// Reads what is not given from the environment and from files.
    pub fn find(given: &Given, environment: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let said = |names: &[&str]| names.iter().find_map(|name| environment(name).filter(|text| !text.is_empty()));
        let region = given.region.clone().or_else(|| said(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let region = region.unwrap_or_else(|| REGION.to_owned());
        let named = given.endpoint.clone().or_else(|| said(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
        let endpoint = endpoint(&named.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")))?;
        let authorities = given.authorities.clone().or_else(|| said(&["AWS_CA_BUNDLE"]).map(PathBuf::from));
        let believed = authorities.as_deref().map(read).transpose()?;
        let believed = believed.as_deref().map_or(pki::Believed::System, pki::Believed::Authorities);
        let tls = pki::outgoing_config(believed, None)?;
        Ok(Self { endpoint, region, credentials: credentials(given, said)?, tls })
    }

    /// Host and port, as they are asked for.
    pub(crate) fn authority(&self) -> &str {
        self.endpoint.authority().map_or("", |authority| authority.as_str())
    }
}

fn endpoint(text: &str) -> Result<Uri, Error> {
    let wrong = || Error::Endpoint(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let host = uri.host().ok_or_else(wrong)?;
    // An authority's key is in every backup.
    let private = uri.scheme_str() == Some("https")
        || uri.scheme_str() == Some("http") && matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    let bare = matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.contains('@');
    if private && bare { Ok(uri) } else { Err(wrong()) }
}

fn credentials(given: &Given, said: impl Fn(&[&str]) -> Option<String>) -> Result<Credentials, Error> {
    let keys = said(&["AWS_ACCESS_KEY_ID"]).zip(said(&["AWS_SECRET_ACCESS_KEY"]));
    // A file that was named is meant.
    if let (None, Some((id, secret))) = (&given.credentials, keys) {
        return Ok(Credentials { id, secret, token: said(&["AWS_SESSION_TOKEN"]) });
    }
    let usual = || {
        let named = said(&["AWS_SHARED_CREDENTIALS_FILE"]).map(PathBuf::from);
        named.or_else(|| Some(Path::new(&said(&["HOME"])?).join(".aws/credentials")))
    };
    let path = given.credentials.clone().or_else(usual);
    let profile = said(&["AWS_PROFILE"]).unwrap_or_else(|| PROFILE.to_owned());
    let shown = || path.as_deref().unwrap_or(Path::new("~/.aws/credentials")).display().to_string();
    let none = || Error::Credentials { path: shown(), profile: profile.clone() };
    let text = match &path {
        Some(path) if given.credentials.is_some() || path.exists() => read(path)?,
        _ => return Err(none()),
    };
    profile_of(&text, &profile).ok_or_else(none)
}

/// The credentials of a profile in a file of AWS' form.
fn profile_of(text: &str, profile: &str) -> Option<Credentials> {
    let lines = text.lines().map(str::trim).skip_while(|line| section(line) != Some(profile)).skip(1);
    let (mut id, mut secret, mut token) = (None, None, None);
    for line in lines.take_while(|line| section(line).is_none()) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        match name.trim() {
            "aws_access_key_id" => id = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => token = value,
            _ => {}
        }
    }
    Some(Credentials { id: id?, secret: secret?, token })
}

fn section(line: &str) -> Option<&str> {
    Some(line.strip_prefix('[')?.strip_suffix(']')?.trim())
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_that_send_secrets_in_clear_are_refused() {
        for good in ["https://s3.example.org", "https://10.0.0.1:9000/", "http://127.0.0.1:9000", "http://[::1]:9000"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["http://s3.example.org", "s3.example.org", "ftp://localhost", "https://h/path", "https://u:p@h"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_given_comes_before_the_environment_and_that_before_files() {
        let environment = |name: &str| {
            let values = [
                ("AWS_REGION", "eu-west-1"),
                ("AWS_ENDPOINT_URL", "https://a.example"),
                ("AWS_ACCESS_KEY_ID", "id"),
                ("AWS_SECRET_ACCESS_KEY", "hidden"),
            ];
            values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let found = Settings::find(&Given::default(), environment).expect("settings");
        assert_eq!((found.authority(), &*found.region), ("a.example", "eu-west-1"));
        assert_eq!((&*found.credentials.id, &*found.credentials.secret), ("id", "hidden"));
        assert!(!format!("{found:?}").contains("hidden"));
        let given = Given { endpoint: Some("https://b.example:9000".into()), ..Given::default() };
        assert_eq!(Settings::find(&given, environment).expect("settings").authority(), "b.example:9000");
        let without = Settings::find(&Given::default(), |_| None).expect_err("no credentials").to_string();
        assert!(without.contains("AWS_ACCESS_KEY_ID") && without.contains("[default]"), "{without}");
    }

    #[test]
    fn a_profile_is_read_from_a_file() {
        let text = "[default]\naws_access_key_id = one\naws_secret_access_key=s1\n\n[ two ]\n# more\naws_access_key_id=2\naws_secret_access_key = s=2\naws_session_token=t\n[three]\naws_access_key_id=3";
        let of = |profile| profile_of(text, profile).map(|found| (found.id, found.secret, found.token));
        assert_eq!(of("default"), Some(("one".into(), "s1".into(), None)));
        assert_eq!(of("two"), Some(("2".into(), "s=2".into(), Some("t".into()))));
        assert_eq!((of("three"), of("four")), (None, None));
    }
}
