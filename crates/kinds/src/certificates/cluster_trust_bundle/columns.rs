//! What a table shows of ClusterTrustBundles.

use serde_json::json;

use crate::table::cells::{name, text_or};
use crate::table::{NAME, Printer, of, text};

pub static TABLE: Printer = Printer::new(
    &[NAME, text("SignerName", of("io.k8s.api.certificates.v1beta1.ClusterTrustBundleSpec", "signerName"))],
    |bundle, _| vec![name(bundle), json!(text_or(bundle, "spec.signerName", "<none>"))],
);
