//! Another authority in place of the cluster's, without a moment in which somebody is not believed.
//!
//! ```text
//!            signs        believed
//! at first   ca           ca
//! begun      ca           ca, ca-next        whoever starts now learns of both
//! switched   ca (new)     ca, ca-previous    what the old one signed is still good, and is signed anew in time
//! finished   ca           ca
//! ```
//! Each step is a few files in the directory, and can be repeated after a crash anywhere in it.

use std::path::Path;

use jiff::Timestamp;

use crate::authority::Authority;
use crate::cluster::AUTHORITY_LIFETIME;
use crate::disk::{self, Readers};
use crate::error::Error;
use crate::key::PrivateKey;

const NEXT: &str = "ca-next";
const PREVIOUS: &str = "ca-previous";

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    None,
    /// Both are believed, the old one signs.
    Begun,
    /// Both are believed, the new one signs.
    Switched,
}

impl Rotation {
    /// How far it has come in a directory.
    pub fn of(directory: &Path) -> Self {
        let is = |name: &str| directory.join(format!("{name}.crt")).exists();
        match (is(NEXT), is(PREVIOUS)) {
            (true, _) => Self::Begun,
            (false, true) => Self::Switched,
            (false, false) => Self::None,
        }
    }

    /// Makes the authority that is to follow.
    pub fn begin(directory: &Path, now: Timestamp) -> Result<(), Error> {
        let name = format!("kubernetes@{}", now.strftime("%Y%m%d"));
        let authority = Authority::new(&name, PrivateKey::generate()?, now, AUTHORITY_LIFETIME)?;
        disk::write(&directory.join(format!("{NEXT}.key")), authority.key().to_pem(), Readers::Owner)?;
        let certificate = authority.certificate().to_pem();
        // Last: it says that the rotation has begun.
        disk::write(&directory.join(format!("{NEXT}.crt")), &certificate, Readers::Everybody)
    }

    /// Lets the new one sign.
    pub fn switch(directory: &Path) -> Result<(), Error> {
        let file = |name: &str, end: &str| directory.join(format!("{name}.{end}"));
        let rename = |end: &str| {
            let (from, to) = (file(NEXT, end), file("ca", end));
            match disk::read(&from)? {
                None => Ok(()),
                Some(_) => std::fs::rename(&from, &to).map_err(|source| Error::File { path: to, source }),
            }
        };
        // Where the keys were moved already, the certificate is still the old one's.
        if let Some(old) = disk::read(&file("ca", "crt"))? {
            disk::write(&file(PREVIOUS, "crt"), &old, Readers::Everybody)?;
        }
        rename("key")?;
        rename("crt")
    }

    /// Believes the old one no more.
    pub fn finish(directory: &Path) -> Result<(), Error> {
        let path = directory.join(format!("{PREVIOUS}.crt"));
        std::fs::remove_file(&path).map_err(|source| Error::File { path, source })
    }
}

/// Whom to believe besides the authority that signs, in PEM.
pub(crate) fn others(directory: &Path) -> Result<String, Error> {
    let mut all = String::new();
    for name in [NEXT, PREVIOUS] {
        all.push_str(&disk::read(&directory.join(format!("{name}.crt")))?.unwrap_or_default());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Certificate, Cluster, Options, certificates_in};

    #[test]
    fn both_are_believed_in_between() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = Options {
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
            service_address: [10, 96, 0, 1].into(),
            cluster_domain: "cluster.local".to_owned(),
            hosts: Vec::new(),
        };
        let dir = directory.path();
        let ensure = || Cluster::ensure(dir, &options).expect("a PKI");
        let pin = |keys: &Cluster| keys.authority.certificate().public_key.pin();
        let believed = |keys: &Cluster| -> Vec<String> {
            let all = certificates_in(&keys.authority_pem());
            all.iter().map(|der| Certificate::from_der(der).expect("a certificate").public_key.pin()).collect()
        };
        let first = ensure();
        assert_eq!((Rotation::of(dir), believed(&first).len()), (Rotation::None, 1));
        Rotation::begin(dir, options.now).expect("begun");
        let begun = ensure();
        assert_eq!((Rotation::of(dir), pin(&begun), believed(&begun).len()), (Rotation::Begun, pin(&first), 2));
        assert_eq!(begun.server, first.server, "what is signed stays as it is");
        Rotation::switch(dir).expect("switched");
        let switched = ensure();
        assert_eq!(Rotation::of(dir), Rotation::Switched);
        let both = believed(&switched);
        assert_eq!(both, believed(&begun).into_iter().rev().collect::<Vec<_>>(), "the one that signs is the first");
        let server = Certificate::from_pem(&switched.server.chain_pem).expect("a certificate");
        assert!(server.verify_signed_by(&switched.authority.key().public()).is_ok(), "it is signed anew");
        Rotation::finish(dir).expect("finished");
        assert_eq!((Rotation::of(dir), believed(&ensure())), (Rotation::None, both[..1].to_vec()));
    }
}
